package span

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/roster-mesh/roster/limit"
)

const sampled = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// recording returns a tracer that records traces only if a caller asks for it, and its spans.
// caller is trusted to continue its traces.
var caller = &limit.Caller{Kind: limit.Own, ID: "spiffe://alpha.test/agent/a"}

func recording(allow bool) (*Tracer, *tracetest.SpanRecorder) {
	spans := tracetest.NewSpanRecorder()
	provider := sdk.NewTracerProvider(sdk.WithSampler(sdk.ParentBased(sdk.NeverSample())), sdk.WithSpanProcessor(spans))

	return NewTracer(provider, func(limit.Caller) bool { return allow }), spans
}

func zeros(count int) string { return strings.Repeat("0", count) }

// A caller's trace is continued only if the caller is trusted, its header is well-formed and its
// flag is within the rate. What else it sends of a trace is dropped.
//
// Requirement: OPS-030
func TestTheTraceOfACallerIsContinued(t *testing.T) {
	for name, test := range map[string]struct {
		header  []string
		trusted bool
		allow   bool
		want    bool
	}{
		"of a trusted caller":           {[]string{sampled}, true, true, true},
		"of a stranger":                 {[]string{sampled}, false, true, false},
		"over the rate":                 {[]string{sampled}, true, false, false},
		"that is not recorded":          {[]string{sampled[:len(sampled)-1] + "0"}, true, true, false},
		"named twice":                   {[]string{sampled, sampled}, true, true, false},
		"in upper case":                 {[]string{strings.ToUpper(sampled)}, true, true, false},
		"with a longer field":           {[]string{sampled + "-00"}, true, true, false},
		"with a shorter field":          {[]string{sampled[:len(sampled)-1]}, true, true, false},
		"without an id":                 {[]string{"00-" + zeros(32) + sampled[35:]}, true, true, false},
		"without a parent":              {[]string{sampled[:36] + zeros(16) + "-01"}, true, true, false},
		"with flags that are not known": {[]string{sampled[:len(sampled)-2] + "ff"}, true, true, false},
		"of an invalid version":         {[]string{"ff" + sampled[2:]}, true, true, false},
		"with other separators":         {[]string{strings.ReplaceAll(sampled, "-", "_")}, true, true, false},
		"with nothing":                  {nil, true, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			tracer, spans := recording(test.allow)
			header := http.Header{Header: test.header, "Tracestate": {"vendor=canary"}, "Baggage": {"who=canary"}}

			var trusted *limit.Caller
			if test.trusted {
				trusted = caller
			}

			ctx, span := tracer.Request(t.Context(), time.Now(), header, trusted)
			if span.IsRecorded() != test.want {
				t.Fatalf("recorded: %t, want %t", span.IsRecorded(), test.want)
			}

			out := http.Header{}
			Inject(ctx, out)
			span.Answered("GET", "/ad/l", 200)

			if !test.want {
				if len(out) > 0 || len(spans.Ended()) > 0 {
					t.Errorf("%v is sent on, and %d spans are recorded", out, len(spans.Ended()))
				}

				return
			}

			ended := spans.Ended()[0]
			sent := sampled[:36] + ended.SpanContext().SpanID().String()

			if ended.Parent().SpanID().String() != "b7ad6b7169203331" || ended.Parent().TraceState().Len() > 0 ||
				len(out) != 1 || !strings.HasPrefix(out.Get(Header), sent) {
				t.Errorf("the span's parent is %v; sent on: %v", ended.Parent(), out)
			}
		})
	}
}

// A forwarded write continues the trace that the sender recorded, and begins none.
func TestAForwardedWriteContinuesItsTrace(t *testing.T) {
	tracer, spans := recording(true)
	ctx, request := tracer.Request(t.Context(), time.Now(), http.Header{Header: {sampled}}, caller)

	_, accepted := tracer.Accept(t.Context(), Traceparent(ctx))
	accepted.Done(errors.New("canary"))
	request.Answered("POST", "/ad/r", 503)

	for _, text := range []string{"", "canary", sampled[:len(sampled)-1] + "0"} {
		if _, none := tracer.Accept(t.Context(), text); none.IsRecorded() {
			t.Errorf("%q begins a trace", text)
		}
	}

	ended := spans.Ended()
	if len(ended) != 2 || ended[0].Parent().SpanID() != ended[1].SpanContext().SpanID() ||
		ended[0].Status().Description != "" {
		t.Errorf("%d spans, want the accepted write, and its parent the request: %v", len(ended), ended)
	}
}

// A step has a span only within recorded work; pieces of a step add up to one span.
func TestStepsArePartsOfWhatIsRecorded(t *testing.T) {
	tracer, spans := recording(true)

	_, none := Start(t.Context(), Parse)
	none.Done(nil)
	Past(t.Context(), Admit, time.Now(), time.Now(), 1)
	Measure(t.Context(), Policy).Add(time.Now())

	if _, none := (*Tracer)(nil).Start(t.Context(), PeerPage); none.IsRecorded() {
		t.Error("a nil tracer records")
	}

	ctx, request := tracer.Request(t.Context(), time.Now(), http.Header{Header: {sampled}}, caller)
	inside, step := Start(ctx, Lookup)
	share := Measure(inside, Policy)
	share.Add(time.Now().Add(-time.Second))
	share.Add(time.Now().Add(-time.Second))
	share.End()
	step.Items(2)
	step.End()
	request.Answered("GET", "/ad/l", 200)

	ended := spans.Ended()
	if len(ended) != 3 {
		t.Fatalf("%d spans, want 3", len(ended))
	}

	policy, lookup := ended[0], ended[1]
	if took := policy.EndTime().Sub(policy.StartTime()); policy.Name() != "policy" || took < 2*time.Second ||
		policy.Parent().SpanID() != lookup.SpanContext().SpanID() || policy.Attributes()[0].Value.AsInt64() != 2 {
		t.Errorf("%s took %s with %v", policy.Name(), took, policy.Attributes())
	}
}

// Each step has a name of its own.
func TestNamesAreDistinct(t *testing.T) {
	all := slices.Clone(names[:])
	slices.Sort(all)

	if slices.Contains(all, "") || len(slices.Compact(all)) != len(names) {
		t.Errorf("names are missing or occur twice: %q", all)
	}
}

// Without a trace, steps cost no memory.
//
// Requirement: OPS-030
func TestStepsCostNothingWhileTracesAreOff(t *testing.T) {
	ctx := trace.ContextWithSpan(context.Background(), nil)
	header := http.Header{}

	var tracer *Tracer

	allocated := testing.AllocsPerRun(100, func() {
		ctx, request := tracer.Request(ctx, time.Time{}, header, caller)
		_, step := Start(ctx, Parse)
		step.Items(1)
		step.Done(nil)
		Past(ctx, Admit, time.Time{}, time.Time{}, 0)
		Inject(ctx, header)
		request.Answered("GET", "", 200)
	})

	if allocated > 0 || len(header) > 0 {
		t.Errorf("%v allocations, and the header is %v", allocated, header)
	}
}

// A step that fails is recorded as failed, and its result and error reach its caller, whether it is recorded
// or not.
//
// Requirement: OPS-030
func TestAStepRunsInsideItsSpan(t *testing.T) {
	tracer, spans := recording(true)
	ctx, request := tracer.Request(t.Context(), time.Now(), http.Header{Header: {sampled}}, caller)

	for _, ctx := range []context.Context{ctx, t.Context()} {
		result, err := Get(ctx, Parse, func() (int, error) { return 42, nil })
		if result != 42 || err != nil {
			t.Errorf("a step returns %d and %v, want 42", result, err)
		}

		failure := errors.New("a failure")
		if err := Do(ctx, Render, func(step Span) error {
			step.Items(3)
			return failure
		}); !errors.Is(err, failure) {
			t.Errorf("a step that fails returns %v", err)
		}
	}

	request.End()

	var names []string
	for _, ended := range spans.Ended() {
		names = append(names, ended.Name()+" "+ended.Status().Code.String())
	}

	if want := []string{"parse Unset", "render Error", "request Unset"}; !slices.Equal(names, want) {
		t.Errorf("the trace has %v, want %v", names, want)
	}
}
