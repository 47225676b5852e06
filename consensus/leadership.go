package consensus

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	"github.com/roster-mesh/roster/consensus/message"
	"github.com/roster-mesh/roster/consensus/state"
	"github.com/roster-mesh/roster/directory"
)

// A leadership does a leader's work before and while it leads.
type leadership struct {
	cfg        *Config
	log        *slog.Logger
	life       *lifecycle
	group      *group
	replica    *Replica
	clocks     *clocks
	proposer   *proposer
	reader     *reader
	regranter  *regranter
	negotiator *negotiator
	follower   *follower

	rules    atomic.Pointer[Rules] // of this member
	newRules chan struct{}         // holds one request to propose them
}

// setRules replaces the rules of this member. If it leads, it proposes them to the domain.
func (l *leadership) setRules(rules *Rules) {
	l.rules.Store(rules)

	select {
	case l.newRules <- struct{}{}:
	default:
	}
}

// begin begins a term as leader; the returned function ends it and waits for its
// goroutine.
func (l *leadership) begin() (abdicate func()) {
	ctx, cancel := context.WithCancel(l.life.closing)

	var term sync.WaitGroup
	term.Go(func() { l.lead(ctx) })

	return func() {
		cancel()
		term.Wait()
		l.group.leading.Store(false)
		l.follower.caughtUp.Store(false)
	}
}

// beginHistory proposes the first command of a new or restored history.
func (l *leadership) beginHistory(ctx context.Context) error {
	epoch, err := l.beginning()
	if epoch == nil || err != nil {
		return err
	}

	_, err = l.proposer.propose(ctx, &state.Command{Epoch: epoch})

	return err
}

// beginning returns the epoch that begins the domain's history, or that follows a restore; nil
// if the history has begun.
func (l *leadership) beginning() (*state.Epoch, error) {
	var (
		known  uint64
		sealed string
	)

	l.replica.view(func(s *state.State) { known, sealed = s.History().Position().Epoch, s.History().Sealed() })

	now := l.cfg.Clock.Now()
	switch {
	case known == 0:
		return &state.Epoch{Epoch: uint64(now.Unix()), Reason: "bootstrap"}, nil
	case sealed == "":
		return nil, nil
	}

	next := max(uint64(now.Unix()), known+1)
	if next > uint64(now.Add(directory.Skew).Unix()) {
		return nil, directory.Refuse(directory.Unavailable, "epoch %d lies ahead of this node's clock", known)
	}

	return &state.Epoch{Epoch: next, Reason: sealed}, nil
}

// lead makes this member ready to lead: all of the earlier terms is applied, the domain's
// history has begun, and this member's rules are in force. Then it decides grants when
// asked to.
func (l *leadership) lead(ctx context.Context) {
	l.clocks.presence.forget()

	for {
		err := l.reader.barrier()
		if err == nil {
			err = l.beginHistory(ctx)
		}

		if err == nil {
			err = l.proposeRules(ctx)
		}

		if err == nil {
			err = l.withdrawVerdict(ctx)
		}

		if err == nil {
			break
		}

		l.log.Debug("cannot begin to lead yet; retrying", "err", err)

		select {
		case <-time.After(retryPause):
		case <-ctx.Done():
			return
		}

		if l.group.raft.State() != raft.Leader {
			return
		}
	}

	if ctx.Err() != nil {
		return
	}

	l.group.leading.Store(true)
	l.replica.settle()
	l.negotiator.proposeNext(ctx)

	for {
		agreed := l.replica.Agreed()

		var again <-chan time.Time
		if !l.regranter.regrantAll(ctx) {
			again = time.After(regrantPause)
		}

		select {
		case <-agreed:
		case <-again:
		case <-l.newRules:
			l.replaceRules(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// proposeRules replaces the domain's rules by this leader's.
func (l *leadership) proposeRules(ctx context.Context) error {
	var current Rules

	rules := l.rules.Load()
	l.replica.view(func(s *state.State) { current = s.Owners().Rules() })

	if current.Equal(rules) {
		return nil
	}

	_, err := l.proposer.propose(ctx, &state.Command{Rules: rules})

	return err
}

// replaceRules proposes the new rules until they are in force, or this member's term ends.
func (l *leadership) replaceRules(ctx context.Context) {
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

// run follows Raft's elections of this member.
func (l *leadership) run() {
	abdicate := func() {}
	defer func() { abdicate() }()

	for {
		select {
		case leads := <-l.group.raft.LeaderCh():
			abdicate()

			abdicate = func() {}
			if leads {
				abdicate = l.begin()
			}
		case <-l.life.closing.Done():
			return
		}
	}
}

// withdrawVerdict withdraws the verdict of a leader with another basis, before this
// leader decides any grants: decisions on two bases are not one verdict.
func (l *leadership) withdrawVerdict(ctx context.Context) error {
	var v *state.Verdict
	l.replica.view(func(s *state.State) { v = s.Policy().Verdict() })

	if l.cfg.Grants == nil || v == nil || v.Basis == l.cfg.Basis {
		return nil
	}

	_, err := l.proposer.propose(ctx, &state.Command{Decide: &state.Decide{}})

	return err
}

// A follower sends its time to its leader at intervals and learns the leader's position, which
// Raft does not give it.
type follower struct {
	cfg       *Config
	life      *lifecycle
	group     *group
	replica   *Replica
	clocks    *clocks
	messenger *messenger
	caughtUp  atomic.Bool // has applied the leader's recent position
}

// askLeader sends this member's time to the leader, learns the leader's position, and waits a
// little for this member to reach it.
func (f *follower) askLeader() bool {
	leader, term, ok := f.group.follow()
	if !ok || leader.ID == f.cfg.Node {
		return false
	}

	ctx, cancel := context.WithTimeout(term, f.cfg.Timing.Presence) // a successor waits to hear of this clock
	defer cancel()

	var answer message.PresenceAnswer

	began := f.cfg.clock()
	if err := f.messenger.post(ctx, leader, presencePath, f.clocks.presenceRequest(began), &answer); err != nil {
		return false
	}

	f.clocks.judgeClock(began, answer.Time)
	f.clocks.keep(answer.Kept)

	if answer.Epoch == 0 {
		return false // the leader reads its own log again, or there is no history yet
	}

	at := directory.Position{Epoch: answer.Epoch, Revision: answer.Revision}
	f.checkSeal(at)
	_ = f.replica.Await(ctx, at)

	return !f.replica.Position().Before(at)
}

// checkSeal latches a sealed member if its leader, at that position, continues in the same
// epoch: nothing but an epoch follows a restore.
func (f *follower) checkSeal(leader directory.Position) {
	at := f.replica.Position()
	if f.replica.isSealed() && leader.Epoch == at.Epoch && leader.Revision > at.Revision {
		f.life.fail(fmt.Errorf("%w: empty %s and start it again; let it in with: roster raft remove %s && "+
			"roster raft admit %s", errLoneRestore, f.cfg.Dir, f.cfg.Node, f.cfg.Node))
	}
}

// run sends the time to the leader at intervals, and at once to a new leader.
func (f *follower) run() {
	elected, deaf := f.group.elections()
	defer deaf()

	for {
		pause := f.cfg.Timing.Presence
		if !f.group.leading.Load() {
			f.caughtUp.Store(f.askLeader())

			if f.caughtUp.Load() {
				f.replica.settle()
			} else {
				pause = catchUpPause
			}
		}

		select {
		case <-time.After(pause):
		case <-elected:
		case <-f.life.closing.Done():
			return
		}
	}
}

// catchUpPause is between a follower's words until it has caught up.
const catchUpPause = 50 * time.Millisecond
