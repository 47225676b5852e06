package consensus

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
)

// Linearize returns nil once this member shows all that any member had
// acknowledged before the call: a read of the index behind it is linearizable.
// It writes no log entry, and those who call at once share one exchange. Where
// no majority of the domain is in reach it fails with Unavailable: at once where
// no leader is known, and otherwise after a heartbeat's timeout at the latest;
// a member that is only behind gets Timing.Write to catch up.
func (s *Store) Linearize(ctx context.Context) error {
	if err := s.failure(); err != nil {
		return directory.Refuse(directory.Unavailable, "this node has stopped applying changes; use another: %w", err)
	}
	if s.isSealed() {
		return errSealed
	}
	at, err := s.readPosition(ctx)
	if err == nil && s.Position().Before(at) {
		bound, cancel := context.WithTimeout(ctx, s.cfg.Timing.Write)
		defer cancel()
		err = s.Await(bound, at)
	}
	if err != nil {
		return directory.Refuse(directory.Unavailable, "no majority of the domain's nodes confirms now what this node has; ask again, or ask for less consistency: %w", err)
	}
	return nil
}

// readPosition returns a position that has all that was acknowledged before the
// call. Who leads may be unclear for a moment, so it tries for as long as a
// question may take.
func (s *Store) readPosition(ctx context.Context) (directory.Position, error) {
	began := time.Now()
	for {
		question := &s.asked
		if s.leading.Load() {
			question = &s.confirmed
		}
		at, err := question.join(ctx)
		if err == nil || errors.Is(err, errNoLeader) || ctx.Err() != nil || time.Since(began) > s.cfg.Timing.Heartbeat-retryPause {
			return at, err
		}
		select {
		case <-time.After(retryPause):
		case <-ctx.Done():
			return at, err
		case <-s.closing.Done():
			return at, err
		}
	}
}

// Await waits until this member has applied a position of its domain's history.
// It returns ctx's error when that ends first.
func (s *Store) Await(ctx context.Context, at directory.Position) error {
	for {
		changed := s.Changed()
		if !s.Position().Before(at) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		case <-s.closing.Done():
			return errors.New("this member is stopping")
		}
	}
}

// A shared question is put once for all who ask it before it is put, and once
// more for those who come later: an answer that was under way already may be
// older than what they must see.
type shared struct {
	closing <-chan struct{}
	kick    chan struct{} // holds one

	mu   sync.Mutex
	next *round // nil while nobody has asked since the last was put
}

// A round is one question and its answer, which is there once done is closed.
type round struct {
	done chan struct{}
	at   directory.Position
	err  error
}

// join waits for the answer to a question that is put from now on.
func (q *shared) join(ctx context.Context) (directory.Position, error) {
	q.mu.Lock()
	r := q.next
	if r == nil {
		r = &round{done: make(chan struct{})}
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
		return directory.Position{}, errNotLeader
	}
}

// answer puts the question again and again, as long as somebody asks.
func (q *shared) answer(ctx context.Context, question func() (directory.Position, error)) {
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

// A readWord asks the leader how far a linearizable read must see; it answers
// with a presenceAnswer.
type readWord struct{}

// askLeader is a follower's question: the leader confirms that it leads and says
// how far it is.
func (s *Store) askLeader() (directory.Position, error) {
	leader, ok := s.leader()
	switch {
	case !ok:
		return directory.Position{}, errNoLeader
	case leader.ID == s.cfg.Node:
		return directory.Position{}, errNotYet
	}
	ctx, cancel := context.WithTimeout(s.closing, s.cfg.Timing.Heartbeat)
	defer cancel()
	var a presenceAnswer
	err := s.post(ctx, leader, readPath, &readWord{}, &a)
	return directory.Position{Epoch: a.Epoch, Revision: a.Revision}, err
}

// A reign is what a leader's reads stand on: an entry of its term is committed,
// so that its commit index covers all earlier terms.
type reign struct {
	term    atomic.Uint64 // in which that is so
	applied atomic.Uint64 // index of the last entry that is applied, as far as known; every command raises it
}

func (r *reign) raise(index uint64) {
	for {
		old := r.applied.Load()
		if old >= index || r.applied.CompareAndSwap(old, index) {
			return
		}
	}
}

// barrier waits until all earlier terms are applied here, by an entry of this
// term.
func (s *Store) barrier() error {
	term, last := s.raft.CurrentTerm(), s.raft.LastIndex()
	if err := s.raft.Barrier(enqueueTimeout).Error(); err != nil {
		return err
	}
	if s.raft.CurrentTerm() != term {
		return errNotLeader
	}
	s.reads.raise(last)
	s.reads.term.Store(term)
	return nil
}

// confirm is a leader's question: is it still the leader? First the commit
// index, then a majority's word that it knows of no later term, each asked after
// the question was put; then all up to that index is applied here.
//
// raft.VerifyLeader does not do: it takes a member's answer to any heartbeat, one
// that was sent long before too. A leader that was stopped for a while finds such
// answers waiting for it.
func (s *Store) confirm() (directory.Position, error) {
	term := s.reads.term.Load()
	if !s.leading.Load() || s.raft.CurrentTerm() != term {
		return directory.Position{}, errNotLeader
	}
	index := s.raft.CommitIndex()
	ctx, cancel := context.WithTimeout(s.closing, s.cfg.Timing.Heartbeat)
	defer cancel()
	if err := s.poll(ctx, term); err != nil {
		return directory.Position{}, err
	}
	if s.raft.CurrentTerm() != term {
		return directory.Position{}, errNotLeader
	}
	if err := s.awaitIndex(ctx, index); err != nil {
		return directory.Position{}, err
	}
	return s.Position(), nil
}

// errNoMajority says that a leader's term is not confirmed by a majority.
var errNoMajority = errors.New("a majority of the domain's members does not answer in this term")

// A termWord asks a member which term it is in.
type termWord struct {
	Term uint64 `cbor:"1,keyasint"` // the leader's
}

type termAnswer struct {
	Term uint64 `cbor:"1,keyasint"`
}

// poll returns nil once a majority of the voters has said, asked from now on,
// that it is in this term. Who says so has not voted for a later leader yet.
func (s *Store) poll(ctx context.Context, term uint64) error {
	others, missing := s.voters()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answers := make(chan bool, len(others))
	for _, m := range others {
		gate := s.gate(m.ID)
		s.loops.Go(func() { answers <- s.inTerm(ctx, gate, m, term) })
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

// inTerm asks one member for its term. Only one question to a member is under
// way at a time; it is not broken off when ctx ends, which only ends the waiting
// for its turn.
func (s *Store) inTerm(ctx context.Context, gate chan struct{}, m Member, term uint64) bool {
	select {
	case gate <- struct{}{}:
	case <-ctx.Done():
		return false
	}
	defer func() { <-gate }()
	own, cancel := context.WithTimeout(s.closing, s.cfg.Timing.Heartbeat)
	defer cancel()
	var a termAnswer
	return s.post(own, m, termPath, &termWord{term}, &a) == nil && a.Term == term
}

// gate returns what holds one question to a member. For the goroutine that
// confirms alone.
func (s *Store) gate(id spiffeid.ID) chan struct{} {
	g := s.gates[id]
	if g == nil {
		g = make(chan struct{}, 1)
		s.gates[id] = g
	}
	return g
}

// voters returns the other voting members, and how many of them make a majority
// together with this one.
func (s *Store) voters() (others []Member, majority int) {
	all := 0
	for _, server := range s.raft.GetConfiguration().Configuration().Servers {
		if server.Suffrage != raft.Voter {
			continue
		}
		all++
		if id, err := spiffeid.FromString(string(server.ID)); err == nil && id != s.cfg.Node {
			others = append(others, Member{id, string(server.Address)})
		}
	}
	return others, all/2 + 1 - (all - len(others))
}

// awaitIndex waits until all commands up to a committed index are applied here.
// Only commands reach the machine, so the last one at or before it counts.
func (s *Store) awaitIndex(ctx context.Context, index uint64) error {
	var entry raft.Log
	for ; index > s.reads.applied.Load(); index-- {
		if err := s.disk.Logs.GetLog(index, &entry); err != nil {
			return fmt.Errorf("look at log entry %d: %w", index, err)
		}
		if entry.Type == raft.LogCommand {
			break
		}
	}
	for {
		changed := s.Changed()
		if s.reads.applied.Load() >= index {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
