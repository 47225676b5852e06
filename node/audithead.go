package node

import (
	"context"
	"log/slog"
	"time"

	"github.com/roster-mesh/roster/consensus"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/trust/audit"
)

// auditHeadEvery is how often a node looks whether the head of its audit log is due in the ledger, which is once a day.
const auditHeadEvery = 10 * time.Second

// pinAuditHeads puts the head of this node's audit log into the ledger once a day until ctx ends: lines before it can't
// be changed afterwards without a trace, whether or not the node is honest by then.
func pinAuditHeads(ctx context.Context, store *consensus.Store, trail *audit.Log, log *slog.Logger) {
	ticker := time.NewTicker(auditHeadEvery)
	defer ticker.Stop()

	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}

		// A member without a vote brings nothing.
		lines, head := trail.Head()
		if lines == 0 || store.MustVote() != nil || !store.AuditDue() {
			continue
		}

		// After a conflict the head is in the ledger, by an attempt whose answer was lost.
		if err := store.PinAudit(ctx, lines, head); err != nil && directory.ProblemOf(err) != directory.Conflict {
			log.Debug("the head of the audit log is not in the ledger yet", "err", err)
		}
	}
}
