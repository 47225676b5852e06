package main

import (
	"context"
	"math/rand/v2"
	"time"

	apiclient "github.com/roster-mesh/roster/api/client"
)

// How long a command that stays waits between two attempts while the directory is
// away.
const (
	firstRetry = time.Second
	lastRetry  = 30 * time.Second
)

// leaveTimeout bounds the removal at the end.
const leaveTimeout = 2 * time.Second

// keep refreshes the registration until ctx ends.
func (r *registrant) keep(ctx context.Context) error {
	r.keeper.Notify = func(e apiclient.KeepEvent) {
		switch e.Kind {
		case apiclient.KeepRegistered:
			r.note("%s had expired and is registered again as %s.", r.keeper.Agent, e.Registered.RID)
		case apiclient.KeepFailing:
			r.note("%s could not be refreshed: %s; trying on.", r.keeper.Agent, failureOf(e.Err).what)
		case apiclient.KeepRecovered:
			r.note("%s is refreshed again.", r.keeper.Agent)
		}
	}

	if err := r.keeper.Run(ctx); err != nil {
		return suggest(err, exitConflict, r.command("get", r.keeper.Agent, "--provenance"))
	}
	return r.leave(ctx)
}

// leave ends the registration if that was asked for.
func (r *registrant) leave(ctx context.Context) error {
	if !r.remove {
		return nil
	}

	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
	defer cancel()
	if err := r.keeper.Remove(ctx); err != nil {
		return failureOf(err).because("%s stays registered until its lifetime ends.", r.keeper.Agent)
	}
	r.note("%s is removed.", r.keeper.Agent)
	return nil
}

// pause waits and reports whether ctx still holds.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// pauseAbout pauses for half of d to one and a half: not all who wait for the same
// directory come back together.
func pauseAbout(ctx context.Context, d time.Duration) bool {
	return pause(ctx, time.Duration((0.5+rand.Float64())*float64(d)))
}
