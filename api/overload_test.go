package api

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/discovery"
)

// gatedRules are houseRules that take their time over reads, until the gate is opened.
type gatedRules struct {
	houseRules
	gate chan struct{}
}

func (r gatedRules) Read(id directory.Identity, e *directory.Entry) directory.Decision {
	<-r.gate
	return r.houseRules.Read(id, e)
}

// A burden is a server with few places, and the requests that are under way there. It
// lives in a bubble.
type burden struct {
	t    *testing.T
	s    *Server
	gate chan struct{}

	mu   sync.Mutex
	said map[string]*http.Response // answers, by the name of the request
	shed []string                  // classes
}

func newBurden(t *testing.T, change func(*Config), entries ...*directory.Entry) *burden {
	b := &burden{t: t, gate: make(chan struct{}), said: map[string]*http.Response{}}
	b.s = newTestServer(t, func(cfg *Config) {
		whole(cfg)
		cfg.Workers, cfg.Waiting, cfg.Policy = 1, 2, gatedRules{gate: b.gate}

		cfg.Shed = func(class string) { b.shed = append(b.shed, class) }
		if change != nil {
			change(cfg)
		}
	}, entries...)

	return b
}

// send makes a request, and returns once it is answered or waits.
func (b *burden) send(name, method, target, body string) {
	go func() {
		resp := ask(b.t, b.s, "/agent/ada", method, target, body)
		b.mu.Lock()
		defer b.mu.Unlock()
		b.said[name] = resp
	}()
	synctest.Wait()
}

// problem returns the problem that a request was answered with, "" where that was none,
// and "-" while there is no answer.
func (b *burden) problem(name string) string {
	b.mu.Lock()
	resp := b.said[name]
	b.mu.Unlock()

	if resp == nil {
		return "-"
	}

	text, _ := io.ReadAll(resp.Body)
	resp.Body = io.NopCloser(strings.NewReader(string(text)))
	_, after, _ := strings.Cut(string(text), `/problems/`)
	problem, _, _ := strings.Cut(after, `"`)

	return problem
}

// The route and the body of each class of work.
var (
	aQuery        = [3]string{"POST", "/discovery/query", `{"query":"route"}`}
	aLookup       = [3]string{"GET", "/ad/l", ""}
	aRegistration = [3]string{"POST", "/ad/r?agent=planner", `{"base":"https://planner.example"}`}
	aRefresh      = [3]string{"POST", "/ad/r/planner", ""}
	manyRefreshes = [3]string{"POST", "/ad/refresh", `[{"id":"planner"}]`}
)

func (b *burden) sendA(name string, r [3]string) { b.send(name, r[0], r[1], r[2]) }

// Requirement: FORM-009
func TestQueriesAreShedFirstAndRefreshesLast(t *testing.T) {
	planner := entryOf(t, directory.KindAD, alpha, rid(1), "planner", 1,
		`{"base":"https://planner.example","description":"Plans a route."}`)
	planner.Owner = identity("/agent/bob") // so that policy is asked
	synctest.Test(t, func(t *testing.T) {
		b := newBurden(t, nil, planner)
		b.sendA("working", aLookup)

		for i, step := range []struct {
			name string
			kind [3]string
			shed string
		}{
			{"lookup", aLookup, ""}, {"query", aQuery, ""},
			{"registration", aRegistration, "query"}, {"another query", aQuery, "another query"},
			{"refresh", aRefresh, "lookup"}, {"another lookup", aLookup, "another lookup"},
			{"refreshes", manyRefreshes, "registration"},
			{"another registration", aRegistration, "another registration"},
			{"last", aRefresh, "last"},
		} {
			b.sendA(step.name, step.kind)

			if step.shed != "" && b.problem(step.shed) != "overloaded" {
				t.Fatalf("step %d: after a %s, a %s is answered with %q", i, step.name, step.shed, b.problem(step.shed))
			}
		}

		// What is of operators, of nodes and of anyone goes on.
		for _, target := range []string{"/v1/operator/raft", "/v1/operator/peers"} {
			wantStatus(t, ask(t, b.s, "/ops/operator", "GET", target, ""), 200)
		}

		for _, target := range []string{"/.well-known/ad", "/.well-known/agent-discovery", "/openapi.json"} {
			wantStatus(t, ask(t, b.s, "", "GET", target, ""), 200)
		}

		if resp := ask(t, b.s, "/agent/ada", "GET", "/federation/v1/heads", ""); resp.StatusCode == 503 {
			t.Errorf("a node is answered with %d", resp.StatusCode)
		}

		close(b.gate)
		synctest.Wait()

		for name, want := range map[string]string{"working": "", "refresh": "not-found", "refreshes": ""} {
			if got := b.problem(name); got == "overloaded" || got == "-" {
				t.Errorf("in the end the %s is answered with %q, want %q", name, got, want)
			}
		}

		want := []string{"queries", "queries", "lookups", "lookups", "registrations", "registrations", "refreshes"}
		if !slices.Equal(b.shed, want) {
			t.Errorf("shed were %q, want %q", b.shed, want)
		}

		resp := b.said["query"]
		if resp.StatusCode != 503 || resp.Header.Get("Retry-After") != "5" ||
			b.said["last"].Header.Get("Retry-After") != "1" {
			t.Errorf("a query is answered with %d and Retry-After %q", resp.StatusCode, resp.Header.Get("Retry-After"))
		}
	})
}

// Requirement: FORM-009
func TestAFloodOfRequestsIsNoFloodOfLogLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines bytes.Buffer
		b := newBurden(t, func(cfg *Config) {
			cfg.Logger = slog.New(slog.NewTextHandler(&lines, nil))
			cfg.MemoryInUse = func() float64 { return .9 }
		})
		close(b.gate)

		for i := range 300 {
			b.sendA(fmt.Sprint("query", i), aQuery)
			b.sendA(fmt.Sprint("lookup", i), aLookup)

			if got := b.problem(fmt.Sprint("lookup", i)); got != "overloaded" {
				t.Fatalf("lookup %d is answered with %q", i, got)
			}

			time.Sleep(100 * time.Millisecond)
		}

		got := lines.String()
		if strings.Count(got, "\n") != 3 {
			t.Errorf("in 30 seconds, 600 requests that were shed made other than 3 lines:\n%.2000s", got)
		}

		if !strings.Contains(got, `reason="This node is short of memory" queries=100 lookups=100 registrations=0`) {
			t.Errorf("no line says how many requests were shed since the one before:\n%.2000s", got)
		}
	})
}

// A stuck is a response that nobody reads, or a body that nobody sends.
type stuck struct {
	http.ResponseWriter
	io.Reader
	gate chan struct{}
}

func (s stuck) Write(b []byte) (int, error) {
	<-s.gate
	return s.ResponseWriter.Write(b)
}

func (s stuck) Read(b []byte) (int, error) {
	<-s.gate
	return s.Reader.Read(b)
}

// stuckRegistry is of a node whose leader doesn't answer.
type stuckRegistry struct {
	cutOff
	gate chan struct{}
}

func (r stuckRegistry) Refresh(context.Context, directory.RefreshRequest) (directory.Outcome, error) {
	<-r.gate
	return directory.Outcome{}, errNoLeader
}

// stuckRecords are of a domain that doesn't answer.
type stuckRecords struct{ gate chan struct{} }

func (r stuckRecords) Record(context.Context, spiffeid.TrustDomain, directory.RID) (string, error) {
	<-r.gate
	return "", errNoLeader
}

func (r stuckRecords) Proof(context.Context, spiffeid.TrustDomain, directory.RID) ([]byte, error) {
	<-r.gate
	return nil, errNoLeader
}

func (r stuckRecords) Staple(spiffeid.TrustDomain, directory.RID) ([]byte, error) {
	<-r.gate
	return nil, errNoLeader
}

// stuckEmbedder is a source of vectors that doesn't answer.
type stuckEmbedder struct{ gate chan struct{} }

func (stuckEmbedder) Model() string { return "stuck" }

func (e stuckEmbedder) Embed(ctx context.Context, _ []string) ([][]float32, error) {
	select {
	case <-e.gate:
	case <-ctx.Done():
	}

	return nil, context.DeadlineExceeded
}

// A client that is slow, and a service that doesn't answer, keep no other request waiting.
//
// Requirement: FORM-009
func TestWhatWaitsForOthersHoldsNoSlot(t *testing.T) {
	for name, slow := range map[string]func(b *burden, gate chan struct{}){
		"an answer that nobody reads": func(b *burden, gate chan struct{}) {
			r := httptest.NewRequest("GET", "/ad/l", nil)
			b.s.Handler().ServeHTTP(stuck{ResponseWriter: httptest.NewRecorder(), gate: gate}, r)
		},
		"a body that nobody sends": func(b *burden, gate chan struct{}) {
			r := httptest.NewRequest("POST", "/discovery/query",
				stuck{Reader: strings.NewReader(`{"query":"route"}`), gate: gate})
			b.s.Handler().ServeHTTP(httptest.NewRecorder(), r)
		},
		"a leader that doesn't answer": func(b *burden, _ chan struct{}) {
			ask(b.t, b.s, "/agent/ada", "POST", "/ad/r/planner", "")
		},
		"another domain that doesn't answer": func(b *burden, _ chan struct{}) {
			ask(b.t, b.s, "/agent/ada", "GET", "/ad/r/planner/record", "")
		},
		"a source of vectors that doesn't answer": func(b *burden, _ chan struct{}) {
			ask(b.t, b.s, "/agent/ada", "POST", "/discovery/query", `{"query":"route"}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				planner := entryOf(t, directory.KindAD, alpha, rid(1), "planner", 1,
					`{"base":"https://planner.example"}`)
				gate := make(chan struct{})
				b := newBurden(t, func(cfg *Config) {
					cfg.Registry, cfg.Records = stuckRegistry{cfg.Registry.(cutOff), gate}, stuckRecords{gate}

					finder, err := discovery.New(discovery.Config{View: cfg.View, Embedder: stuckEmbedder{gate}})
					must(t, err)

					t.Cleanup(finder.Close)
					cfg.Finder = finder
				}, planner)
				close(b.gate)

				for range 3 {
					go slow(b, gate)
				}

				synctest.Wait()
				b.sendA("lookup", aLookup)

				if got := b.problem("lookup"); got != "" {
					t.Errorf("a lookup is answered with %q", got)
				}

				close(gate)
			})
		})
	}
}
