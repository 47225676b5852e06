package consensus

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/roster-mesh/roster/consensus/message"
	"github.com/roster-mesh/roster/consensus/state"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// clocks know whether this member's clock is right: as a leader by its followers' clocks,
// as a follower by its leader's (rule T2).
type clocks struct {
	cfg      *Config
	replica  *Replica
	presence presence
	jumps    jumpWatch

	// Of a follower: the error of its clock, 0 within the bound, and when a leader last sent
	// its time, nil for never.
	clockOff  atomic.Int64
	clockSaid atomic.Pointer[time.Time]
}

func newClocks(cfg *Config, replica *Replica, voters func() ([]Member, int)) *clocks {
	return &clocks{cfg: cfg, replica: replica, presence: presence{
		fresh: 10 * cfg.Timing.Presence, voters: voters, seen: map[spiffeid.ID]clockReading{},
	}}
}

// mustConfirmJump reports whether this number of registrations must not be ended yet (rule T2):
// time has jumped, and since then either two seconds have not passed or a majority's clocks
// have not confirmed it.
func (c *clocks) mustConfirmJump(now time.Time, expiring int) bool {
	c.replica.mu.RLock()
	committed := c.replica.state.History().Now()
	held := c.replica.state.Registrations().Len()
	c.replica.mu.RUnlock()

	if !c.jumps.look(max(committed, now.UnixMilli()), now) {
		return false
	}

	since := c.jumps.jumped
	if offset, known := c.presence.offset(now, since); known && offset.Abs() <= maxOff && now.Sub(since) >= maxOff {
		c.jumps.jumped = time.Time{}
		return false
	}

	return expiring > min(alwaysAllowed+held/100, state.MaxLooks-1)
}

// judgeClock notes whether this member's clock is wrong, by the time that its leader
// reported between began and now (Unix milliseconds, 0 for none).
func (c *clocks) judgeClock(began time.Time, leader int64) {
	if leader == 0 {
		if said := c.clockSaid.Load(); said == nil || time.Since(*said) >= clockKept {
			c.clockOff.Store(0)
		}

		return
	}

	bound := clockWrong
	if c.clockOff.Load() != 0 {
		bound = clockRight
	}

	off := clockOff(began, c.cfg.clock(), leader)
	if off.Abs() <= bound {
		off = 0
	}

	said := time.Now()
	c.clockOff.Store(int64(off))
	c.clockSaid.Store(&said)
}

// stamp returns the time for a log entry in Unix milliseconds. A leader that does not
// know a majority's clocks, or is too far off them, stamps nothing (rule T2).
func (c *clocks) stamp() (int64, error) {
	now := c.cfg.clock()

	offset, known := c.presence.offset(now, time.Time{})
	if !known || offset.Abs() > maxOff {
		return 0, fmt.Errorf("%w: its clock is not confirmed by a majority", message.ErrNotLeader)
	}

	return now.UnixMilli(), nil
}

// clockOff returns by how much at least this member's clock is ahead of its leader's,
// which was read between began and now.
func clockOff(began, now time.Time, leader int64) time.Duration {
	off := now.Round(0).Sub(time.UnixMilli(leader))
	if took := now.Sub(began); off > 0 {
		off = max(0, off-took)
	}

	return off
}

// A leader's clock may differ by maxOff from its members' (rule T2).
const maxOff = 2 * time.Second

// presence is a leader's knowledge of its followers' clocks.
type presence struct {
	fresh  time.Duration              // how long a word counts
	voters func() (o []Member, m int) // the other voters, and how many of them make a majority with this member

	mu   sync.Mutex
	seen map[spiffeid.ID]clockReading
	last time.Time // when this member's own clock was last read here
}

type clockReading struct {
	at     time.Time
	offset time.Duration // its clock less ours
}

// note takes a follower's word of its clock at now by ours.
func (p *presence) note(id spiffeid.ID, clock, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.read(now)
	p.seen[id] = clockReading{now, clock.Sub(now)}
}

// read forgets readings that were taken before our clock was set.
func (p *presence) read(now time.Time) {
	if step := now.Round(0).Sub(p.last.Round(0)) - now.Sub(p.last); step.Abs() > maxOff {
		clear(p.seen)
	}

	p.last = now
}

// offset returns by how much a majority's clocks are ahead of ours in the median; false
// if too few are known. Readings before since, and old ones, do not count.
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

// forget forgets the readings of an earlier term.
func (p *presence) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.seen)
}

// maxJump is by how much time may run ahead of this machine's own count between
// two rounds of the sweep before it is called a jump. An election takes less.
const maxJump = 10 * time.Second

// alwaysAllowed is the number of registrations that a sweep may end after an unconfirmed
// jump, in addition to one in a hundred.
const alwaysAllowed = 1000

// A jumpWatch sees when the time that a sweep would commit jumps ahead: a clock
// was set, or the domain was down. For the sweep's goroutine alone.
type jumpWatch struct {
	t      int64     // that time at the last round, Unix milliseconds
	at     time.Time // of the last round
	jumped time.Time // when it jumped, by the clock that did; zero if it has not, or it is confirmed
}

// look takes a round's time, and returns whether there is a jump to be confirmed.
func (j *jumpWatch) look(t int64, now time.Time) bool {
	elapsed := time.Duration(0)
	if !j.at.IsZero() {
		elapsed = time.Since(j.at)
	}

	switch ahead := time.Duration(t-j.t)*time.Millisecond - elapsed; {
	case ahead > maxJump:
		j.jumped = now
	case ahead < -maxJump:
		j.jumped = time.Time{} // the clock was put right
	}

	j.t, j.at = t, time.Now()

	return !j.jumped.IsZero()
}

// A follower's clock is wrong beyond twice the offset that rule T2 allows each clock, and right
// again a little below that, so that a drifting clock doesn't alternate between ready and not
// ready. A new leader can't send its time at once, so the last result counts meanwhile.
const (
	clockWrong = 2 * maxOff
	clockRight = clockWrong - maxOff/8
	clockKept  = 30 * time.Second
)
