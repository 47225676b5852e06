package consensus

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	"github.com/roster-mesh/roster/consensus/state"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
)

// leadershipLoop does what a leader must do before and while it leads.
func (s *Store) leadershipLoop() {
	abdicate := func() {}
	defer func() { abdicate() }()
	for {
		select {
		case leads := <-s.raft.LeaderCh():
			abdicate()
			abdicate = func() {}
			if leads {
				abdicate = s.enthrone()
			}
		case <-s.closing.Done():
			return
		}
	}
}

// enthrone begins a reign; what it returns ends it and waits for that.
func (s *Store) enthrone() (abdicate func()) {
	ctx, cancel := context.WithCancel(s.closing)
	var term sync.WaitGroup
	term.Go(func() { s.reign(ctx) })
	return func() {
		cancel()
		term.Wait()
		s.leading.Store(false)
		s.caughtUp.Store(false)
	}
}

// reign makes this member ready to lead: all of the earlier terms is applied, and
// the domain's history has begun, with this member's rules. Then it keeps the grants as policy wants them.
func (s *Store) reign(ctx context.Context) {
	s.presence.forget()
	for {
		err := s.barrier()
		if err == nil {
			err = s.beginHistory(ctx)
		}
		if err == nil {
			err = s.decree(ctx)
		}
		if err == nil {
			err = s.recant(ctx)
		}
		if err == nil {
			break
		}
		s.log.Debug("not ready to lead yet", "error", err)
		select {
		case <-time.After(retryPause):
		case <-ctx.Done():
			return
		}
		if s.raft.State() != raft.Leader {
			return
		}
	}
	if ctx.Err() != nil {
		return
	}
	s.leading.Store(true)
	s.arrive()
	s.proposeNext(ctx)
	s.askRegrants()
	for {
		select {
		case <-s.regrants:
			s.regrantAll(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// beginHistory proposes the log's first command where there is none, and the
// first of a restored history.
func (s *Store) beginHistory(ctx context.Context) error {
	c, err := s.beginning()
	if c == nil || err != nil {
		return err
	}
	_, err = s.propose(ctx, &state.Command{Epoch: c})
	return err
}

// reissueAfter is how long before the key document's end the leader issues the
// next one.
const reissueAfter = signed.KeyDocumentLifetime / 2

// sweepLoop looks at the agenda on every member, and on the leader proposes what
// has come due.
func (s *Store) sweepLoop() {
	ticker := time.NewTicker(s.cfg.Timing.Sweep)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			s.sweep()
		case <-s.closing.Done():
			return
		}
	}
}

func (s *Store) sweep() {
	if _, led := s.leader(); led && s.raft.State() == raft.Follower {
		s.presence.forget() // of whom it heard when it led: they have spoken to another since
	}
	now := s.cfg.clock()
	if s.raft.State() == raft.Leader && s.hasHeir() && (s.failure() != nil || s.presence.off(now)) {
		s.log.Warn("handing the leadership over: this member cannot write, or its clock is off its members'")
		s.handOn() // its outcome is seen by the next round
		return
	}
	s.sweepAt(now)
}

func (s *Store) sweepAt(clock time.Time) {
	now := clock.Unix()
	var expired, renewed []directory.RID
	for range state.MaxLooks / state.LooksAtOnce {
		s.mu.Lock()
		e, r := s.state.Registrations().Due(now)
		s.mu.Unlock()
		expired, renewed = append(expired, e...), append(renewed, r...)
	}
	s.mu.RLock()
	doc := s.state.Keys().Document()
	rotated := s.state.Keys().OverlapEnded(clock.UnixMilli())
	s.mu.RUnlock()
	hasty := s.hasty(clock, len(expired))
	if !s.leading.Load() {
		return
	}
	if hasty {
		s.log.Warn("time has jumped and many registrations would end; the clocks are asked again first", "registrations", len(expired))
		return // all of it is looked at again in a second
	}
	ctx, cancel := context.WithTimeout(s.closing, s.cfg.Timing.Write)
	defer cancel()
	for part := range slices.Chunk(expired, state.MaxSwept) {
		s.sweepWith(ctx, &state.Command{Expire: &state.Sweep{Format: s.statementFormat(), RIDs: part}})
	}
	for part := range slices.Chunk(renewed, state.MaxSwept) {
		s.sweepWith(ctx, &state.Command{Announce: &state.Sweep{Format: s.statementFormat(), RIDs: part}})
	}
	if doc != nil && (rotated || doc.Expires-now < reissueAfter) {
		s.sweepWith(ctx, &state.Command{Issue: &state.Issue{After: doc.Seq}})
	}
}

func (s *Store) sweepWith(ctx context.Context, c *state.Command) {
	if _, err := s.propose(ctx, c); err != nil {
		s.log.Debug("the sweep will try again", "error", err)
	}
}

// decree puts this leader's rules in the place of the domain's.
func (s *Store) decree(ctx context.Context) error {
	s.mu.RLock()
	current := s.state.Owners().Rules()
	s.mu.RUnlock()
	if current.Equal(&s.cfg.Rules) {
		return nil
	}
	rules := s.cfg.Rules
	_, err := s.propose(ctx, &state.Command{Rules: &rules})
	return err
}
