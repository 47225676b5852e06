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

// Skew is how long after a deadline what is dead is still remembered, so that
// peers whose clocks differ agree on its end (rules G4, T4).
const Skew = 60 * time.Second

// ParseLifetime parses a requested lifetime in seconds; an empty text is def.
// The result may be longer than what is granted.
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

// Deadline returns when a lifetime that was granted at t (Unix milliseconds)
// ends, in Unix seconds (rule T1).
func Deadline(t int64, lifetime uint32) int64 { return t/1000 + int64(lifetime) }

// AnnounceBefore returns how long before an announced deadline a later one is
// announced, in seconds (rule X2).
func AnnounceBefore(lifetime uint32) int64 { return max(int64(lifetime)/4, 15) }

// A Clock is a reader's time for one origin (rule T4): the wall clock, but never
// behind the origin's last verified word carried on by monotonic time. So a node
// whose clock is slow serves nothing past a deadline that it could have known.
// The zero value is the wall clock.
type Clock struct {
	mu    sync.Mutex
	floor time.Time // the origin's word …
	heard time.Time // … and when this node had it
}

// Advance takes the origin's word that it was t.
func (c *Clock) Advance(at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()

	if now := time.Now(); at.After(c.reached(now)) {
		c.floor, c.heard = at, now
	}
}

// Now returns the origin's time as this node can best know it.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()

	now := time.Now()
	if r := c.reached(now); r.After(now) {
		return r
	}

	return now
}

// Floor returns what Now is at least, whatever the wall clock says.
func (c *Clock) Floor() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.reached(time.Now())
}

func (c *Clock) reached(now time.Time) time.Time {
	if c.heard.IsZero() {
		return time.Time{}
	}

	return c.floor.Add(now.Sub(c.heard)) // monotonic: a step of the wall clock is not seen
}
