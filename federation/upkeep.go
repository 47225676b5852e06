package federation

import (
	"context"
	"errors"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/federation/store"
)

// sweeper removes expired entries, a bounded number at a time, until ctx ends.
func (m *Mesh) sweeper(ctx context.Context) {
	var readmitted time.Time
	for pause := sweepEvery; wait(ctx, nil, m.cfg.Stretch.of(pause)); {
		pause = sweepEvery

		readmits := time.Since(readmitted) >= sweepEvery // however often something is due to be freed
		if readmits {
			readmitted = time.Now()
		}

		for _, origin := range m.origins.All() {
			next, err := origin.Sweep(sweepLimit)
			if err != nil && !errors.Is(err, store.ErrStalled) {
				m.cfg.Logger.Error("removing expired entries failed", "origin", origin.Domain.Name(), "err", err)
			}

			if readmits {
				if err := origin.Readmit(); err != nil && !errors.Is(err, store.ErrStalled) {
					m.cfg.Logger.Error("requesting records that now fit the quota failed", "origin",
						origin.Domain.Name(), "err", err)
				}
			}

			if !next.IsZero() {
				// The lower bound keeps a peer that spreads its deadlines from making the sweeper run all the
				// time.
				pause = max(min(pause, time.Until(next)), 50*time.Millisecond)
			}
		}
	}
}

// judges applies changed rules to the shown entries, until ctx ends. While the disk is
// stalled, it only hides entries that the rules no longer admit.
func (m *Mesh) judges(ctx context.Context) {
	for wait(ctx, m.judge, 0) {
		m.judgeAll(ctx)
	}
}

// judgeAll applies the rules to all origins, one step of each origin in turn. It hides
// entries first, because that waits for no disk.
func (m *Mesh) judgeAll(ctx context.Context) {
	for more := true; more && ctx.Err() == nil; {
		more = false
		for _, o := range m.origins.All() {
			more = o.HideSome() || more
		}
	}

	for more := true; more && ctx.Err() == nil; {
		more = false
		for _, o := range m.origins.All() {
			more = o.JudgeSome() || more
		}
	}
}

// staleEvery is the interval at which staleness looks for silent origins.
const staleEvery = 500 * time.Millisecond

// staleness hides the entries of a silent origin if its peering requires that, and shows them
// again when the origin is reachable (MESH-008).
func (m *Mesh) staleness(ctx context.Context) {
	for ok := true; ok; ok = wait(ctx, nil, m.cfg.Stretch.of(staleEvery)) {
		for _, origin := range m.origins.All() {
			hide := origin.Peering.Load().Import.OnStale == directory.OnStaleHide

			stale := hide && origin.Silent()
			if origin.SetStale(stale) {
				m.cfg.Logger.Warn("a silent peer's registrations changed visibility",
					"origin", origin.Domain.Name(), "hidden", stale)
			}
		}
	}
}

// The pace of the loops that maintain all origins.
const (
	sweepEvery     = 5 * time.Second
	sweepLimit     = 1000
	reconcileEvery = 200 * time.Millisecond
)
