package span

import (
	"context"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/roster-mesh/roster/limit"
)

// A Tracer begins traces, and continues those of other programs. A nil *Tracer records nothing. It is
// safe for concurrent use.
type Tracer struct {
	tracer trace.Tracer
	allow  func(limit.Caller) bool
}

// NewTracer returns a Tracer that records by provider. allow is asked before a trace is recorded
// because a caller wants it to be; it counts that against the caller's share.
func NewTracer(provider trace.TracerProvider, allow func(limit.Caller) bool) *Tracer {
	return &Tracer{provider.Tracer(tracerName), allow}
}

// Start is the function Start, and begins a trace if ctx belongs to none.
func (t *Tracer) Start(ctx context.Context, name Name) (context.Context, Span) {
	if Recorded(ctx) {
		return Start(ctx, name)
	}

	return t.start(ctx, name)
}

// start begins a span whose parent is the one in ctx. It returns the context that it was given and
// the zero Span if the span is not recorded.
func (t *Tracer) start(ctx context.Context, name Name, options ...trace.SpanStartOption) (context.Context, Span) {
	if t == nil {
		return ctx, Span{}
	}

	inside, span := t.tracer.Start(ctx, name.String(), options...)
	if !span.IsRecording() {
		return ctx, Span{}
	}

	return inside, Span{span}
}

// Request begins the span of a request that arrived at a time. If the caller is trusted, the trace is
// that of the request's header, if that has one, and is recorded as the caller wants, as long as allow
// permits it. If trusted is nil, the header is ignored. The tracestate and the baggage of a header are
// always ignored.
func (t *Tracer) Request(ctx context.Context, arrived time.Time, header http.Header,
	trusted *limit.Caller) (context.Context, Span) {
	if t == nil {
		return ctx, Span{}
	}

	inside := ctx
	if trusted != nil && !Recorded(ctx) { // else it is the request of a tool that an MCP client called
		inside = t.continued(ctx, parse(header[Header]), *trusted)
	}

	inside, span := t.start(inside, Request, trace.WithTimestamp(arrived), trace.WithSpanKind(trace.SpanKindServer))

	// The caller's trace must not go on into other requests, so ctx is returned as it came.
	if !span.IsRecorded() {
		return ctx, span
	}

	return inside, span
}

// continued returns ctx as part of a caller's trace, if there is one.
func (t *Tracer) continued(ctx context.Context, remote trace.SpanContext, caller limit.Caller) context.Context {
	if !remote.IsValid() {
		return ctx
	}

	// Beyond its share, a caller's trace goes on, but is not recorded here.
	if remote.IsSampled() && !t.allow(caller) {
		remote = remote.WithTraceFlags(0)
	}

	return trace.ContextWithRemoteSpanContext(ctx, remote)
}

// Accept begins the span of a write that another member forwards, as a part of the trace that
// Traceparent returned there. It begins none for an empty or malformed text.
func (t *Tracer) Accept(ctx context.Context, traceparent string) (context.Context, Span) {
	if t == nil || traceparent == "" {
		return ctx, Span{}
	}

	remote := parse([]string{traceparent})

	// The member that forwards the write has decided whether it is recorded.
	if !remote.IsSampled() {
		return ctx, Span{}
	}

	return t.start(trace.ContextWithRemoteSpanContext(ctx, remote), Accept, trace.WithSpanKind(trace.SpanKindServer))
}

// Header is the field of W3C Trace Context that names a trace, in Go's canonical form.
const Header = "Traceparent"

// Inject sets the header of a request to another program, if the work that ctx belongs to is recorded.
func Inject(ctx context.Context, header http.Header) {
	if text := Traceparent(ctx); text != "" {
		header[Header] = []string{text}
	}
}

// Traceparent returns the header field for the span in ctx; empty if the work is not recorded.
func Traceparent(ctx context.Context) string {
	if !Recorded(ctx) {
		return ""
	}

	carried := carrier{}
	propagation.TraceContext{}.Inject(ctx, &carried)

	return carried.text
}

// parse reads a header field. It returns the zero value unless the request has one field, well-formed.
func parse(fields []string) trace.SpanContext {
	if len(fields) != 1 || len(fields[0]) != traceparentSize {
		return trace.SpanContext{}
	}

	ctx := propagation.TraceContext{}.Extract(context.Background(), &carrier{fields[0]})

	return trace.SpanContextFromContext(ctx)
}

// traceparentSize is the length of a field of version 00. Later versions may be longer, so this
// node doesn't continue their traces.
const traceparentSize = len("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")

// A carrier has a traceparent, and neither tracestate nor baggage.
type carrier struct{ text string }

// Get implements propagation.TextMapCarrier.
func (c *carrier) Get(key string) string {
	if key == "traceparent" {
		return c.text
	}

	return ""
}

// Set implements propagation.TextMapCarrier.
func (c *carrier) Set(key, value string) {
	if key == "traceparent" {
		c.text = value
	}
}

// Keys implements propagation.TextMapCarrier.
func (c *carrier) Keys() []string { return []string{"traceparent"} }
