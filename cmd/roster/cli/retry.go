package cli

import (
	"context"
	"math/rand/v2"
	"time"
)

// The shortest and the longest pause between two attempts of a long-running command while
// the directory is unreachable.
const (
	FirstRetry = time.Second
	LastRetry  = 30 * time.Second
)

// Pause waits for d. It reports false if ctx ended before that.
func Pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()

	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// PauseWithJitter waits for half of d to one and a half times d, so that clients of one
// directory don't return at the same moment. It reports false if ctx ended before that.
func PauseWithJitter(ctx context.Context, d time.Duration) bool {
	return Pause(ctx, time.Duration((0.5+rand.Float64())*float64(d)))
}
