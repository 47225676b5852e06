package federation

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// wait waits for the channel or the time, and returns false if ctx ends first. A nil channel
// or a zero time never ends the wait.
func wait(ctx context.Context, c <-chan struct{}, d time.Duration) bool {
	var after <-chan time.Time
	if d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		after = t.C
	}

	select {
	case <-ctx.Done():
		return false
	case <-c:
	case <-after:
	}

	return true
}

// An alarm is a timer that can be brought forward. Repeated calls of sooner don't postpone it.
type alarm struct {
	*time.Timer
	at time.Time
}

func newAlarm(d time.Duration) *alarm { return &alarm{time.NewTimer(d), time.Now().Add(d)} }

func (a *alarm) set(d time.Duration) {
	a.at = time.Now().Add(d)
	a.Reset(d)
}

func (a *alarm) sooner(d time.Duration) {
	if time.Until(a.at) > d {
		a.set(d)
	}
}

// newBackoff returns the pace of retries: half a second at first, with jitter, and at most ten
// seconds before jitter, so that a partitioned mesh heals quickly.
func newBackoff() *backoff.ExponentialBackOff {
	b := backoff.NewExponentialBackOff()
	b.MaxInterval = 10 * time.Second
	b.Reset()

	return b
}
