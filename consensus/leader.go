package consensus

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	"github.com/roster-mesh/roster/consensus/message"
	"github.com/roster-mesh/roster/consensus/state"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/ledger"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// The terms are those in which this member leads the domain, as Raft elects it. They are the one
// place that knows whether it does.
type terms struct {
	*member

	clocks  *clocks
	current atomic.Pointer[Leader]
}

// leader returns this member as the leader, nil unless it leads and is ready to.
func (t *terms) leader() *Leader {
	if leader := t.current.Load(); leader != nil && leader.ready.Load() {
		return leader
	}

	return nil
}

// elected is leader, also before it is ready.
func (t *terms) elected() *Leader { return t.current.Load() }

// run makes a Leader when Raft elects this member, and drops it at the end of the term.
func (t *terms) run() {
	defer t.end()

	for {
		select {
		case leads := <-t.group.raft.LeaderCh():
			t.end()

			if leads {
				t.clocks.presence.forget()
				t.current.Store(beginTerm(t.member, t.clocks))
			}
		case <-t.life.closing.Done():
			return
		}
	}
}

// end ends the term, if there is one.
func (t *terms) end() {
	if leader := t.current.Load(); leader != nil {
		leader.end()
		t.caughtUp.Store(false)
		t.current.Store(nil)
	}
}

// A Leader is this member in one term in which it leads: it prepares and proposes commands, ends
// registrations, decides grants, and changes the group.
type Leader struct {
	*member

	term     uint64
	ready    atomic.Bool // has applied all before its term, and the history has begun
	over     context.Context
	proposer *proposer
	preparer *preparer

	negotiator negotiator
	orders     orderDesk
	operator   operator

	moves    map[spiffeid.ID]move            // by member; guarded by the seats
	underWay map[raft.ServerID]chan struct{} // each holds one notice under way; of notifyLoop alone
	end      func()                          // ends the term and waits for its goroutines
}

// beginTerm begins a term. It is led once all of the earlier ones is applied.
func beginTerm(m *member, clocks *clocks) *Leader {
	over, cancel := context.WithCancel(m.life.closing)
	proposer := newProposer(m, clocks, over)
	l := &Leader{
		member: m, term: m.group.raft.CurrentTerm(), over: over, proposer: proposer,
		preparer:   &preparer{member: m},
		negotiator: negotiator{member: m, proposer: proposer},
		moves:      map[spiffeid.ID]move{}, underWay: map[raft.ServerID]chan struct{}{},
	}
	l.orders = orderDesk{member: m, proposer: proposer}
	l.operator = operator{member: m, over: over, orders: &l.orders}

	var loops sync.WaitGroup

	// The term is not ready any more before its loops end, so that no request finds it half ended.
	l.end = func() {
		l.ready.Store(false)
		cancel()
		loops.Wait()
	}

	loops.Go(proposer.run)
	loops.Go(l.notifyLoop)
	loops.Go(l.lead)

	return l
}

// beginHistory proposes the first command of a new or restored history.
func (l *Leader) beginHistory(ctx context.Context) error {
	epoch, err := l.beginning()
	if epoch == nil || err != nil {
		return err
	}

	_, err = l.proposer.propose(ctx, &state.Command{Epoch: epoch})

	return err
}

// beginning returns the epoch that begins the domain's history, or that follows a restore; nil
// if the history has begun.
func (l *Leader) beginning() (*state.Epoch, error) {
	var (
		known  uint64
		sealed string
	)

	l.replica.view(func(s *state.State) { known, sealed = s.History().Position().Epoch, s.History().Sealed() })

	now := l.cfg.Clock.Now()
	switch {
	case known == 0:
		return &state.Epoch{Epoch: uint64(now.Unix()), Reason: ledger.Bootstrap}, nil
	case sealed == "":
		return nil, nil
	}

	// The epoch is a time. It lies above the known ones even if this clock is behind.
	next := max(uint64(now.Unix()), known+1)
	if next > uint64(now.Add(directory.Skew).Unix()) {
		return nil, directory.Refuse(directory.Unavailable, "epoch %d lies ahead of this node's clock", known)
	}

	return &state.Epoch{Epoch: next, Reason: sealed}, nil
}

// lead makes this member ready to lead: all of the earlier terms is applied, the domain's
// history has begun, and this member's rules are in force. Then it tends the domain.
func (l *Leader) lead() {
	// A failure may pass: no entry is stamped before a majority has confirmed this clock, for one.
	for {
		err := l.prepareTerm()
		if err == nil {
			break
		}

		l.log.Debug("cannot begin to lead yet; retrying", "err", err)

		select {
		case <-time.After(retryPause):
		case <-l.over.Done():
			return
		}

		// The end of the term may come later than Raft's own state.
		if l.group.raft.State() != raft.Leader {
			return
		}
	}

	if l.over.Err() != nil {
		return
	}

	// Ready before settled, so that the readers that wake find a leader.
	l.ready.Store(true)
	l.replica.settle()
	l.negotiator.proposeNext(l.over)

	var duties sync.WaitGroup
	defer duties.Wait()

	duties.Go(l.tendMembers)
	l.tendGrants()
}

// prepareTerm takes the steps before the first command of others.
func (l *Leader) prepareTerm() error {
	if err := l.barrier(); err != nil {
		return err
	}

	if err := l.beginHistory(l.over); err != nil {
		return err
	}

	if err := l.proposeRules(l.over); err != nil {
		return err
	}

	return l.withdrawVerdict(l.over)
}

// tendMembers removes stale and dead members, and negotiates versions.
func (l *Leader) tendMembers() {
	led := time.Now()

	every(l.over, l.cfg.Timing.Sweep, func() {
		l.operator.removeStale(l.over)
		l.operator.removeUnanswered()
		l.operator.removeDead(led)
		l.negotiator.negotiate(l.over)
	})
}

// tendGrants decides grants when asked to, and replaces the domain's rules by this member's.
func (l *Leader) tendGrants() {
	for {
		agreed := l.replica.Agreed()

		var again <-chan time.Time
		if !l.regrantAll(l.over) {
			again = time.After(regrantPause)
		}

		select {
		case <-agreed:
		case <-again:
		case <-l.newRules:
			l.replaceRules(l.over)
		case <-l.over.Done():
			return
		}
	}
}

// barrier waits until all earlier terms are applied here, by an entry of this
// term.
func (l *Leader) barrier() error {
	last := l.group.raft.LastIndex()
	if err := l.group.raft.Barrier(enqueueTimeout).Error(); err != nil {
		return err
	}

	if l.group.raft.CurrentTerm() != l.term {
		return message.ErrNotLeader
	}

	l.replica.progress.raise(last)

	return nil
}

// proposeRules replaces the domain's rules by this leader's.
func (l *Leader) proposeRules(ctx context.Context) error {
	rules := l.rules.Load()

	current := ask(l.replica, func(s *state.State) Rules { return s.Owners().Rules() })
	if current.Equal(rules) {
		return nil
	}

	_, err := l.proposer.propose(ctx, &state.Command{Rules: rules})

	return err
}

// replaceRules proposes the new rules until they are in force, or this member's term ends.
func (l *Leader) replaceRules(ctx context.Context) {
	for ctx.Err() == nil {
		err := l.proposeRules(ctx)
		if err == nil {
			return
		}

		l.log.Debug("cannot replace the domain's rules yet; retrying", "err", err)

		select {
		case <-time.After(retryPause):
		case <-ctx.Done():
		}
	}
}

// withdrawVerdict withdraws the verdict of a leader with another basis, before this
// leader decides any grants: decisions on two bases are not one verdict.
func (l *Leader) withdrawVerdict(ctx context.Context) error {
	v := ask(l.replica, func(s *state.State) *state.Verdict { return s.Policy().Verdict() })
	if l.cfg.Grants == nil || v == nil || v.Basis == l.cfg.Basis {
		return nil
	}

	_, err := l.proposer.propose(ctx, &state.Command{Decide: &state.Decide{}})

	return err
}
