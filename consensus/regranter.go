package consensus

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/roster-mesh/roster/consensus/state"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/kinds"
)

// decideAnew returns policy's new decisions that differ from the old ones.
func (l *Leader) decideAnew(rids []directory.RID) []state.RegrantItem {
	var items []state.RegrantItem
	for _, rid := range rids {
		reg := l.replica.registration(rid)

		// The grants of an unconfirmed registration are decided with its refresh.
		if reg == nil || reg.Entry().Unconfirmed {
			continue
		}

		entry := reg.Entry()

		projection := entry.Projection()
		// A document that only an earlier release accepted keeps its grants.
		if projection.Base == "" {
			if _, err := kinds.Reproject(entry.Agent, entry.Document); err != nil {
				l.log.Warn("grants cannot be decided anew", "rid", rid, "err", err)
				continue
			}
		}

		g := l.preparer.decide(Subject{rid, entry.Agent, entry.Owner, entry.Document, projection, entry.Visibility})
		if !state.EqualGrants(g.List(), reg.Grants()) {
			items = append(items, state.RegrantItem{RID: rid, Statement: entry.Statement, Granted: g,
				Shown: reg.Shown(g.List())})
		}
	}

	return items
}

// regrantAll asks policy about every registration again, proposes the changes in bounded
// commands, and at last a verdict. If nothing has changed since the last verdict there is
// nothing to do. It reports whether all grants are decided; if not, the leader or the next
// one has to begin again.
func (l *Leader) regrantAll(ctx context.Context) bool {
	if l.cfg.Grants == nil {
		return true
	}

	var (
		all     state.Shared
		decided bool
	)

	now := state.Verdict{Basis: l.cfg.Basis}

	// The basis and the list are of one moment: apply refuses grants of another policy.
	l.replica.use(func(s *state.State) {
		now.Policy = s.Policy().Basis()

		if v := s.Policy().Verdict(); v != nil && *v == now {
			decided = true
		} else {
			all = s.Registrations().Share()
		}
	})

	if decided {
		return true
	}

	err := l.regrantThose(ctx, all.RIDs())
	if err == nil {
		_, err = l.proposer.propose(ctx, &state.Command{Decide: &state.Decide{Verdict: &now}})
	}

	if err != nil {
		l.log.Info("deciding grants anew was interrupted", "err", err)
	}

	return err == nil
}

// regrantThose is regrantAll of those that are named. It ends with the first error.
func (l *Leader) regrantThose(ctx context.Context, rids []directory.RID) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	parts := make(chan []directory.RID)

	var workers sync.WaitGroup
	for range regranters {
		workers.Go(func() {
			for part := range parts {
				regrant := &state.Regrant{Items: l.decideAnew(part)}
				if len(regrant.Items) == 0 {
					continue
				}

				if _, err := l.proposer.propose(ctx, &state.Command{Regrant: regrant}); err != nil {
					cancel(err)
					return
				}
			}
		})
	}

feed:
	for part := range slices.Chunk(rids, state.MaxSwept) {
		select {
		case parts <- part:
		case <-ctx.Done():
			break feed
		}
	}

	close(parts)
	workers.Wait()

	return context.Cause(ctx)
}

// regrantPause is the wait before grants are decided again after a failure. A leader writes
// nothing until it knows that its clock is right, for example.
const regrantPause = 200 * time.Millisecond

// regranters is how many commands with new grants are on their way at a time: while
// some are committed, policy is asked about the others.
const regranters = 4
