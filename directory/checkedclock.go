package directory

import (
	"sync"
	"time"
)

// MaxStep is by how much a wall clock may depart from the machine's own count of time before the
// departure is a step (rule T2).
const MaxStep = time.Minute

// A CheckedClock is a machine's wall clock without its steps: while the wall clock differs by more
// than [MaxStep] from the machine's count of time since the last reading, the count is the time.
// Only [CheckedClock.Confirm] and [CheckedClock.Adopt] end that. A suspended
// machine counts on, so waking is no step. The nil pointer is the wall clock of [time.Now].
type CheckedClock struct {
	wall func() time.Time

	mu        sync.Mutex
	believed  time.Time     // the last time that was believed …
	counted   time.Time     // … a reading of the monotonic clock then; zero for none yet
	asleep    time.Duration // … and how long the machine had been suspended until then
	witnessed time.Time     // when an outside time last agreed with a wall clock that had made a step
}

// NewCheckedClock checks a wall clock. Nil is [time.Now].
func NewCheckedClock(wall func() time.Time) *CheckedClock {
	if wall == nil {
		wall = time.Now
	}

	return &CheckedClock{wall: wall}
}

// Wall reads the wall clock as it is.
func (c *CheckedClock) Wall() time.Time {
	if c == nil {
		return time.Now()
	}

	return c.wall()
}

// Now returns the time.
func (c *CheckedClock) Now() time.Time {
	now, _ := c.read()
	return now
}

// Step returns by how much the wall clock is ahead of Now, or behind it if negative; 0 unless it
// has made a step.
func (c *CheckedClock) Step() time.Duration {
	_, step := c.read()
	return step
}

// Confirm believes the wall clock.
func (c *CheckedClock) Confirm() {
	wall := c.wall()

	c.mu.Lock()
	defer c.mu.Unlock()
	c.believe(wall, time.Now())
	c.witnessed = time.Time{}
}

// Adopt takes the time of one that knows it, unless it is within MaxStep of Now.
func (c *CheckedClock) Adopt(at time.Time) {
	// Round(0) drops the monotonic reading, so that the wall times are compared.
	if c.Now().Round(0).Sub(at.Round(0)).Abs() <= MaxStep {
		return
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	c.believe(at, time.Now())
}

// Witness takes a time that someone outside has just stated. If the wall clock has made a step, a
// time that agrees with it confirms it.
func (c *CheckedClock) Witness(at time.Time) {
	if c.Step() == 0 || c.wall().Round(0).Sub(at.Round(0)).Abs() > MaxStep {
		return
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	c.witnessed = time.Now()
}

// Witnessed reports whether a Witness has confirmed the wall clock in the last two minutes.
func (c *CheckedClock) Witnessed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()

	return !c.witnessed.IsZero() && time.Since(c.witnessed) < 2*time.Minute
}

// ParseClockStep parses the target of an operator's word that confirms a step: a duration such as
// -1h0m0.5s.
func ParseClockStep(target string) (time.Duration, error) {
	step, err := time.ParseDuration(target)
	if err != nil || step.String() != target || step.Abs() <= MaxStep {
		return 0, Refuse(BadRequest, "a step of the clock must be a duration over %v, got %.40q", MaxStep, target)
	}

	return step, nil
}

func (c *CheckedClock) read() (now time.Time, step time.Duration) {
	if c == nil {
		return time.Now(), 0
	}

	wall := c.wall()

	c.mu.Lock()
	defer c.mu.Unlock()

	count := time.Now()
	if c.counted.IsZero() {
		c.believe(wall, count)
		return wall, 0
	}

	due := c.believed.Add(count.Sub(c.counted))
	if wall.Round(0).Sub(due).Abs() > MaxStep { // a machine that was suspended has counted more
		due = due.Add(suspended() - c.asleep)
	}

	if ahead := wall.Round(0).Sub(due); ahead.Abs() > MaxStep {
		return due, ahead
	}

	// Slow drift is followed in small pieces, so that only a sudden departure is a step.
	if count.Sub(c.counted) >= time.Second {
		c.believe(wall, count)
	}

	return wall, 0
}

// believe counts from here on. The caller holds mu.
func (c *CheckedClock) believe(at, count time.Time) {
	c.believed, c.counted, c.asleep = at.Round(0), count, suspended()
}
