package federation

import (
	"context"
	"time"

	"github.com/roster-mesh/roster/directory/contain"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/federation/replica"
	"github.com/roster-mesh/roster/federation/store"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// fetch asks holders in turn for records until none is missing. What a holder
// gives is what its name says, or it is not taken and the next one is asked; what
// else is wrong with it is for the record gate to find.
func (rc *receiver) fetch(ctx context.Context, origin spiffeid.TrustDomain, names []protocol.RecordName,
	holders []protocol.Node) map[protocol.RecordName]replica.Fetched {
	got := make(map[protocol.RecordName]replica.Fetched, len(names))

	answers := 0
	for _, node := range holders {
		for ctx.Err() == nil && answers < maxAnswers {
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

// askRecords asks one holder and adds to got what it gives.
func (rc *receiver) askRecords(ctx context.Context, origin spiffeid.TrustDomain, names []protocol.RecordName,
	node protocol.Node, got map[protocol.RecordName]replica.Fetched) error {
	var header string // of the record before: usually it is the same

	return rc.client.Records(ctx, node, origin, names, func(line protocol.RecordLine) {
		named := protocol.RecordName{H: line.H, M: line.M}

		var r *store.Record

		err := rc.cfg.Panics.Run(contain.Record, func() (err error) {
			r, err = replica.ReadRecord(named, line.Record, header)
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
		got[named] = replica.Fetched{Record: r, From: node.Domain, At: time.Now()}
	})
}

// without returns up to maxNames of those that aren't got yet.
func without(names []protocol.RecordName, got map[protocol.RecordName]replica.Fetched) []protocol.RecordName {
	var missing []protocol.RecordName
	for _, n := range names {
		if _, ok := got[n]; !ok && len(missing) < protocol.MaxNames {
			missing = append(missing, n)
		}
	}

	return missing
}

// maxAnswers bounds what is fetched at a time, each answer being at most maxAnswer:
// a peer whose documents are large is asked again later for the rest.
const maxAnswers = 4
