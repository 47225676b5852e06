package consensus

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// A lifecycle is the life of a member: it ends all waiting when the member is closed, and
// latches the first failure after which the member must not be believed any more.
type lifecycle struct {
	log     *slog.Logger
	closing context.Context // ends when the member is closed
	stop    context.CancelFunc
	loops   sync.WaitGroup // all goroutines of the member
	failed  atomic.Pointer[error]
	failing chan struct{} // closed once failed is set
}

func newLifecycle(log *slog.Logger) *lifecycle {
	l := &lifecycle{log: log, failing: make(chan struct{})}
	l.closing, l.stop = context.WithCancel(context.Background())

	return l
}

// fail latches the first failure after which this member must not be trusted any more:
// Ready returns it, writes are refused, and Failed says that the process should end.
func (l *lifecycle) fail(err error) {
	if l.failed.CompareAndSwap(nil, &err) {
		l.log.Error("this member has stopped applying and writing; it needs an operator", "err", err)
		close(l.failing)
	}
}

func (l *lifecycle) failure() error {
	if err := l.failed.Load(); err != nil {
		return *err
	}

	return nil
}

// every takes a step at intervals, until ctx ends.
func every(ctx context.Context, interval time.Duration, step func()) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()

	for {
		select {
		case <-ticker.C:
			step()
		case <-ctx.Done():
			return
		}
	}
}

func signal(holdsOne chan<- struct{}) {
	select {
	case holdsOne <- struct{}{}:
	default: // one is there already, and will be seen after now
	}
}
