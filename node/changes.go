package node

import (
	"context"
	"log/slog"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/consensus"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/trust/audit"
)

// A changeRecorder writes the changes that other members bring into this node's audit log once they are
// applied here, and reports those in this node's name that it did not send.
type changeRecorder struct {
	node   spiffeid.ID
	feed   *consensus.ChangeFeed
	trail  *audit.Log
	log    *slog.Logger
	unsent func() // counts
}

// run records changes until ctx ends.
func (r *changeRecorder) run(ctx context.Context) {
	for {
		select {
		case <-r.feed.News():
			r.recordAll(r.feed.Take())
		case <-ctx.Done():
			return
		}
	}
}

func (r *changeRecorder) recordAll(changes []consensus.Change, missed uint64) {
	for i := range changes {
		r.record(&changes[i])
	}

	if missed > 0 {
		r.log.Error("changes were applied faster than this node could write them into its audit log: compare "+
			"with another node's log", "count", missed)
		r.write(directory.AuditEvent{Action: "changes.skipped", Count: missed, Outcome: directory.OutcomeUnchecked,
			Change: changes[len(changes)-1].Position})
	}
}

func (r *changeRecorder) record(change *consensus.Change) {
	event := directory.AuditEvent{
		Action: change.Action, Actor: change.Caller, Agent: change.Agent, RID: change.RID, Target: change.Target,
		Count: change.Count, Outcome: directory.OutcomeOK, Revision: change.Position.String(),
		Change: change.Position, BroughtBy: directory.IdentityOf(change.From),
		Routine: change.Action == "refresh" && !change.Unsent,
	}

	if change.Unsent {
		event.Outcome = directory.OutcomeUnsent

		r.unsent()
		r.log.Error("a change was applied in this node's name that this node did not send; its key may be stolen",
			"action", change.Action, "actor", change.Caller.String(), "brought_by", r.node,
			"revision", event.Revision)
	}

	r.write(event)
}

func (r *changeRecorder) write(event directory.AuditEvent) {
	if err := r.trail.Brought(event); err != nil {
		r.log.Error("an applied change is missing in the audit trail", "action", event.Action, "revision",
			event.Revision, "err", err)
	}
}
