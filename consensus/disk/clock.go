package disk

import (
	"sync"
	"time"
)

// An AppendClock times appends to the log. Raft makes one at a time.
type AppendClock struct {
	slow time.Duration // longer appends are slow

	mu    sync.Mutex
	begun time.Time // of the append under way; zero where none is
	first time.Time // begin of the current row of slow appends; zero if the last was not slow
	last  time.Time // when the last of them ended
}

func (c *AppendClock) time(write func() error) error {
	c.mu.Lock()
	c.begun = time.Now()
	c.mu.Unlock()
	err := write()
	c.mu.Lock()
	defer c.mu.Unlock()

	switch now := time.Now(); {
	case now.Sub(c.begun) <= c.slow:
		c.first = time.Time{}
	case c.first.IsZero():
		c.first, c.last = c.begun, now
	default:
		c.last = now
	}

	c.begun = time.Time{}

	return err
}

// Slow returns how long appends have been slow without a break, as far as they
// are known to, and how long the one under way takes by now.
func (c *AppendClock) Slow(now time.Time) (row, current time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()

	if !c.begun.IsZero() {
		current = now.Sub(c.begun)
	}

	switch {
	case current <= c.slow && c.first.IsZero():
		return 0, current
	case current <= c.slow:
		return c.last.Sub(c.first), current
	case c.first.IsZero():
		return current, current
	}

	return now.Sub(c.first), current
}
