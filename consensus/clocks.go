package consensus

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/roster-mesh/roster/consensus/message"
	"github.com/roster-mesh/roster/consensus/state"
	"github.com/roster-mesh/roster/directory"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// clocks know whether this member's clock is right: as a leader by its followers' clocks,
// as a follower by its leader's (rule T2).
type clocks struct {
	cfg      *Config
	replica  *Replica
	presence presence
	jumps    jumpWatch
	agreed   agreement
	keeps    atomic.Bool  // the domain's time: this member has stamped, or has the time from another
	corrects atomic.Bool  // as a leader it has confirmed a step back that is not in the log yet
	ordered  atomic.Int64 // the step of this leader's clock that an operator has confirmed; 0 for none

	// Of a follower: the error of its clock, 0 within the bound, and when a leader last sent
	// its time, nil for never.
	clockOff  atomic.Int64
	clockSaid atomic.Pointer[time.Time]
}

// A ClockState is how a member's clock differs from the domain's time.
type ClockState struct {
	// Skew is by how much at least a follower's clock is ahead of its leader's, or behind it if
	// negative, while that is too much to serve; else 0.
	Skew time.Duration
	// Step is by how much the machine's clock is ahead of the domain's time, or behind it if
	// negative, since a step that nothing has confirmed; else 0.
	Step time.Duration
	// Behind is by how much a leader's clock is behind the committed time, if that is more than the
	// clocks of two leaders may differ; else 0.
	Behind time.Duration
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
	committed := c.replica.committed()
	if !c.jumps.look(max(committed, now.UnixMilli()), now) {
		return false
	}

	since := c.jumps.jumped
	if offset, known := c.presence.offset(now, since); known && offset.Abs() <= maxOff && now.Sub(since) >= maxOff {
		c.jumps.jumped = time.Time{}
		return false
	}

	held := ask(c.replica, func(s *state.State) int { return s.Registrations().Len() })

	return expiring > min(alwaysAllowed+held/100, state.MaxLooks-1)
}

// judgeClock notes whether this member's clock is wrong, by the time that its leader
// reported between began and now (Unix milliseconds, 0 for none).
func (c *clocks) judgeClock(began time.Time, leader int64) {
	// A new leader gives no time before it knows a majority's clocks, so the last judgement holds for clockKept.
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

// stamp returns the time for a log entry in Unix milliseconds.
func (c *clocks) stamp() (int64, error) {
	_, now, err := c.read()
	return now.UnixMilli(), err
}

// read returns the wall clock of a leader and the domain's time. A leader that does not know a
// majority's clocks, or is too far off them, stamps nothing (rule T2).
func (c *clocks) read() (wall, now time.Time, err error) {
	wall = c.cfg.clock()

	offset, known := c.presence.offset(wall, time.Time{})
	if !known || offset.Abs() > maxOff {
		return wall, time.Time{}, fmt.Errorf("%w: its clock is not confirmed by a majority", message.ErrNotLeader)
	}

	c.keeps.Store(true)

	return wall, c.guarded(), nil
}

// guarded returns the time, never before the committed one by a step that this leader hasn't
// confirmed: the machines of a domain may all start with clocks that are behind.
func (c *clocks) guarded() time.Time {
	now, committed := c.cfg.Clock.Now(), c.committed()
	if committed.Sub(now.Round(0)) <= directory.MaxStep {
		c.corrects.Store(false)
		return now
	}

	if c.corrects.Load() {
		return now
	}

	c.cfg.Clock.Adopt(committed)

	return committed
}

// committed returns the time of the last entry.
func (c *clocks) committed() time.Time { return time.UnixMilli(c.replica.committed()) }

// hear notes a follower's word on its clock. A leader that has just started, and hasn't seen a
// step of the clocks therefore, takes the time from a follower that keeps it.
func (c *clocks) hear(from spiffeid.ID, request *message.PresenceRequest) {
	if request.Kept != 0 && !c.keeps.Load() {
		c.keep(request.Kept)
	}

	c.presence.note(from, time.UnixMilli(request.Time), c.cfg.clock())
}

// keep takes the domain's time from another member (Unix milliseconds, 0 for unknown).
func (c *clocks) keep(at int64) {
	if at != 0 {
		c.cfg.Clock.Adopt(time.UnixMilli(at))
		c.keeps.Store(true)
	}
}

// presenceRequest returns this member's word on its clock, for its leader.
func (c *clocks) presenceRequest(now time.Time) *message.PresenceRequest {
	request := &message.PresenceRequest{Time: now.UnixMilli()}
	if c.keeps.Load() {
		request.Kept = c.cfg.Clock.Now().UnixMilli()
	}

	return request
}

// mayConfirm returns the step of this leader's clock, if it is the one that an operator names.
func (c *clocks) mayConfirm(said time.Duration) (time.Duration, error) {
	step := c.step()

	switch {
	case step == 0:
		return 0, directory.Refuse(directory.Conflict, "the clock of the leader, %s, has made no step that waits to "+
			"be confirmed; nothing was changed", c.cfg.Node)
	case (step - said).Abs() > directory.MaxStep:
		return 0, directory.Refuse(directory.Conflict, "the clock of the leader, %s, has made a step of %v, not of "+
			"%v; nothing was changed", c.cfg.Node, step.Round(time.Second), said)
	}

	return step, nil
}

// order notes that an operator has confirmed a step of this leader's clock.
func (c *clocks) order(step time.Duration) { c.ordered.Store(int64(step)) }

// review confirms a step of this leader's clock once something outside the step does: an operator, the
// time of a peer, or all members' clocks for agreeFor. It reports whether that is now. For the sweep's
// goroutine alone.
func (c *clocks) review(wall time.Time) bool {
	step := c.step()

	// An order counts for one round, so that it confirms no later step.
	ordered := time.Duration(c.ordered.Swap(0))

	if step == 0 {
		c.agreed = agreement{}
		return false
	}

	if !c.agreed.look(step, c.presence.agree(wall)) && !c.cfg.Clock.Witnessed() &&
		(ordered == 0 || (step-ordered).Abs() > maxOff) {
		return false
	}

	c.agreed = agreement{}
	c.corrects.Store(step < 0)
	c.cfg.Clock.Confirm()

	return true
}

// step returns by how much this machine's clock is ahead of the domain's time, or behind it if
// negative, since a step that nothing has confirmed; else 0.
func (c *clocks) step() time.Duration { return c.cfg.Clock.Step() }

// behind returns by how much this member's clock is behind the committed time, if that is more
// than leaders' clocks may differ; else 0.
func (c *clocks) behind() time.Duration {
	if behind := c.committed().Sub(c.cfg.clock().Round(0)); behind > maxOff {
		return behind
	}

	return 0
}

// An agreement is how long all members' clocks have agreed on a step.
type agreement struct {
	step  time.Duration
	since time.Time // zero if they don't
}

// agreeFor is how long all members' clocks must agree on a step, if nothing else confirms it.
const agreeFor = 10 * time.Minute

// look takes a round's step and whether all members' clocks agree, and returns whether they have
// agreed for long enough.
func (a *agreement) look(step time.Duration, agree bool) bool {
	now := time.Now()

	switch {
	case !agree:
		*a = agreement{}
	case a.since.IsZero() || (step-a.step).Abs() > maxOff:
		*a = agreement{step, now}
	}

	return !a.since.IsZero() && now.Sub(a.since) >= agreeFor
}

// clockOff returns by how much at least this member's clock is ahead of its leader's,
// which was read between began and now.
func clockOff(began, now time.Time, leader int64) time.Duration {
	off := now.Round(0).Sub(time.UnixMilli(leader))

	// The leader has read its clock during the exchange, so up to its length this clock may seem ahead.
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
	// A wall clock that moves by more than the monotonic count was set.
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

	// This member counts as well, with an offset of 0.
	offsets := []time.Duration{0}
	for _, m := range others {
		if s, ok := p.seen[m.ID]; ok && now.Sub(s.at) <= p.fresh && !s.at.Before(since) {
			offsets = append(offsets, s.offset)
		}
	}

	slices.Sort(offsets)

	return offsets[(len(offsets)-1)/2], len(offsets)-1 >= more
}

// agree reports whether all members with recent readings, and a majority, have our clock's time.
func (p *presence) agree(now time.Time) bool {
	_, known := p.offset(now, time.Time{})

	p.mu.Lock()
	defer p.mu.Unlock()

	for _, reading := range p.seen {
		if now.Sub(reading.at) <= p.fresh && reading.offset.Abs() > maxOff {
			return false
		}
	}

	return known
}

// off reports whether our clock is known to be wrong.
func (p *presence) off(now time.Time) bool {
	offset, known := p.offset(now, time.Time{})
	return known && offset.Abs() > maxOff
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
		// The monotonic count does not follow a clock that is set.
		elapsed = time.Since(j.at)
	}

	switch ahead := time.Duration(t-j.t)*time.Millisecond - elapsed; {
	case ahead > maxJump:
		j.jumped = now
	case ahead < -maxJump:
		// The clock was put right.
		j.jumped = time.Time{}
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
