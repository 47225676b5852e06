package span

import (
	"context"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// The attributes of spans. The first three are those of OpenTelemetry's conventions for HTTP.
const (
	AttributeMethod = "http.request.method"
	AttributeRoute  = "http.route"
	AttributeStatus = "http.response.status_code"
	AttributeItems  = "roster.items" // registrations, records or judgements of the step
)

// A Span is a step under way, or one that is not recorded: the zero Span, whose methods do nothing.
// Its methods are safe for concurrent use.
type Span struct{ span trace.Span }

// Start begins a step of the work that ctx belongs to. The context that it returns is for parts of
// the step. If the work is not recorded, it returns ctx and the zero Span.
func Start(ctx context.Context, name Name) (context.Context, Span) {
	parent := trace.SpanFromContext(ctx)
	if !parent.IsRecording() {
		return ctx, Span{}
	}

	ctx, span := tracerOf(parent).Start(ctx, name.String())

	return ctx, Span{span}
}

// Do runs a step of the work that ctx belongs to inside its span.
func Do(ctx context.Context, name Name, step func(Span) error) error {
	_, span := Start(ctx, name)
	err := step(span)
	span.Done(err)

	return err
}

// Get is Do of a step with a result.
func Get[T any](ctx context.Context, name Name, step func() (T, error)) (result T, err error) {
	err = Do(ctx, name, func(Span) error {
		result, err = step()
		return err
	})

	return result, err
}

// Past records a step that is over. Without a recorded span in ctx it does nothing.
func Past(ctx context.Context, name Name, from, to time.Time, items int) {
	parent := trace.SpanFromContext(ctx)
	if !parent.IsRecording() || from.IsZero() {
		return
	}

	_, span := tracerOf(parent).Start(ctx, name.String(), trace.WithTimestamp(from))
	if items > 0 {
		span.SetAttributes(attribute.Int(AttributeItems, items))
	}

	span.End(trace.WithTimestamp(to))
}

// tracerName is the instrumentation scope of all spans.
const tracerName = "github.com/roster-mesh/roster"

func tracerOf(span trace.Span) trace.Tracer { return span.TracerProvider().Tracer(tracerName) }

// In returns ctx as the context for parts of s.
func (s Span) In(ctx context.Context) context.Context {
	if s.span == nil {
		return ctx
	}

	return trace.ContextWithSpan(ctx, s.span)
}

// IsRecorded tells whether the step is recorded.
func (s Span) IsRecorded() bool { return s.span != nil }

// Recorded tells whether the work that ctx belongs to is recorded.
func Recorded(ctx context.Context) bool { return trace.SpanFromContext(ctx).IsRecording() }

// Items records the number of registrations or records of the step.
func (s Span) Items(count int) {
	if s.span != nil {
		s.span.SetAttributes(attribute.Int(AttributeItems, count))
	}
}

// Done ends the step. An error marks it as failed; its text is not recorded.
func (s Span) Done(err error) {
	if s.span == nil {
		return
	}

	if err != nil {
		s.span.SetStatus(codes.Error, "")
	}

	s.span.End()
}

// End is Done of a step that can't fail.
func (s Span) End() { s.Done(nil) }

// Answered ends the span of a request. route is a pattern of the route table, empty if no row matched,
// and method one of a fixed set. A status of 500 and more is a failure.
func (s Span) Answered(method, route string, status int) {
	if s.span == nil {
		return
	}

	s.span.SetAttributes(attribute.String(AttributeMethod, method), attribute.String(AttributeRoute, route),
		attribute.Int(AttributeStatus, status))

	if status >= 500 {
		s.span.SetStatus(codes.Error, "")
	}

	s.span.End()
}

// A Share is the time that a step takes in many pieces inside of another. A nil *Share counts nothing.
// It is safe for concurrent use.
type Share struct {
	ctx   context.Context //nolint:containedctx // of the span that is recorded at the end
	name  Name
	began time.Time
	took  atomic.Int64 // nanoseconds
	count atomic.Int64
}

// Measure begins to add up the pieces of a step; nil if the work is not recorded.
func Measure(ctx context.Context, name Name) *Share {
	if !Recorded(ctx) {
		return nil
	}

	return &Share{ctx: ctx, name: name, began: time.Now()}
}

// Add adds a piece that began at a time and is over.
func (s *Share) Add(began time.Time) {
	if s != nil {
		s.took.Add(int64(time.Since(began)))
		s.count.Add(1)
	}
}

// End records a span that is as long as all pieces together, from the time of Measure on, with their
// number.
func (s *Share) End() {
	if s != nil {
		Past(s.ctx, s.name, s.began, s.began.Add(time.Duration(s.took.Load())), int(s.count.Load()))
	}
}
