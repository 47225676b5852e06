package tracing

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"
)

// Fates are the possible ends of a span: the collector took it, the queue was full, the collector was not reached or
// failed, or it refused the span.
var Fates = [...]string{"exported", "queue_full", "failed", "rejected"}

const (
	exported = iota
	queueFull
	failed
	rejected
)

// quiet is the time without a loss after which the log says that spans are exported again.
const quiet = time.Minute

// An exporter hands batches to the collector, and counts the fates of their spans.
type exporter struct {
	otlp     sdk.SpanExporter
	endpoint string
	log      *slog.Logger

	counts [len(Fates)]atomic.Uint64
	held   atomic.Int64 // spans that wait or are on their way

	running context.Context
	stop    context.CancelFunc
	ended   chan struct{}

	mu   sync.Mutex
	lost time.Time // when the last span was lost; zero while the log calls the export well
	was  uint64    // spans lost when that began
}

func newExporter(otlp sdk.SpanExporter, endpoint string, log *slog.Logger) *exporter {
	e := &exporter{otlp: otlp, endpoint: endpoint, log: log, ended: make(chan struct{})}
	e.running, e.stop = context.WithCancel(context.Background())

	return e
}

// ExportSpans implements sdk.SpanExporter. It returns no error, because the loss is counted and
// logged here.
func (e *exporter) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	defer e.held.Add(-int64(len(spans)))

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	// Stop ends the request to the collector, whatever time the library still allows.
	defer context.AfterFunc(e.running, cancel)()

	count := uint64(len(spans))

	if err := e.otlp.ExportSpans(ctx, spans); err != nil {
		refused, ok := rejectedSpans(err)
		if !ok {
			e.lose(failed, count, err)
			return nil
		}

		// A warning of the collector is such an error too, with no span rejected.
		if refused = min(refused, count); refused > 0 {
			count -= refused
			e.lose(rejected, refused, err)
		}
	}

	e.counts[exported].Add(count)
	e.recover()

	return nil
}

// Shutdown implements sdk.SpanExporter. It is called once all spans are exported or lost.
func (e *exporter) Shutdown(ctx context.Context) error {
	close(e.ended)
	return e.otlp.Shutdown(ctx)
}

// admit tells whether the queue has room for another span, and counts the span.
func (e *exporter) admit() bool {
	// The span is counted first, so that two at once can't take the last place.
	if e.held.Add(1) <= queueSize {
		return true
	}

	e.held.Add(-1)
	e.lose(queueFull, 1, errQueueFull)

	return false
}

// lose counts lost spans, and logs the first of a series.
func (e *exporter) lose(fate int, count uint64, cause error) {
	e.counts[fate].Add(count)

	e.mu.Lock()
	defer e.mu.Unlock()

	first := e.lost.IsZero()
	e.lost = time.Now()

	if first {
		// count was added above, and belongs to the series that begins.
		e.was = e.losses() - count
		e.log.Warn("spans of traces are lost; requests go on", "endpoint", e.endpoint, "err", cause)
	}
}

// recover logs the end of a series of losses.
func (e *exporter) recover() {
	e.mu.Lock()
	defer e.mu.Unlock()

	if !e.lost.IsZero() && time.Since(e.lost) >= quiet {
		e.lost = time.Time{}
		e.log.Info("spans of traces are exported again", "endpoint", e.endpoint, "lost", e.losses()-e.was)
	}
}

func (e *exporter) losses() uint64 {
	return e.counts[queueFull].Load() + e.counts[failed].Load() + e.counts[rejected].Load()
}

// A queue keeps out spans that the library's queue has no room for, which the library drops
// without a count.
type queue struct {
	sdk.SpanProcessor
	export *exporter
}

// OnEnd implements sdk.SpanProcessor. It doesn't wait.
func (q *queue) OnEnd(span sdk.ReadOnlySpan) {
	if q.export.running.Err() == nil && q.export.admit() {
		q.SpanProcessor.OnEnd(span)
	}
}
