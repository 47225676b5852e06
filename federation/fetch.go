package federation

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/roster-mesh/roster/directory/contain"
	"github.com/roster-mesh/roster/directory/span"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/federation/recordgate"
	"github.com/roster-mesh/roster/federation/store"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// prefetch fetches the missing records of an applicable page from the node that sent it, by up to
// fetchParts requests at once, so that both ends use more than one processor. It changes no stored
// data.
func (rc *receiver) prefetch(ctx context.Context, received *receivedPage) {
	if received.err != nil {
		return
	}

	var names []protocol.RecordName

	err := rc.cfg.Panics.Run(contain.Page, func() (err error) {
		names, err = received.origin.Wanted(received.Page, received.ahead)
		return err
	})
	if err != nil {
		received.err = rc.refuse(received.from, received.Text, err)
	}

	if err != nil || len(names) == 0 {
		return
	}

	ctx, step := span.Start(ctx, span.Fetch)
	defer step.End()

	step.Items(len(names))

	ctx, cancel := context.WithTimeout(ctx, protocol.PrefetchTime)
	defer cancel()

	// The parts share the answers of one page, so that splitting it doesn't raise the bound on memory.
	parts := slices.Collect(slices.Chunk(names, max(minPart, (len(names)+fetchParts-1)/fetchParts)))
	found := make([]map[protocol.RecordName]recordgate.Fetched, len(parts))

	var requests sync.WaitGroup
	for i, part := range parts {
		requests.Go(func() {
			// After a panic the records of this part are missing.
			_ = rc.cfg.Panics.Run(contain.Page, func() error {
				found[i] = rc.fetch(ctx, received.origin.Domain, part, []protocol.Node{received.giver},
					maxAnswers/len(parts))

				return nil
			})
		})
	}

	requests.Wait()

	received.records = make(map[protocol.RecordName]recordgate.Fetched, len(names))
	for _, some := range found {
		maps.Copy(received.records, some)
	}
}

const (
	maxAnswers = 4          // for the records of one page
	fetchParts = maxAnswers // so that each part may have one answer
	minPart    = 100        // records of a part, because a request has a price too
)

// fetch requests records from one holder after the other until none is missing. It accepts a
// record only if it matches its name, and otherwise asks the next holder. The record gate
// checks the rest. It takes at most that many answers, each of at most protocol.MaxAnswer bytes. If
// documents are large, the rest is requested later.
func (rc *receiver) fetch(ctx context.Context, origin spiffeid.TrustDomain, names []protocol.RecordName,
	holders []protocol.Node, most int) map[protocol.RecordName]recordgate.Fetched {
	got := make(map[protocol.RecordName]recordgate.Fetched, len(names))

	answers := 0
	for _, node := range holders {
		for ctx.Err() == nil && answers < most {
			missing := slices.DeleteFunc(slices.Clone(names), func(name protocol.RecordName) bool {
				_, ok := got[name]
				return ok
			})
			if len(missing) == 0 {
				return got
			}

			missing = missing[:min(len(missing), protocol.MaxNames)]

			before := len(got)
			if err := rc.askRecords(ctx, origin, missing, node, got); err != nil {
				rc.cfg.Logger.Debug("fetching records failed", "origin", origin.Name(), "from", node.Base, "err", err)
				break
			}

			// A holder that gave no record of these would give none again.
			if len(got) == before {
				break
			}

			answers++
		}
	}

	return got
}

// askRecords requests records from one holder and adds them to got.
func (rc *receiver) askRecords(ctx context.Context, origin spiffeid.TrustDomain, names []protocol.RecordName,
	node protocol.Node, got map[protocol.RecordName]recordgate.Fetched) error {
	var header string // of the record before: usually it is the same

	return rc.client.Records(ctx, node, origin, names, func(line protocol.RecordLine) {
		named := protocol.RecordName{H: line.H, M: line.M}

		var r *store.Record

		err := rc.cfg.Panics.Run(contain.Record, func() (err error) {
			r, err = recordgate.Read(named, line.Record, header)
			return err
		})
		if err != nil {
			rc.refusals.ByOrigin.Add(origin, protocol.CodeRecord)
			rc.refusals.BySender.Add(node.Domain, protocol.CodeRecord)

			if rc.refusals.Lines.Allow(protocol.CodeRecord, node.Domain) {
				rc.cfg.Logger.Warn("refused a record", "origin", origin.Name(), "from", node.Base, "h",
					line.H.String(), "err", err)
			}

			return
		}

		header = r.Header
		got[named] = recordgate.Fetched{Record: r, From: node.Domain, At: time.Now()}
	})
}
