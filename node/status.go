package node

import (
	"context"
	"crypto/x509"
	"errors"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"golang.org/x/time/rate"

	"github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/consensus"
	"github.com/roster-mesh/roster/federation"
	"github.com/roster-mesh/roster/node/disk"
	"github.com/roster-mesh/roster/trust"
)

// A selfReport describes this node to operators.
type selfReport struct {
	id      spiffeid.ID
	data    string // directory
	store   *consensus.Store
	source  *trust.Source
	bundles *trust.Bundles
	ready   func() error
	ledger  func() wire.LedgerStatus
}

// Node returns the state of this node.
func (r selfReport) Node() wire.NodeStatus {
	status := wire.NodeStatus{
		ID:            r.id.String(),
		Version:       programVersion(),
		Ready:         true,
		Position:      r.store.Position().String(),
		BundleExpires: r.bundles.Expiry(r.id.TrustDomain(), time.Now()).UTC(),
		ClockStep:     r.store.Clock().Step.Seconds(),
		ClockBehind:   r.store.Clock().Behind.Seconds(),
		Unconfirmed:   r.store.Unconfirmed(),
		Ledger:        r.ledger(),
	}

	if err := r.ready(); err != nil {
		status.Ready = false
		status.NotReady = err.Error()
	}

	if svid := r.source.SVID(); svid != nil {
		status.SVIDExpires = svid.Certificates[0].NotAfter.UTC()
	}

	if free, percent, err := disk.FreeSpace(r.data); err == nil {
		status.DiskFree, status.DiskFreePercent = &free, &percent
	}

	return status
}

// A stateLog logs the changes of a node's state that operators look for: its leader, whether it
// is ready, and the end of its SVID. Each is logged once.
type stateLog struct {
	leader func() (spiffeid.ID, bool)
	ready  func() error
	svid   func() *x509.Certificate // nil if there is none
	log    *slog.Logger
	pace   federation.Stretch // of the interval; nil is 1

	lines     *rate.Limiter // of leaders and of readiness: stateLines
	following spiffeid.ID   // the leader that was logged last
	isReady   bool          // as it was logged last
	unready   time.Time     // since when it is not ready; the time of the last check while it is
	warned    string        // the SVID of which the end was announced, by its serial number
	expired   string        // the SVID of which the end was logged
}

// The pace of a stateLog.
const (
	stateInterval = 500 * time.Millisecond
	stateLines    = 20               // at once
	stateLinePace = 10 * time.Second // later one
	unreadyNotice = 2 * time.Second  // after which a node that is not ready says so
	svidNotice    = 24 * time.Hour   // before an SVID ends; a quarter of its lifetime if that is less
)

// run compares the state with the logged one until ctx ends.
func (l *stateLog) run(ctx context.Context) {
	for ctx.Err() == nil {
		l.check(time.Now())

		interval := stateInterval
		if l.pace != nil {
			interval = time.Duration(float64(interval) * l.pace())
		}

		select {
		case <-time.After(interval):
		case <-ctx.Done():
		}
	}
}

func (l *stateLog) check(now time.Time) {
	// A leader whose line the rate refuses stays news until a later check.
	if leader, ok := l.leader(); ok && leader != l.following && l.lines.AllowN(now, 1) {
		l.following = leader
		l.log.Info("leader elected", "leader", leader.String())
	}

	err := l.ready()
	if err == nil || l.unready.IsZero() {
		l.unready = now
	}

	// After an election a node is behind for a moment, which is no news.
	passing := err != nil && l.isReady && now.Sub(l.unready) < unreadyNotice
	if (err == nil) != l.isReady && !passing && l.lines.AllowN(now, 1) {
		l.isReady = err == nil

		switch {
		case err == nil:
			l.log.Info("ready")
		case errors.Is(err, errStopping), errors.Is(err, consensus.ErrOutside): // as its operator wants it
			l.log.Info("not ready", "err", err)
		default:
			l.log.Warn("not ready", "err", err)
		}
	}

	l.checkSVID(now)
}

// checkSVID logs that the SVID ends soon, though another should have replaced it by now, and
// that it has ended.
func (l *stateLog) checkSVID(now time.Time) {
	svid := l.svid()
	if svid == nil {
		return
	}

	serial, end := svid.SerialNumber.String(), svid.NotAfter
	notice := min(svidNotice, end.Sub(svid.NotBefore)/4)

	switch {
	case !now.Before(end) && l.expired != serial:
		l.expired = serial
		l.log.Error("the node's SVID has expired and no replacement is available; the node is not ready",
			"expired", end.UTC())
	case now.Before(end) && end.Sub(now) <= notice && l.warned != serial:
		l.warned = serial
		l.log.Warn("the node's SVID expires soon and was not renewed", "expires", end.UTC())
	}
}

// programVersion returns the version of this program's module.
func programVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "(devel)"
	}

	return info.Main.Version
}
