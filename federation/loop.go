package federation

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// wait returns false when ctx ends first. A nil channel or a zero time is for
// ever.
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

// An alarm is a timer that can be brought forward, and that nobody puts off by doing
// so again and again.
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

// newBackoff paces what is tried again: half a second at first, with jitter, and
// never over ten, so that a mesh that was cut is whole soon after.
func newBackoff() *backoff.ExponentialBackOff {
	b := backoff.NewExponentialBackOff()
	b.MaxInterval = 10 * time.Second
	b.Reset()

	return b
}

// hand gives v to the next stage; false if ctx ends first.
func hand[T any](ctx context.Context, to chan<- T, v T) bool {
	select {
	case to <- v:
		return true
	case <-ctx.Done():
		return false
	}
}
