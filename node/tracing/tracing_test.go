package tracing

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/roster-mesh/roster/directory/span"
	"github.com/roster-mesh/roster/limit"
)

// start exports all traces to a collector. The text that it returns is the log.
func start(t *testing.T, collector http.HandlerFunc) (*Tracing, *strings.Builder) {
	t.Helper()

	server := httptest.NewServer(collector)
	t.Cleanup(server.Close)

	log := &strings.Builder{}

	tracing, err := Start(Config{Endpoint: server.URL + "/v1/traces", Sample: 1, Asked: 1, Version: "v0",
		Logger: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}

	return tracing, log
}

// leaksNothing fails a test that leaves goroutines behind, once its server is closed.
func leaksNothing(t *testing.T) {
	before := goleak.IgnoreCurrent()

	t.Cleanup(func() { goleak.VerifyNone(t, before) })
}

// record begins and ends traces.
func record(tracing *Tracing, count int) {
	for range count {
		_, step := tracing.Tracer().Start(context.Background(), span.PeerPage)
		step.End()
	}
}

func stop(t *testing.T, tracing *Tracing) {
	t.Helper()

	bound, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()

	if err := tracing.Stop(bound); err != nil {
		t.Error(err)
	}
}

func wantCount(t *testing.T, tracing *Tracing, fate string, want uint64) {
	t.Helper()

	if got := tracing.Counts()[fate]; got != want {
		t.Errorf("%d spans are counted as %s, want %d: %v", got, fate, want, tracing.Counts())
	}
}

// Spans arrive with the program's name and version, and nothing of the node. The environment adds
// headers; where and how spans are sent is the configuration's.
//
// Requirement: OPS-030
func TestSpansArrive(t *testing.T) {
	leaksNothing(t)
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20x")
	t.Setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://127.0.0.1:1/other")
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json")

	certificate := filepath.Join(t.TempDir(), "ca.pem")
	t.Setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", certificate)

	other := httptest.NewTLSServer(http.NotFoundHandler())
	other.Close()

	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: other.Certificate().Raw})
	if err := os.WriteFile(certificate, block, 0o600); err != nil {
		t.Fatal(err)
	}

	var received tracepb.TracesData

	tracing, _ := start(t, func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		err := proto.Unmarshal(body, &received)

		if err != nil || r.Header.Get("Content-Type") != "application/x-protobuf" || r.URL.Path != "/v1/traces" ||
			r.Header.Get("Authorization") != "Bearer x" {
			t.Errorf("%v: %v", r.Header, err)
		}
	})
	record(tracing, 3)
	stop(t, tracing)
	wantCount(t, tracing, "exported", 3)

	about := received.ResourceSpans[0]
	if spans := about.ScopeSpans[0].Spans; len(spans) != 3 || spans[0].Name != "federation.page" {
		t.Errorf("%v", spans)
	}

	keys := map[string]string{}
	for _, attribute := range about.Resource.Attributes {
		keys[attribute.Key] = attribute.Value.GetStringValue()
	}

	if keys["service.name"] != "roster" || keys["service.version"] != "v0" || len(keys["service.instance.id"]) != 16 ||
		len(keys) != 3 {
		t.Errorf("the resource is %v", keys)
	}
}

// A collector that doesn't answer holds nothing up. What doesn't fit the queue is dropped and
// counted, and a stop waits no longer than it may.
//
// Requirement: OPS-030
func TestAHungCollectorHoldsNothingUp(t *testing.T) {
	leaksNothing(t)

	hung := make(chan struct{})
	tracing, log := start(t, func(http.ResponseWriter, *http.Request) { <-hung })
	record(tracing, queueSize+100)
	wantCount(t, tracing, "queue_full", 100)

	bound, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()

	if err := tracing.Stop(bound); err != nil {
		t.Error(err)
	}

	wantCount(t, tracing, "failed", queueSize)
	close(hung)

	if lines := strings.Count(log.String(), "are lost"); lines != 1 || strings.Count(log.String(), "\n") != 2 {
		t.Errorf("%d lines of loss:\n%s", lines, log)
	}
}

// A batch is sent again while the collector asks for it or is not reached, and not if it is refused.
func TestABatchIsRetried(t *testing.T) {
	var requests atomic.Int32

	tracing, _ := start(t, func(w http.ResponseWriter, _ *http.Request) {
		switch requests.Add(1) {
		case 1:
			w.WriteHeader(http.StatusServiceUnavailable)
		case 2:
			panic(http.ErrAbortHandler) // the connection breaks
		case 4:
			w.WriteHeader(http.StatusBadRequest)
		}
	})
	record(tracing, 1)

	if err := tracing.provider.ForceFlush(t.Context()); err != nil {
		t.Fatal(err)
	}

	record(tracing, 2)
	stop(t, tracing)
	wantCount(t, tracing, "exported", 1)
	wantCount(t, tracing, "failed", 2)

	if requests.Load() != 4 {
		t.Errorf("%d requests, want 4", requests.Load())
	}
}

// A batch is given up in time, whatever wait the collector asks for.
func TestACollectorDoesNotDecideTheWait(t *testing.T) {
	tracing, log := start(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "3600")
		w.WriteHeader(http.StatusTooManyRequests)
	})
	record(tracing, 1)

	began := time.Now()

	if err := tracing.provider.ForceFlush(t.Context()); err != nil {
		t.Fatal(err)
	}

	if took := time.Since(began); took > exportTimeout {
		t.Errorf("the batch was given up after %s, want at most %s", took, exportTimeout)
	}

	stop(t, tracing)
	wantCount(t, tracing, "failed", 1)

	if !strings.Contains(log.String(), "retry time") {
		t.Errorf("the log does not have the reason:\n%s", log)
	}
}

// Spans that the collector rejects are counted, and its reason is logged. A warning loses none.
func TestRejectedSpansAreCounted(t *testing.T) {
	for name, c := range map[string]struct {
		count            uint64 // that the collector says it rejected
		rejected, losses uint64
	}{"some": {2, 2, 1}, "none": {0, 0, 0}, "more than there were": {9, 5, 1}} {
		partial := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), c.count)
		partial = protowire.AppendTag(partial, 2, protowire.BytesType)
		partial = protowire.AppendString(partial, "too (1 spans rejected) old")
		answer := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), partial)

		tracing, log := start(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/x-protobuf")
			_, _ = w.Write(answer)
		})
		record(tracing, 5)
		stop(t, tracing)
		wantCount(t, tracing, "exported", 5-c.rejected)
		wantCount(t, tracing, "rejected", c.rejected)

		if lines := strings.Count(log.String(), "too (1 spans rejected) old"); uint64(lines) != c.losses {
			t.Errorf("%s: %d lines of loss, want %d:\n%s", name, lines, c.losses, log)
		}
	}
}

// flaky is a library's exporter whose collector is away until it is set to be there.
type flaky struct{ there bool }

func (f *flaky) ExportSpans(context.Context, []sdk.ReadOnlySpan) error {
	if f.there {
		return nil
	}

	return errors.New("connection refused")
}

func (*flaky) Shutdown(context.Context) error { return nil }

// The log has one line when spans begin to be lost and one when none was for a minute, however many
// are lost between.
//
// Requirement: OPS-030
func TestTheLogHasALineAtLossAndOneAtReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer

		collector := &flaky{}
		export := newExporter(collector, "http://127.0.0.1:1/v1/traces",
			slog.New(slog.NewTextHandler(&text, nil)))
		send := func() {
			_ = export.ExportSpans(t.Context(), make([]sdk.ReadOnlySpan, 10))
			<-time.After(5 * time.Second)
		}

		for range 3 {
			send()
		}

		collector.there = true

		for range 30 {
			send()
		}

		lines := strings.Split(strings.TrimSpace(text.String()), "\n")
		if len(lines) != 2 || !strings.Contains(lines[0], "lost") || !strings.Contains(lines[1], "again") ||
			!strings.HasSuffix(lines[1], "lost=30") {
			t.Errorf("the log is\n%s", text.String())
		}
	})
}

// The rate of traces that callers ask for is bounded.
func TestCallersAskForSoManyTraces(t *testing.T) {
	tracing, _ := start(t, func(http.ResponseWriter, *http.Request) {})
	defer stop(t, tracing)

	header := http.Header{span.Header: {"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}}
	recorded := 0

	for range 20 {
		_, step := tracing.Tracer().Request(t.Context(), time.Now(), header, &limit.Caller{Kind: limit.Own})
		if step.IsRecorded() {
			recorded++
		}

		step.End()
	}

	if recorded == 0 || recorded > 10 {
		t.Errorf("%d of 20 traces are recorded at one a second", recorded)
	}
}

// Spans of many goroutines are counted once each.
func TestSpansAreCountedOnce(t *testing.T) {
	tracing, _ := start(t, func(http.ResponseWriter, *http.Request) {})

	var all sync.WaitGroup
	for range 8 {
		all.Go(func() { record(tracing, 2000) })
	}

	all.Wait()
	stop(t, tracing)

	counts := tracing.Counts()
	if sum := counts["exported"] + counts["queue_full"] + counts["failed"]; sum != 16000 {
		t.Errorf("%d spans of 16000 are counted: %v", sum, counts)
	}
}

// Nodes of peers have a part of the traces that callers ask for, and the own domain's callers the rest.
//
// Requirement: OPS-030, SEC-004
func TestTracesThatAreAskedForAreShared(t *testing.T) {
	leaksNothing(t)

	tracing, err := Start(Config{Endpoint: "http://127.0.0.1:1/", Asked: 16, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer stop(t, tracing)

	header := http.Header{span.Header: {"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}}
	began := time.Now()

	asked := func(kind limit.Kind, domain string) (recorded int) {
		for n := range 200 {
			caller := &limit.Caller{Kind: kind, ID: fmt.Sprint(domain, n), Group: domain}

			if _, step := tracing.Tracer().Request(t.Context(), time.Now(), header, caller); step.IsRecorded() {
				step.End()
				recorded++
			}
		}

		return recorded
	}

	one, two, third := asked(limit.Foreign, "beta"), asked(limit.Foreign, "gamma"), asked(limit.Foreign, "delta")
	own := asked(limit.Own, "")
	added := int(16*time.Since(began).Seconds()) + 1

	if one > 4+added || two < 4-added || one+two+third > 8+added || own < 8-added || own == 0 {
		t.Errorf("peers get %d, %d and %d traces, and the own domain %d, of 16", one, two, third, own)
	}

	off := askedRate(0)
	if off(limit.Caller{Kind: limit.Own}) {
		t.Error("a trace is recorded because a caller asks for it, and none may be")
	}
}
