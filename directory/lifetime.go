package directory

import (
	"strconv"
	"sync"
	"time"
)

// Lifetimes in seconds (jimenez 4.1).
const (
	MinLifetime     = 60
	DefaultLifetime = 86400
	MaxLifetime     = 604800 // the default of the largest lifetime that is granted
)

// Skew is how long an expired registration is remembered after its deadline, so that peers
// whose clocks differ agree on its end (rules G4, T4).
const Skew = 60 * time.Second

// ParseLifetime parses a requested lifetime in seconds; an empty text is def. The directory
// may grant less.
func ParseLifetime(s string, def uint32) (uint32, error) {
	if s == "" {
		return def, nil
	}

	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil || n < MinLifetime {
		return 0, Refuse(BadLifetime, "lt must be a whole number of seconds from %d to 4294967295, got %q",
			MinLifetime, s)
	}

	return uint32(n), nil
}

// Deadline returns the end, in Unix seconds, of a lifetime that was granted at t, in Unix
// milliseconds (rule T1).
func Deadline(t int64, lifetime uint32) int64 { return t/1000 + int64(lifetime) }

// AnnounceBefore returns how many seconds before an announced deadline a later one is
// announced (rule X2).
func AnnounceBefore(lifetime uint32) int64 { return max(int64(lifetime)/4, 15) }

// A Clock is a reader's time for one origin (rule T4): the wall clock, but never behind the
// latest verified time of the origin plus the monotonic time since. So a node with a slow
// clock serves no registration past a deadline that it could know of. The zero value is the
// wall clock.
type Clock struct {
	Checked *CheckedClock // the wall clock; nil is that of time.Now

	mu       sync.Mutex
	floor    time.Time // verified time of the origin …
	received time.Time // … and the local time at which it was received
}

// Advance raises the clock to at least at, a time of the origin.
func (c *Clock) Advance(at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()

	if now := time.Now(); at.After(c.reached(now)) {
		c.floor, c.received = at, now
	}
}

// Now returns the best estimate of the origin's time.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()

	now := c.Checked.Now()
	if r := c.reached(time.Now()); r.After(now) {
		return r
	}

	return now
}

// Correct sets the clock to at, a time of the origin before the one that it has stated.
func (c *Clock) Correct(at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.floor, c.received = at, time.Now()
}

func (c *Clock) reached(now time.Time) time.Time {
	if c.received.IsZero() {
		return time.Time{}
	}

	return c.floor.Add(now.Sub(c.received)) // monotonic: a step of the wall clock is not seen
}
