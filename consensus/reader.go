package consensus

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	"github.com/roster-mesh/roster/consensus/message"
	"github.com/roster-mesh/roster/directory"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// A reader confirms that this member shows all that was acknowledged before a read.
type reader struct {
	*member

	terms     *terms
	asked     sharedQuestion // by a follower of its leader
	confirmed sharedQuestion // by a leader of a majority
	gates     map[spiffeid.ID]chan struct{}
}

// Linearize returns nil once this member shows all changes that any member acknowledged before
// the call: a read of the index after it is linearizable. It writes no log entry, and
// concurrent calls share one exchange. It fails with Unavailable if no majority is reachable:
// at once if no leader is known, and after a heartbeat timeout otherwise. A member that is only
// behind gets Timing.Write to catch up.
func (r *reader) Linearize(ctx context.Context) error {
	if err := r.life.failure(); err != nil {
		return directory.Refuse(directory.Unavailable, "this node has stopped applying changes; use another: %w", err)
	}

	if r.replica.isSealed() {
		return errSealed
	}

	at, err := r.readPosition(ctx)
	if err == nil && r.replica.Position().Before(at) {
		bound, cancel := context.WithTimeout(ctx, r.cfg.Timing.Write)
		defer cancel()
		err = r.replica.Await(bound, at)
	}

	if err != nil {
		return directory.Refuse(directory.Unavailable,
			"no majority of the domain's nodes confirms this node's state now; retry, or ask for less "+
				"consistency: %w", err)
	}

	return nil
}

// askLeader is a follower's question: the leader confirms that it leads and says
// how far it is.
func (r *reader) askLeader() (directory.Position, error) {
	leader, ok := r.group.leader()
	switch {
	case !ok:
		return directory.Position{}, errNoLeader
	case leader.ID == r.cfg.Node:
		return directory.Position{}, errNotYet
	}

	ctx, cancel := context.WithTimeout(r.life.closing, r.cfg.Timing.Heartbeat)
	defer cancel()

	var a message.PresenceAnswer
	err := r.messenger.post(ctx, leader, readPath, &message.ReadRequest{}, &a)

	return directory.Position{Epoch: a.Epoch, Revision: a.Revision}, err
}

// awaitIndex waits until all commands up to a committed index are applied here.
// Only commands reach the machine, so the last one at or before it counts.
func (r *reader) awaitIndex(ctx context.Context, index uint64) error {
	var entry raft.Log
	for ; index > r.replica.progress.applied.Load(); index-- {
		if err := r.storage.disk.Logs.GetLog(index, &entry); err != nil {
			return fmt.Errorf("look at log entry %d: %w", index, err)
		}

		if entry.Type == raft.LogCommand {
			break
		}
	}

	for {
		// The channel comes first, so that a change between the two is not missed.
		changed := r.replica.Changed()
		if r.replica.progress.applied.Load() >= index {
			return nil
		}

		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// confirm is a leader's question: is it still the leader? First the commit
// index, then a majority's word that it knows of no later term, each asked after
// the question was put; then all up to that index is applied here.
//
// raft.VerifyLeader does not do: it takes a member's answer to any heartbeat, one
// that was sent long before too. A leader that was stopped for a while finds such
// answers waiting for it.
func (r *reader) confirm() (directory.Position, error) {
	leader := r.terms.leader()
	if leader == nil || r.group.raft.CurrentTerm() != leader.term {
		return directory.Position{}, message.ErrNotLeader
	}

	index := r.group.raft.CommitIndex()

	ctx, cancelPoll := context.WithTimeout(r.life.closing, r.cfg.Timing.Heartbeat)
	defer cancelPoll()

	if err := r.poll(ctx, leader.term); err != nil {
		return directory.Position{}, err
	}

	// A later term may have begun while the members were asked.
	if r.group.raft.CurrentTerm() != leader.term {
		return directory.Position{}, message.ErrNotLeader
	}

	// A confirmed leader that is only behind its log, as with a slow disk, gets as long as a write.
	applying, cancel := context.WithTimeout(r.life.closing, r.cfg.Timing.Write)
	defer cancel()

	if err := r.awaitIndex(applying, index); err != nil {
		return directory.Position{}, err
	}

	return r.replica.Position(), nil
}

// termGate returns the semaphore of questions to a member. It is for the confirming
// goroutine alone.
func (r *reader) termGate(id spiffeid.ID) chan struct{} {
	g := r.gates[id]
	if g == nil {
		g = make(chan struct{}, 1)
		r.gates[id] = g
	}

	return g
}

// confirmsTerm asks one member for its term. Only one question to a member is in
// flight at a time. It is not cancelled when ctx ends: that only ends the wait for
// a turn.
func (r *reader) confirmsTerm(ctx context.Context, gate chan struct{}, member Member, term uint64) bool {
	select {
	case gate <- struct{}{}:
	case <-ctx.Done():
		return false
	}

	defer func() { <-gate }()
	own, cancel := context.WithTimeout(r.life.closing, r.cfg.Timing.Heartbeat)
	defer cancel()

	var a message.TermAnswer

	return r.messenger.post(own, member, termPath, &message.TermRequest{Term: term}, &a) == nil && a.Term == term
}

// poll returns nil once a majority of the voters has said, asked from now on,
// that it is in this term. A voter that says so has not voted for a later leader yet.
func (r *reader) poll(ctx context.Context, term uint64) error {
	others, missing := r.group.voters()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	answers := make(chan bool, len(others))
	for _, m := range others {
		gate := r.termGate(m.ID)
		r.life.loops.Go(func() { answers <- r.confirmsTerm(ctx, gate, m, term) })
	}

	for range others {
		if missing <= 0 {
			break
		}

		select {
		case ok := <-answers:
			if ok {
				missing--
			}
		case <-ctx.Done():
			return errNoMajority
		}
	}

	if missing > 0 {
		return errNoMajority
	}

	return nil
}

// readPosition returns a position that has all that was acknowledged before the
// call. The leader may be unknown for a moment, so it tries for as long as a
// question may take.
func (r *reader) readPosition(ctx context.Context) (directory.Position, error) {
	began := time.Now()
	for {
		// The question is chosen each time, because this member may win or lose the leadership meanwhile.
		question := &r.asked
		if r.terms.leader() != nil {
			question = &r.confirmed
		}

		at, err := question.join(ctx)
		if err == nil || errors.Is(err, errNoLeader) || ctx.Err() != nil ||
			time.Since(began) > r.cfg.Timing.Heartbeat-retryPause {
			return at, err
		}

		select {
		case <-time.After(retryPause):
		case <-ctx.Done():
			return at, err
		case <-r.life.closing.Done():
			return at, err
		}
	}
}

// A sharedQuestion is asked once for all callers that join before it is asked, and once more
// for later ones: an answer that is under way may be older than the state that they must see.
type sharedQuestion struct {
	closing <-chan struct{}
	kick    chan struct{} // holds one

	mu   sync.Mutex
	next *questionRound // nil while no caller waits for the next round
}

// A questionRound is one question, with its answer once done is closed.
type questionRound struct {
	done chan struct{}
	at   directory.Position
	err  error
}

// join waits for the answer to a question that is put from now on.
func (q *sharedQuestion) join(ctx context.Context) (directory.Position, error) {
	q.mu.Lock()

	r := q.next
	if r == nil {
		r = &questionRound{done: make(chan struct{})}
		q.next = r
		q.kick <- struct{}{} // has room: each round is kicked once and taken once
	}

	q.mu.Unlock()

	select {
	case <-r.done:
		return r.at, r.err
	case <-ctx.Done():
		return directory.Position{}, ctx.Err()
	case <-q.closing:
		return directory.Position{}, message.ErrNotLeader
	}
}

// answer puts the question again and again, as long as callers wait.
func (q *sharedQuestion) answer(ctx context.Context, question func() (directory.Position, error)) {
	for {
		select {
		case <-q.kick:
		case <-ctx.Done():
			return
		}

		q.mu.Lock()
		r := q.next
		q.next = nil
		q.mu.Unlock()
		r.at, r.err = question()
		close(r.done)
	}
}

func newReader(m *member, t *terms) reader {
	question := func() sharedQuestion {
		return sharedQuestion{closing: m.life.closing.Done(), kick: make(chan struct{}, 1)}
	}

	return reader{
		member: m, terms: t, asked: question(), confirmed: question(), gates: map[spiffeid.ID]chan struct{}{},
	}
}
