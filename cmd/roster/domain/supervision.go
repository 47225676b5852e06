package domain

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/roster-mesh/roster/node"
)

// A supervision tells systemd how the node is (sd_notify(3), Type=notify): READY once the
// node is ready, STATUS with the failing check, STOPPING, and WATCHDOG while the node
// answers its liveness check. Outside of systemd it does nothing.
type supervision struct {
	ready func() error
	alive func() // returns if the node doesn't hang
	log   *slog.Logger
}

// Intervals of the supervision.
const (
	readinessInterval = time.Second
	startInterval     = 100 * time.Millisecond
	maxStatus         = 512 // bytes of a STATUS
)

// supervise notifies systemd of a started node, until the returned function says that the
// node stops.
func supervise(n *node.Node, log *slog.Logger) (stopping func()) {
	ctx, cancel := context.WithCancel(context.Background())
	s := &supervision{ready: n.Ready, alive: n.Alive, log: log}

	done := make(chan struct{})
	go func() {
		defer close(done)

		s.run(ctx)
	}()

	return func() {
		cancel()
		<-done
	}
}

// run notifies until ctx ends.
func (s *supervision) run(ctx context.Context) {
	if sent, err := daemon.SdNotify(false, "STATUS=starting"); !sent {
		if err != nil {
			s.log.Warn("systemd can't be notified", "err", err)
		}

		return
	}

	// A check of readiness may wait for a disk, so the watchdog has a goroutine of its own.
	go s.watchdog(ctx)

	interval, started, said := startInterval, false, ""
	for {
		status := "ready"
		if err := s.ready(); err != nil {
			status = "not ready: " + err.Error()
		} else if !started {
			// systemd takes READY once; later changes are in STATUS alone.
			started, interval = true, readinessInterval
			notify("READY=1")
		}

		if status != said {
			said = status
			notify("STATUS=" + oneLine(status))
		}

		select {
		case <-time.After(interval):
		case <-ctx.Done():
			notify(daemon.SdNotifyStopping + "\nSTATUS=stopping")
			return
		}
	}
}

// watchdog answers systemd's watchdog as long as the node is alive. A check that doesn't
// return ends the answers, so that systemd restarts the node.
func (s *supervision) watchdog(ctx context.Context) {
	interval, err := daemon.SdWatchdogEnabled(false)
	if err != nil || interval <= 0 {
		return
	}

	ticker := time.NewTicker(interval / 3)
	defer ticker.Stop()

	for {
		s.alive()
		notify(daemon.SdNotifyWatchdog)

		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// notify sends a state to systemd. A lost one is of no consequence, or is followed by another.
func notify(state string) { _, _ = daemon.SdNotify(false, state) }

// oneLine returns a text as one line that systemd shows.
func oneLine(text string) string {
	text = strings.ReplaceAll(text, "\n", " ")

	return strings.ToValidUTF8(text[:min(len(text), maxStatus)], "")
}
