package consensus

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
)

// A presenceWord is what a follower tells its leader now and then, and a
// presenceAnswer is how far the leader is. So the follower knows whether it has
// caught up, which Raft does not tell it, and each knows whether the follower's clock
// is right.
type presenceWord struct {
	Time int64 `cbor:"1,keyasint"` // Unix milliseconds, by its clock
}

type presenceAnswer struct {
	Epoch    uint64 `cbor:"1,keyasint"`
	Revision uint64 `cbor:"2,keyasint"`
	// Time is when the leader answered (Unix milliseconds), if its own clock is known to be
	// right.
	Time int64 `cbor:"3,keyasint,omitempty"`

	presenceNext
}

// catchUpPause is between a follower's words until it has caught up.
const catchUpPause = 50 * time.Millisecond

// presenceLoop speaks to the leader at intervals, and at once to a new one.
func (s *Store) presenceLoop() {
	elected, deaf := s.elections()
	defer deaf()
	for {
		pause := s.cfg.Timing.Presence
		if !s.leading.Load() {
			s.caughtUp.Store(s.announcePresence())
			if s.caughtUp.Load() {
				s.arrive()
			} else {
				pause = catchUpPause
			}
		}
		select {
		case <-time.After(pause):
		case <-elected:
		case <-s.closing.Done():
			return
		}
	}
}

// announcePresence asks how far the leader is and waits a little for this member
// to get there.
func (s *Store) announcePresence() bool {
	leader, tenure, ok := s.follow()
	if !ok || leader.ID == s.cfg.Node {
		return false
	}
	ctx, cancel := context.WithTimeout(tenure, s.cfg.Timing.Presence) // a successor waits to hear of this clock
	defer cancel()
	var a presenceAnswer
	began := s.cfg.clock()
	if err := s.post(ctx, leader, presencePath, &presenceWord{began.UnixMilli()}, &a); err != nil {
		return false
	}
	s.judgeClock(began, a.Time)
	if a.Epoch == 0 {
		return false // the leader reads its own log again, or there is no history yet
	}
	at := directory.Position{Epoch: a.Epoch, Revision: a.Revision}
	s.checkSeal(at)
	_ = s.Await(ctx, at)
	return !s.Position().Before(at)
}

// A follower's clock is wrong beyond twice what rule T2 lets each be off, and right again
// a little below: one that drifts past the bound isn't ready now and then. A new leader
// can't say at once what time it is: what was said before counts meanwhile.
const (
	clockWrong = 2 * maxOff
	clockRight = clockWrong - maxOff/8
	clockKept  = 30 * time.Second
)

// judgeClock notes whether this member's clock is wrong, by what its leader said between
// began and now (Unix milliseconds, 0 for nothing).
func (s *Store) judgeClock(began time.Time, leader int64) {
	if leader == 0 {
		if said := s.clockSaid.Load(); said == nil || time.Since(*said) >= clockKept {
			s.clockOff.Store(0)
		}
		return
	}
	bound := clockWrong
	if s.clockOff.Load() != 0 {
		bound = clockRight
	}
	off := clockOff(began, s.cfg.clock(), leader)
	if off.Abs() <= bound {
		off = 0
	}
	said := time.Now()
	s.clockOff.Store(int64(off))
	s.clockSaid.Store(&said)
}

// clockOff returns by how much at least this member's clock is ahead of its leader's, who
// said what time it was between began and now.
func clockOff(began, now time.Time, leader int64) time.Duration {
	off := now.Round(0).Sub(time.UnixMilli(leader))
	if took := now.Sub(began); off > 0 {
		off = max(0, off-took)
	}
	return off
}

// A leader's clock may differ by maxOff from its members' (rule T2).
const maxOff = 2 * time.Second

// presence is what a leader knows of its followers.
type presence struct {
	fresh  time.Duration              // how long a word counts
	voters func() (o []Member, m int) // the other voters, and how many of them make a majority with this member

	mu   sync.Mutex
	seen map[spiffeid.ID]sighting
	last time.Time // when this member's own clock was last read here
}

type sighting struct {
	at     time.Time
	offset time.Duration // its clock less ours
}

// note takes a follower's word of its clock at now by ours.
func (p *presence) note(id spiffeid.ID, clock, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.read(now)
	p.seen[id] = sighting{now, clock.Sub(now)}
}

// read forgets what was seen by a clock that has since been set.
func (p *presence) read(now time.Time) {
	if step := now.Round(0).Sub(p.last.Round(0)) - now.Sub(p.last); step.Abs() > maxOff {
		clear(p.seen)
	}
	p.last = now
}

// offset returns by how much a majority's clocks are ahead of ours in the
// median, or false when too few of them are known. What was heard before since
// does not count; nor what is not fresh.
func (p *presence) offset(now, since time.Time) (time.Duration, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.read(now)
	others, more := p.voters()
	offsets := []time.Duration{0}
	for _, m := range others {
		if s, ok := p.seen[m.ID]; ok && now.Sub(s.at) <= p.fresh && !s.at.Before(since) {
			offsets = append(offsets, s.offset)
		}
	}
	slices.Sort(offsets)
	return offsets[(len(offsets)-1)/2], len(offsets)-1 >= more
}

// off reports whether our clock is known to be wrong.
func (p *presence) off(now time.Time) bool {
	offset, known := p.offset(now, time.Time{})
	return known && offset.Abs() > maxOff
}

func (p *presence) lastHeard(id spiffeid.ID) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen[id].at
}

// forget forgets what an earlier term knew.
func (p *presence) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.seen)
}

// stamp returns the time for a log entry in Unix milliseconds. A leader that
// does not know a majority's clocks, or is too far off them, stamps nothing
// (rule T2).
func (s *Store) stamp() (int64, error) {
	now := s.cfg.clock()
	offset, known := s.presence.offset(now, time.Time{})
	if !known || offset.Abs() > maxOff {
		return 0, fmt.Errorf("%w: its clock is not known to be right", errNotLeader)
	}
	return now.UnixMilli(), nil
}
