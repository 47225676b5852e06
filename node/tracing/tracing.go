package tracing

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"

	"github.com/roster-mesh/roster/directory/span"
	"github.com/roster-mesh/roster/limit"
)

// Bounds of the export.
const (
	queueSize     = 4096 // spans that wait or are on their way
	batchSize     = 512
	batchDelay    = 2 * time.Second
	exportTimeout = 10 * time.Second // of a batch
	retryTime     = 8 * time.Second  // of it, so that the log has the reason of the last try
	maxAttributes = 8                // of a span
	maxValue      = 256              // bytes of an attribute's value
)

// Config configures the export.
type Config struct {
	Endpoint string         // URL to which spans are posted
	Roots    *x509.CertPool // for the collector's certificate; nil is the system's
	Sample   float64        // share of the traces that begin here and are recorded, from 0 to 1
	Asked    float64        // traces a second that are recorded because a caller asks for it
	Version  string         // of this program
	Logger   *slog.Logger
}

// Tracing records spans and exports them until Stop. A nil *Tracing records nothing. It is safe for
// concurrent use.
type Tracing struct {
	provider *sdk.TracerProvider
	tracer   *span.Tracer
	export   *exporter
}

// Start starts the export. It doesn't wait for the collector.
func Start(cfg Config) (*Tracing, error) {
	instance := make([]byte, 8)
	_, _ = rand.Read(instance) // it never fails

	// No name of a node: the instance is random, and the log has it.
	about := resource.NewSchemaless(attribute.String("service.name", "roster"),
		attribute.String("service.version", cfg.Version),
		attribute.String("service.instance.id", hex.EncodeToString(instance)))

	otlp, err := otlptrace.New(context.Background(), newClient(cfg.Endpoint, cfg.Roots))
	if err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}

	export := newExporter(otlp, cfg.Endpoint, cfg.Logger)
	batches := sdk.NewBatchSpanProcessor(export,
		sdk.WithMaxQueueSize(queueSize), sdk.WithMaxExportBatchSize(batchSize), sdk.WithBatchTimeout(batchDelay),
		sdk.WithExportTimeout(exportTimeout))
	provider := sdk.NewTracerProvider(
		sdk.WithSampler(sdk.ParentBased(sdk.TraceIDRatioBased(cfg.Sample))),
		sdk.WithResource(about),
		sdk.WithRawSpanLimits(sdk.SpanLimits{AttributeCountLimit: maxAttributes, AttributeValueLengthLimit: maxValue}),
		sdk.WithSpanProcessor(&queue{SpanProcessor: batches, export: export}))
	cfg.Logger.Info("recording traces", "endpoint", cfg.Endpoint, "sample", cfg.Sample,
		"instance", hex.EncodeToString(instance))

	return &Tracing{provider, span.NewTracer(provider, askedRate(cfg.Asked)), export}, nil
}

// askedRate returns the function that counts a trace which a caller asks for, or refuses it.
func askedRate(perSecond float64) func(limit.Caller) bool {
	if perSecond == 0 {
		return func(limit.Caller) bool { return false }
	}

	rate := limit.NewDividedRate(limit.Rate{PerSecond: perSecond, Burst: max(1, int(perSecond))})

	return func(caller limit.Caller) bool {
		_, ok := rate.Allow(caller)
		return ok
	}
}

// Tracer returns the tracer by which the parts of the node begin traces; nil, which records nothing,
// of a nil *Tracing.
func (t *Tracing) Tracer() *span.Tracer {
	if t == nil {
		return nil
	}

	return t.tracer
}

// Stop exports the spans that have ended, as far as bound permits, and ends the export.
func (t *Tracing) Stop(bound context.Context) error {
	err := t.provider.Shutdown(bound)

	// Requests to the collector that go on beyond bound end here.
	t.export.stop()

	select {
	case <-t.export.ended:
	case <-time.After(time.Second):
		return fmt.Errorf("trace: the export continues: %w", err)
	}

	// A collector that is away at the end was reported, or costs the last spans.
	return nil
}

// Counts returns the number of spans by their fate: one of Fates.
func (t *Tracing) Counts() map[string]uint64 {
	counts := map[string]uint64{}

	for fate, name := range Fates {
		counts[name] = 0
		if t != nil {
			counts[name] = t.export.counts[fate].Load()
		}
	}

	return counts
}
