package api

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/span"
	"github.com/roster-mesh/roster/limit"
)

// quietWriter takes answers and forgets them.
type quietWriter struct {
	header http.Header
	status int
}

func (w *quietWriter) Header() http.Header         { return w.header }
func (w *quietWriter) Write(b []byte) (int, error) { return len(b), nil }
func (w *quietWriter) WriteHeader(status int)      { w.status = status }

// What a lookup by two filters costs a node, TLS and HTTP aside.
func BenchmarkLookup(b *testing.B) { benchmarkLookup(b, nil) }

// What a lookup costs a node that records some of its traces, or all.
func BenchmarkTracedLookup(b *testing.B) {
	for _, share := range []float64{0.01, 1} {
		provider := sdk.NewTracerProvider(sdk.WithSampler(sdk.TraceIDRatioBased(share)),
			sdk.WithBatcher(tracetest.NewNoopExporter()))

		b.Run(fmt.Sprint("sample=", share), func(b *testing.B) {
			benchmarkLookup(b, span.NewTracer(provider, func(limit.Caller) bool { return false }))
		})

		if err := provider.Shutdown(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

func benchmarkLookup(b *testing.B, tracer *span.Tracer) {
	var entries []*directory.Entry
	for i := range 4000 {
		rid := fmt.Sprintf("01JWNTC000000000000000%04d", i)
		entries = append(entries, entry(b, alpha, rid, fmt.Sprintf("m-%08d", i), uint64(i+1), fmt.Sprintf(
			`{"base":"https://agent-%08d.load.example/api","protocols":["%s","https"],"capabilities":[{"name":"summarize-%03d","type":"tool","description":"Summarizes what it is given.","tags":["tag-%02d","text"],"input_schema":{"type":"object"}},{"name":"translate","type":"tool","tags":["language"]}],"description":"%0700d"}`,
			i, []string{"a2a", "mcp", "grpc", "https"}[i/20%4], i%500, i%20, i)))
	}

	s := newTestServer(b, func(cfg *Config) { cfg.Observe, cfg.Tracer = nil, tracer }, entries...)
	for _, who := range []string{"", "/agent/bob"} {
		b.Run("as"+who, func(b *testing.B) {
			r := httptest.NewRequest("GET", "https://ad.alpha.test:8400/ad/l?tag=tag-07&protocol=mcp&count=10", nil)
			if who != "" {
				r.Header.Set("Test-Caller", who)
			}

			b.ReportAllocs()

			for b.Loop() {
				w := &quietWriter{header: http.Header{}}
				s.Handler().ServeHTTP(w, r)

				if w.status != 200 {
					b.Fatal(w.status)
				}
			}
		})
	}
}
