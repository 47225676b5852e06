package federation

import (
	"context"
	"errors"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/federation/replica"
	"github.com/roster-mesh/roster/federation/store"
)

// upkeep runs the loops that look after all origins.
type upkeep struct {
	cfg     *Config
	origins *replica.Set
	judge   chan struct{}
}

// sweeper frees what is dead, a bounded number at a time.
func (u *upkeep) sweeper(ctx context.Context) {
	var readmitted time.Time
	for pause := sweepEvery; wait(ctx, nil, u.cfg.Stretch.of(pause)); {
		pause = sweepEvery

		readmits := time.Since(readmitted) >= sweepEvery // however often something is due to be freed
		if readmits {
			readmitted = time.Now()
		}

		for _, origin := range u.origins.All() {
			next, err := origin.Streams.Sweep(sweepLimit)
			if err != nil && !errors.Is(err, store.ErrStalled) {
				u.cfg.Logger.Error("removing expired entries failed", "origin", origin.Domain.Name(), "err", err)
			}

			if readmits {
				if err := origin.Streams.Readmitter.Readmit(); err != nil && !errors.Is(err, store.ErrStalled) {
					u.cfg.Logger.Error("requesting records that now fit the quota failed", "origin",
						origin.Domain.Name(), "err", err)
				}
			}

			if !next.IsZero() {
				pause = max(min(pause, time.Until(next)), 50*time.Millisecond)
			}
		}
	}
}

// judges brings in line what is shown, after the rules have changed, until ctx ends.
// While the disk doesn't answer it hides what the rules don't admit, and no more.
func (u *upkeep) judges(ctx context.Context) {
	for wait(ctx, u.judge, 0) {
		u.judgeAll(ctx)
	}
}

// judgeAll does all that is to be done, of one origin a step after the other's. What
// is to be hidden comes first: it waits for no disk.
func (u *upkeep) judgeAll(ctx context.Context) {
	for more := true; more && ctx.Err() == nil; {
		more = false
		for _, o := range u.origins.All() {
			more = o.Streams.Rejudger.HideSome() || more
		}
	}

	for more := true; more && ctx.Err() == nil; {
		more = false
		for _, o := range u.origins.All() {
			more = o.Streams.Rejudger.JudgeSome() || more
		}
	}
}

// staleEvery is how often it is asked who hasn't been heard for too long.
const staleEvery = 500 * time.Millisecond

// staleness hides what silent origins told, where their peerings want that, and
// shows it again when they speak (MESH-008).
func (u *upkeep) staleness(ctx context.Context) {
	for ok := true; ok; ok = wait(ctx, nil, u.cfg.Stretch.of(staleEvery)) {
		for _, origin := range u.origins.All() {
			hide := origin.Peering.Load().Import.OnStale == directory.OnStaleHide

			stale := hide && origin.Silent()
			if origin.Streams.SetStale(stale) {
				u.cfg.Logger.Warn("a silent peer's registrations changed visibility",
					"origin", origin.Domain.Name(), "hidden", stale)
			}
		}
	}
}

// The pace of the loops that look after all origins.
const (
	sweepEvery     = 5 * time.Second
	sweepLimit     = 1000
	reconcileEvery = 200 * time.Millisecond
)
