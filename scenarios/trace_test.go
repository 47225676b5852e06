package scenarios

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/roster-mesh/roster/node/dev"
	"github.com/roster-mesh/roster/scenarios/launch"
)

// A collector is an OpenTelemetry collector that keeps what nodes export.
type collector struct {
	mu    sync.Mutex
	raw   bytes.Buffer
	spans map[string]*tracedSpan // by id
}

// A tracedSpan is a span with the node that exported it.
type tracedSpan struct {
	name, trace, id, parent, instance string
	attributes                        map[string]string
}

// startCollector starts a collector, and returns the URL of its traces.
func startCollector(t *testing.T) (c *collector, url string) {
	c = &collector{spans: map[string]*tracedSpan{}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = c.take(body)
		}

		if err != nil {
			t.Error(err)
			w.WriteHeader(http.StatusBadRequest)
		}
	}))
	t.Cleanup(server.Close)

	return c, server.URL + "/v1/traces"
}

func (c *collector) take(body []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.raw.Write(body)

	var received tracepb.TracesData
	if err := proto.Unmarshal(body, &received); err != nil {
		return err
	}

	for _, of := range received.ResourceSpans {
		instance := ""
		for _, a := range of.Resource.Attributes {
			if a.Key == "service.instance.id" {
				instance = a.Value.GetStringValue()
			}
		}

		for _, s := range of.ScopeSpans[0].Spans {
			span := &tracedSpan{s.Name, hex.EncodeToString(s.TraceId), hex.EncodeToString(s.SpanId),
				hex.EncodeToString(s.ParentSpanId), instance, map[string]string{}}
			for _, a := range s.Attributes {
				span.attributes[a.Key] = a.Value.GetStringValue() + fmt.Sprint(a.Value.GetIntValue())
			}

			c.spans[span.id] = span
		}
	}

	return nil
}

// ancestry returns the names from a span to the first one of its trace that is known, and that one.
func (c *collector) ancestry(span *tracedSpan) (names []string, first *tracedSpan) {
	for s := span; s != nil; s = c.spans[s.parent] {
		names, first = append(names, s.name), s
	}

	return names, first
}

// find returns a span that was exported with an ancestry, for which holds holds.
func (c *collector) find(ancestry string, holds func(span, first *tracedSpan) bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()

	for _, span := range c.spans {
		if names, first := c.ancestry(span); strings.Join(names, " < ") == ancestry && holds(span, first) {
			return nil
		}
	}

	return fmt.Errorf("no span %s in %d spans", ancestry, len(c.spans))
}

// children returns the names of the steps of the request to a route.
func (c *collector) children(method, route string) (names []string) {
	c.mu.Lock()
	defer c.mu.Unlock()

	for _, span := range c.spans {
		for parent := c.spans[span.parent]; parent != nil; parent = c.spans[parent.parent] {
			if parent.attributes["http.route"] == route+"0" && parent.attributes["http.request.method"] == method+"0" {
				names = append(names, span.name)
			}
		}
	}

	slices.Sort(names)

	return slices.Compact(names)
}

// Traces cross programs: one continues from the gateway of a node to the agent, from the agent to a
// follower, and from there to the leader; another from the node that pulls a page to the peer's. Each
// step of a registration and of a query has a span. No byte of an export is a name, a query, a
// document or an identity. A stranger's trace is not continued.
//
// Requirement: OPS-030
func TestTracesCrossNodesAndTellNothing(t *testing.T) {
	t.Parallel() // most of its time it waits for processes

	const (
		asked    = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
		stranger = "00-c0ffee1916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	)

	spans, url := startCollector(t)
	p := startProcesses(t, "--domains", "2", "--nodes", "3", "--sample", "0", "--trace", url)
	leader := p.leader(0)
	follower := slices.IndexFunc(p.Domains[0].Nodes, func(n dev.Node) bool { return n.ID != leader.ID })
	at := p.Domains[0].Nodes[follower].API

	document := func(at string) string {
		return fmt.Sprintf(`{"base": %q, "protocols": ["https"], "tags": ["canary-tag"], "description": "canary words",
			"capabilities": [{"name": "canary-translate", "type": "tool"}]}`, at)
	}
	shown := make(chan string, 10)
	agent := launch.Agent(p.t, &p.Domains[0], "agent/ada", func(w http.ResponseWriter, r *http.Request) {
		trace := r.Header.Get("Traceparent")
		shown <- trace

		got := exchangeOf(t, p.http(0, "agent/bob"), at, "POST", "/ad/r?agent=canary-second",
			document("https://127.0.0.1:1025/"), "Traceparent", trace)
		if got.status != http.StatusCreated {
			t.Errorf("%d %s", got.status, got.body)
		}

		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"text": "canary-output"}`)
	})

	exchangeOf(t, p.http(0, "agent/ada"), at, "POST", "/ad/r?agent=canary-first", document(agent.URL+"/a")).want(t, 201)

	// The agent, called in a caller's trace, registers another at a follower.
	exchangeOf(t, p.http(0, "agent/bob"), at, "POST", "/agents/canary-first/invoke", `{"text": "canary-input"}`,
		"Traceparent", asked, "Tracestate", "vendor=canary", "Baggage", "who=canary").want(t, 200)

	if got := <-shown; !strings.HasPrefix(got, asked[:36]) || got == asked {
		t.Errorf("the agent was shown the trace %q, want another parent of %q", got, asked)
	}

	// Queries, by callers of the domain, of a peer and of none.
	ranked := `{"query": "canary-query translate words", "required_tags": ["canary-tag"]}`
	for who, domain := range map[string]int{"agent/ada": 0, "agent/bob": 1, "": 0} {
		header := []string{"Traceparent", stranger}
		if who == "agent/ada" {
			header = nil
		}

		for _, target := range []string{"/discovery/query", "/agents/search", "/agents/resolve"} {
			text := ranked
			if target == "/agents/resolve" {
				text = `{"intent": "canary-query words"}`
			}

			p.traced(domain, who, http.MethodPost, target, text, header...)
		}

		p.traced(domain, who, http.MethodGet, "/ad/l?tag=canary-tag&agent=canary-first", "", header...)
		p.traced(domain, who, http.MethodGet, "/ad/r/canary-first", "", header...)
		p.traced(domain, who, http.MethodGet, "/canary-nothing", "", header...)
	}

	own := func(span, first *tracedSpan) bool {
		return span.trace == asked[3:35] && first.parent == asked[36:52]
	}

	for ancestry, holds := range map[string]func(span, first *tracedSpan) bool{
		"write.apply < write.accept < write.forward < write < request < invoke.agent < invoke < request": own,
		"write.commit < write.accept < write.forward < write < request < invoke.agent < invoke < request": func(span,
			first *tracedSpan) bool {
			return own(span, first) && span.instance != first.instance
		},
		"request < federation.ask < federation.page": func(span, first *tracedSpan) bool {
			return span.instance != first.instance && span.attributes["http.route"] == "/federation/v1/pages0" &&
				span.attributes["http.response.status_code"] == "200"
		},
		"federation.verify < federation.page": anySpan,
		"request < federation.fetch < federation.page": func(span, first *tracedSpan) bool {
			return span.instance != first.instance
		},
		"federation.open < federation.page":  anySpan,
		"federation.store < federation.page": anySpan,
		"federation.index < federation.page": anySpan,
		"policy < lookup < request":          anySpan,
		"policy < rank < request":            anySpan,
	} {
		p.eventually("a span arrives", func() error { return spans.find(ancestry, holds) })
	}

	for call, want := range map[[2]string]string{
		{"POST", "/ad/r"}: "admit answer authorise parse project write write.accept write.apply write.commit " +
			"write.forward write.prepare write.queue",
		{"GET", "/ad/l"}:             "admit lookup parse policy render",
		{"POST", "/discovery/query"}: "admit parse policy rank render",
		{"POST", "/agents/search"}:   "admit parse policy rank render",
		{"POST", "/agents/resolve"}:  "admit parse policy rank render",
		{"GET", "/ad/r/{id}"}:        "admit lookup render",
	} {
		p.eventually("each step has a span", func() error {
			if got := strings.Join(spans.children(call[0], call[1]), " "); got != want {
				return fmt.Errorf("%s %s has the steps %s, want %s", call[0], call[1], got, want)
			}

			return nil
		})
	}

	spans.tellNothing(t, stranger[3:35])
}

func anySpan(_, _ *tracedSpan) bool { return true }

// traced makes a request at the first node of the first domain, whatever the answer.
func (p *processes) traced(domain int, who, method, target, body string, header ...string) {
	p.t.Helper()

	client := p.http(domain, who)
	client.Transport.(*http.Transport).TLSClientConfig.RootCAs = p.http(0, "").Transport.(*http.Transport).
		TLSClientConfig.RootCAs

	exchangeOf(p.t, client, p.Domains[0].Nodes[0].API, method, target, body, header...)
}

// tellNothing fails the test if an exported byte is of a caller, or a span has a trace that was not to
// be continued.
func (c *collector) tellNothing(t *testing.T, notContinued string) {
	c.mu.Lock()
	defer c.mu.Unlock()

	text := strings.ToLower(c.raw.String())
	for _, word := range []string{"canary", "spiffe:", "alpha.test", "beta.test", "agent/ada", "127.0.0.1"} {
		if at := strings.Index(text, word); at >= 0 {
			t.Errorf("%q is exported: %q", word, text[max(0, at-80):min(len(text), at+80)])
		}
	}

	known := []string{"http.request.method", "http.route", "http.response.status_code", "roster.items"}
	for _, span := range c.spans {
		for key := range span.attributes {
			if !slices.Contains(known, key) {
				t.Errorf("a span %s has the attribute %s", span.name, key)
			}
		}

		if span.trace == notContinued {
			t.Errorf("a stranger's trace is continued by %s", span.name)
		}
	}
}
