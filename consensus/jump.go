package consensus

import (
	"time"

	"github.com/roster-mesh/roster/consensus/state"
)

// maxJump is by how much time may run ahead of this machine's own count between
// two rounds of the sweep before it is called a jump. An election takes less.
const maxJump = 10 * time.Second

// surely is what a sweep may end at once whatever the time did: this many, and
// one in a hundred.
const surely = 1000

// A jumpWatch sees when the time that a sweep would commit jumps ahead: a clock
// was set, or the domain was down. For the sweep's goroutine alone.
type jumpWatch struct {
	t      int64     // that time at the last round, Unix milliseconds
	at     time.Time // of the last round
	jumped time.Time // when it jumped, by the clock that did; zero where it has not, or it is confirmed
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

// hasty reports whether so many must not be ended yet (rule T2): time has jumped,
// and neither have two seconds passed nor have a majority's clocks said since
// that it is so.
func (s *Store) hasty(now time.Time, expiring int) bool {
	s.mu.RLock()
	committed, held := s.state.History().Now(), s.state.Registrations().Len()
	s.mu.RUnlock()
	if !s.jumps.look(max(committed, now.UnixMilli()), now) {
		return false
	}
	since := s.jumps.jumped
	if offset, known := s.presence.offset(now, since); known && offset.Abs() <= maxOff && now.Sub(since) >= maxOff {
		s.jumps.jumped = time.Time{}
		return false
	}
	return expiring > min(surely+held/100, state.MaxLooks-1)
}
