package consensus

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/roster-mesh/roster/consensus/state"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/kinds"
)

// recant takes back what a leader has concluded that decides by something else than this
// one, before this one decides anything: what both have decided is no whole.
func (s *Store) recant(ctx context.Context) error {
	s.mu.RLock()
	v := s.state.Policy().Verdict()
	s.mu.RUnlock()
	if s.cfg.Grants == nil || v == nil || v.Basis == s.cfg.Basis {
		return nil
	}
	_, err := s.propose(ctx, &state.Command{Decide: &state.Decide{}})
	return err
}

func (s *Store) askRegrants() {
	select {
	case s.regrants <- struct{}{}:
	default:
	}
}

// regrantAll asks policy about every registration again and proposes what has
// changed, in bounded commands, and at last that all is decided. What is interrupted
// is begun anew by whoever leads next; where nothing has changed since the last time
// there is nothing to do.
func (s *Store) regrantAll(ctx context.Context) {
	if s.cfg.Grants == nil {
		return
	}
	s.mu.Lock()
	now := state.Verdict{Policy: s.state.Policy().Basis(), Basis: s.cfg.Basis}
	if v := s.state.Policy().Verdict(); v != nil && *v == now {
		s.mu.Unlock()
		return
	}
	all := s.state.Registrations().Share()
	s.mu.Unlock()
	err := s.regrantThose(ctx, all.RIDs())
	if err == nil {
		_, err = s.propose(ctx, &state.Command{Decide: &state.Decide{Verdict: &now}})
	}
	if err == nil {
		return
	}
	s.log.Info("grants are not all decided anew", "error", err) // that is for the next leader, or tried again
	if errors.Is(err, errNotLeader) {
		select {
		case <-time.After(regrantPause): // a leader writes nothing until it knows its clock to be right
		case <-ctx.Done():
		}
	}
	if ctx.Err() == nil {
		s.askRegrants()
	}
}

// regrantPause is how long grants wait that a leader could not decide anew, since it did
// not lead, or not yet.
const regrantPause = 200 * time.Millisecond

// regranters is how many commands with new grants are on their way at a time: while
// some are committed, policy is asked about the others.
const regranters = 4

// regrantThose is regrantAll of those that are named. It ends with the first error.
func (s *Store) regrantThose(ctx context.Context, rids []directory.RID) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	parts := make(chan []directory.RID)
	var workers sync.WaitGroup
	for range regranters {
		workers.Go(func() {
			for part := range parts {
				c := &state.Regrant{Items: s.decideAnew(part)}
				if len(c.Items) == 0 {
					continue
				}
				if _, err := s.propose(ctx, &state.Command{Regrant: c}); err != nil {
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

// decideAnew returns new answers of policy where they differ from the old ones.
func (s *Store) decideAnew(rids []directory.RID) []state.RegrantItem {
	var items []state.RegrantItem
	for _, rid := range rids {
		s.mu.RLock()
		reg := s.state.Registrations().Get(rid)
		s.mu.RUnlock()
		if reg == nil || reg.Entry().Unconfirmed {
			continue
		}
		e := reg.Entry()
		p := e.Projection()
		if p.Base == "" { // is it one at all? A document that only an earlier release took keeps what it has
			if _, err := kinds.Reproject(e.Agent, e.Document); err != nil {
				s.log.Warn("grants cannot be decided anew", "rid", rid, "error", err)
				continue
			}
		}
		g := s.decide(Subject{rid, e.Agent, e.Owner, e.Document, p, e.Visibility})
		if !state.EqualGrants(g.List(), reg.Grants()) {
			items = append(items, state.RegrantItem{RID: rid, Statement: e.Statement, Granted: g, Shown: reg.Shown(g.List())})
		}
	}
	return items
}
