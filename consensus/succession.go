package consensus

import (
	"context"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// A leader that is killed breaks its connections. One that is stopped, as by SIGSTOP or
// with its machine, says nothing and breaks nothing: who has asked it something waits
// until its time is over, unless the others' choice of a successor ends that.

// A tenure is the time for which this member follows one leader.
type tenure struct {
	mu     sync.Mutex
	leader spiffeid.ID
	over   context.Context // ends with it
	end    context.CancelFunc
}

// follow returns the leader, and what ends once this member follows another. What
// nobody has to answer any more then is asked within that: how far the leader is, and for a
// connection. A write that was sent may be done, and is answered or not: successionLoop
// decides.
func (s *Store) follow() (leader Member, tenure context.Context, ok bool) {
	t := &s.tenure
	t.mu.Lock()
	defer t.mu.Unlock()
	leader, ok = s.leader()
	if ok && (t.over == nil || t.leader != leader.ID) {
		if t.end != nil {
			t.end()
		}
		t.leader = leader.ID
		t.over, t.end = context.WithCancel(s.closing)
	}
	return leader, t.over, ok
}

// successionLoop ends the waiting for those that lead no more, at once or with a write
// after as long as a member that stops has for its last answers (see shutdown). By
// then one that runs has answered: it learns that it leads no more as soon as it hears
// of the others, or when its lease is over. So writes that went to a leader which is
// stopped have an unknown outcome soon after there is another, and those behind them go
// to that one.
func (s *Store) successionLoop() {
	elected, deaf := s.elections()
	defer deaf()
	for {
		select {
		case <-elected:
		case <-s.closing.Done():
			return
		}
		if _, _, ok := s.follow(); !ok {
			continue
		}
		select {
		case <-time.After(s.cfg.Timing.Heartbeat):
		case <-s.closing.Done():
			return
		}
		s.hangUp()
	}
}

// hangUp cuts the lines to all but the leader.
func (s *Store) hangUp() {
	select {
	case s.lines.dialing <- struct{}{}:
	case <-s.closing.Done():
		return
	}
	defer func() { <-s.lines.dialing }()
	leader, ok := s.leader()
	for id, l := range s.lines.own {
		if ok && id != leader.ID {
			l.cut()
			delete(s.lines.own, id)
		}
	}
}

// elections returns what holds one where another leader is known since it was looked
// at, or none, and what ends that.
func (s *Store) elections() (elected <-chan raft.Observation, deaf func()) {
	c := make(chan raft.Observation, 1)
	observer := raft.NewObserver(c, false, func(o *raft.Observation) bool {
		_, ok := o.Data.(raft.LeaderObservation)
		return ok
	})
	s.raft.RegisterObserver(observer)
	return c, func() { s.raft.DeregisterObserver(observer) }
}
