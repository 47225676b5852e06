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
	"github.com/roster-mesh/roster/federation/replica"
	"github.com/roster-mesh/roster/federation/store"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// prefetch fetches the missing records of an applicable page.
func (rc *receiver) prefetch(ctx context.Context, origin *replica.Origin, page *replica.Page, giver protocol.Node,
	done replica.Ahead) (map[protocol.RecordName]recordgate.Fetched, error) {
	id, full, apt := origin.Fit(page, done)
	if !apt {
		return nil, nil
	}

	var names []protocol.RecordName
	for _, d := range page.Digests {
		if d.Live() && !replica.Freed(d.Deadline, origin.Shown.Index.Clock.Now()) {
			names = append(names, protocol.NameOf(d))
		}
	}

	err := rc.store.Read(id, func(t *store.Tx) (err error) {
		if names, err = t.Missing(page.Digests, names); full && err == nil {
			names, err = t.Replacing(page.Digests, names)
		}

		return err
	})
	if err != nil || len(names) == 0 {
		return nil, err
	}

	ctx, step := span.Start(ctx, span.Fetch)
	defer step.End()

	step.Items(len(names))

	ctx, cancel := context.WithTimeout(ctx, protocol.PrefetchTime)
	defer cancel()

	return rc.fetchInParts(ctx, origin.Domain, names, giver), nil
}

// fetchInParts is fetch from one holder by up to fetchParts requests at once, so that both ends
// use more than one processor.
func (rc *receiver) fetchInParts(ctx context.Context, origin spiffeid.TrustDomain, names []protocol.RecordName,
	giver protocol.Node) map[protocol.RecordName]recordgate.Fetched {
	parts := slices.Collect(slices.Chunk(names, max(minPart, (len(names)+fetchParts-1)/fetchParts)))
	found := make([]map[protocol.RecordName]recordgate.Fetched, len(parts))

	var requests sync.WaitGroup
	for i, part := range parts {
		requests.Go(func() {
			// After a panic the records of this part are missing.
			_ = rc.cfg.Panics.Run(contain.Page, func() error {
				found[i] = rc.fetch(ctx, origin, part, []protocol.Node{giver}, maxAnswers/len(parts))
				return nil
			})
		})
	}

	requests.Wait()

	all := make(map[protocol.RecordName]recordgate.Fetched, len(names))
	for _, some := range found {
		maps.Copy(all, some)
	}

	return all
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
			missing := without(names, got)
			if len(missing) == 0 {
				return got
			}

			before := len(got)
			if err := rc.askRecords(ctx, origin, missing, node, got); err != nil {
				rc.cfg.Logger.Debug("fetching records failed", "origin", origin.Name(), "from", node.Base, "err", err)
				break
			}

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

// without returns the names of missing records, at most protocol.MaxNames.
func without(names []protocol.RecordName, got map[protocol.RecordName]recordgate.Fetched) []protocol.RecordName {
	var missing []protocol.RecordName
	for _, n := range names {
		if _, ok := got[n]; !ok && len(missing) < protocol.MaxNames {
			missing = append(missing, n)
		}
	}

	return missing
}
