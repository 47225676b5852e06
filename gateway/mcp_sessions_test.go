package gateway_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/invoke"
	"github.com/roster-mesh/roster/gateway"
)

// A toolServer is a real MCP server that can be started anew, and what was asked of it.
type toolServer struct {
	url    string
	modern bool // it speaks the protocol without sessions

	mu      sync.Mutex // guards what follows
	handler http.Handler
	asked   []asked
	calls   int // of its tools
	stale   int // requests that end a session, and show what was another request's
	keyed   int // requests with an Idempotency-Key
}

type asked struct{ what, session, secret string }

func newToolServer(t *testing.T, s *stage, modern bool, tools ...string) *toolServer {
	ts := &toolServer{modern: modern}
	ts.restart(tools...)
	ts.url = s.agent(t, ts.serve).URL

	return ts
}

func (ts *toolServer) restart(tools ...string) {
	m := mcp.NewServer(&mcp.Implementation{Name: "agent", Version: "1"}, nil)
	for _, name := range tools {
		mcp.AddTool(m, &mcp.Tool{Name: name, Description: "Repeats."},
			func(_ context.Context, _ *mcp.CallToolRequest, in struct {
				Text string `json:"text"`
			}) (*mcp.CallToolResult, any, error) {
				ts.mu.Lock()
				defer ts.mu.Unlock()
				ts.calls++

				return nil, map[string]string{"text": name + ":" + in.Text}, nil
			})
	}

	ts.mu.Lock()
	defer ts.mu.Unlock()
	ts.handler = mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server {
		return m
	}, &mcp.StreamableHTTPOptions{Stateless: ts.modern})
}

func (ts *toolServer) serve(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))

	what := r.Method
	for _, method := range []string{"server/discover", "initialize", "notifications/initialized", "tools/list",
		"tools/call"} {
		if bytes.Contains(body, []byte(`"method":"`+method+`"`)) {
			what = method
		}
	}

	ts.mu.Lock()
	ts.asked = append(ts.asked, asked{what, r.Header.Get("Mcp-Session-Id"), r.Header.Get("X-Secret")})

	if what == http.MethodDelete && r.Header.Get("X-Request-Id") != "" {
		ts.stale++
	}

	if r.Header.Get("Idempotency-Key") != "" {
		ts.keyed++
	}

	h := ts.handler
	ts.mu.Unlock()

	if what == "server/discover" && !ts.modern {
		http.Error(w, "no such method", http.StatusBadRequest)
		return
	}

	h.ServeHTTP(w, r)
}

// count returns how often something was asked for.
func (ts *toolServer) count(what string) (n int) {
	ts.mu.Lock()
	defer ts.mu.Unlock()

	for _, a := range ts.asked {
		if a.what == what {
			n++
		}
	}

	return n
}

// sessions are those that something was asked for in, each once.
func (ts *toolServer) sessions(what string) (all []asked) {
	ts.mu.Lock()
	defer ts.mu.Unlock()

	for _, a := range ts.asked {
		if a.what == what && !slices.Contains(all, a) {
			all = append(all, a)
		}
	}

	return all
}

func (ts *toolServer) entry(t *testing.T, statement uint64) *directory.Entry {
	e := entry(t, directory.KindMCP, "m",
		fmt.Sprintf(`{"name": "test.alpha/m", "description": "D", "remotes": [{"type": "streamable-http",`+
			` "url": %q}]}`, ts.url))
	e.Statement = statement

	return e
}

// say invokes the agent, and fails unless it answers.
func (ts *toolServer) say(t *testing.T, s *stage, caller directory.Identity,
	change ...func(*directory.Entry, *invoke.Request)) {
	t.Helper()

	e, in := ts.entry(t, 1), invoke.Request{Operation: "say", Body: []byte(`{"text":"a"}`), Caller: caller,
		RequestID: "request"}
	for _, f := range change {
		f(e, &in)
	}

	if r, err := s.Invoke(t.Context(), e, in); err != nil || string(r.Body) != `{"text":"`+in.Operation+`:a"}` {
		t.Fatalf("%s: %+v, %v", in.Operation, r, err)
	}
}

func end(t *testing.T, s *stage) {
	t.Helper()
	bound, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()

	must(t, s.Close(bound))
}

// A caller's next call of an MCP agent goes in the session of the last one, and nobody
// else's does: no other caller's, none of what the agent gets other header fields with,
// none after the registration has changed. All of them are ended.
//
// Requirement: AI-017, WOA-011
func TestMCPSessionsAreTheCallersOwn(t *testing.T) {
	s := newStage(t, func(c *gateway.Config) { c.PassHeaders = map[string][]string{"m": {"X-Secret"}} })
	ts := newToolServer(t, s, false, "say", "hum")
	secret := func(text string) func(*directory.Entry, *invoke.Request) {
		return func(_ *directory.Entry, in *invoke.Request) { in.Header = http.Header{"X-Secret": {text}} }
	}

	one, two := directory.IdentityOf(beta), directory.IdentityOf(alpha)
	for range 3 {
		ts.say(t, s, one)
	}

	if n := ts.count("initialize"); n != 1 || ts.count("tools/list") != 1 || ts.count("tools/call") != 3 ||
		ts.count("DELETE") != 0 {
		t.Errorf("three calls of one caller: %+v", ts.asked)
	}

	for n := range 2 {
		ts.say(t, s, two)
		ts.say(t, s, one, secret("1"))
		ts.say(t, s, one, secret("2"))
		ts.say(t, s, one, func(e *directory.Entry, _ *invoke.Request) { e.Statement = 2 })

		if got := ts.count("initialize"); got != 5 {
			t.Errorf("calls that share nothing, time %d: %d sessions", n, got)
		}
	}

	ts.say(t, s, directory.Identity{})
	ts.say(t, s, directory.Identity{})

	calls := ts.sessions("tools/call")
	if len(calls) != 7 || ts.count("initialize") != 7 {
		t.Errorf("nobody in particular shares a session: %+v", calls)
	}

	end(t, s)

	ended := ts.sessions("DELETE")
	for _, c := range calls {
		if !slices.Contains(ended, asked{"DELETE", c.session, c.secret}) || c.session == "" {
			t.Errorf("session %+v is not ended in its caller's name: %+v", c, ended)
		}
	}

	if len(ended) != 7 || ts.count("DELETE") != 7 || ts.stale > 0 {
		t.Errorf("ended are %+v, %d of them by a request of a call", ended, ts.stale)
	}
}

// A server that was started anew knows no session. Nothing was done in it, and the call
// is made once more, in a new one: once, and no more often.
//
// Requirement: AI-012
func TestMCPSessionsThatServersForget(t *testing.T) {
	s := newStage(t, nil)

	caller := directory.IdentityOf(beta)
	for _, modern := range []bool{false, true} {
		ts := newToolServer(t, s, modern, "say")
		for range 2 {
			ts.say(t, s, caller)
			ts.restart("say", "sing")
		}

		ts.say(t, s, caller, func(_ *directory.Entry, in *invoke.Request) { in.Operation = "sing" })

		if ts.calls != 3 {
			t.Errorf("modern %t: three calls are %d", modern, ts.calls)
		}

		if n := ts.count("tools/call"); modern && n != 3 || !modern && (n != 5 || ts.count("initialize") != 3) {
			t.Errorf("modern %t: %d requests, %+v", modern, n, ts.asked)
		}

		// Nothing of the tool that the forgotten session had is left in the second attempt.
		only := newToolServer(t, s, modern, "say")
		for _, name := range []string{"say", "sing"} {
			only.restart(name)

			reply, err := s.Invoke(t.Context(), only.entry(t, 1),
				invoke.Request{Body: []byte(`{"text":"a"}`), Caller: caller})
			if !modern && (err != nil || string(reply.Body) != `{"text":"`+name+`:a"}`) {
				t.Errorf("the only tool is %s: %+v, %v", name, reply, err)
			}
		}

		ts.mu.Lock()
		real, tries := ts.handler, 0
		ts.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			if r.Body = io.NopCloser(bytes.NewReader(body)); strings.Contains(string(body), `"tools/call"`) {
				tries++
				http.Error(w, "never heard of it", http.StatusNotFound)

				return
			}

			real.ServeHTTP(w, r)
		})
		ts.mu.Unlock()

		_, err := s.Invoke(t.Context(), ts.entry(t, 1),
			invoke.Request{Operation: "say", Body: []byte(`{"text":"a"}`), Caller: caller})
		if want := map[bool]int{false: 2, true: 1}[modern]; directory.ProblemOf(err) != directory.AgentFailed ||
			tries != want {
			t.Errorf("modern %t: a server that knows none: %v after %d tries, want %d", modern, err, tries, want)
		}
	}
}

// What a server listed a while ago refuses nothing.
func TestMCPToolsThatAreNew(t *testing.T) {
	s := newStage(t, nil)
	ts := newToolServer(t, s, false, "say")
	m := mcp.NewServer(&mcp.Implementation{Name: "agent", Version: "1"}, nil)
	ts.handler = mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return m }, nil)
	add := func(name string) {
		mcp.AddTool(m, &mcp.Tool{Name: name, Description: "Repeats."},
			func(_ context.Context, _ *mcp.CallToolRequest, in struct {
				Text string `json:"text"`
			}) (*mcp.CallToolResult, any, error) {
				return nil, map[string]string{"text": name + ":" + in.Text}, nil
			})
	}

	caller := directory.IdentityOf(beta)
	for n, name := range []string{"say", "sing"} {
		add(name)

		for range 2 {
			ts.say(t, s, caller, func(_ *directory.Entry, in *invoke.Request) { in.Operation = name })
		}

		if got := ts.count("tools/list"); got != n+1 || ts.count("initialize") != 1 {
			t.Errorf("%d lists of tools, want %d: %+v", got, n+1, ts.asked)
		}
	}
}

// An answer isn't refused by an output schema that the server has no more.
//
// Requirement: AI-035
func TestMCPToolsThatAnswerOtherwise(t *testing.T) {
	s := newStage(t, nil)
	ts := newToolServer(t, s, true, "say")

	caller := directory.IdentityOf(beta)
	for _, schema := range []string{`{"type":"object","required":["text"]}`, `{"type":"object","required":["said"]}`} {
		m := mcp.NewServer(&mcp.Implementation{Name: "agent", Version: "1"}, nil)
		m.AddTool(&mcp.Tool{Name: "say", InputSchema: json.RawMessage(`{"type":"object"}`),
			OutputSchema: json.RawMessage(schema)},
			func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				member := "text"
				if strings.Contains(schema, "said") {
					member = "said"
				}

				return &mcp.CallToolResult{StructuredContent: map[string]string{member: "a"}}, nil
			})
		ts.mu.Lock()
		ts.handler = mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server {
			return m
		}, &mcp.StreamableHTTPOptions{Stateless: true})
		ts.mu.Unlock()

		for range 2 {
			if _, err := s.Invoke(t.Context(), ts.entry(t, 1),
				invoke.Request{Operation: "say", Body: []byte(`{"text":"a"}`), Caller: caller}); err != nil {
				t.Errorf("with %s: %v", schema, err)
			}
		}
	}

	if got := ts.count("tools/list"); got != 2 {
		t.Errorf("%d lists of tools, want 2: %+v", got, ts.asked)
	}
}

// However many call an agent, few sessions with it are kept.
func TestMCPSessionsAreFew(t *testing.T) {
	s := newStage(t, nil)
	ts := newToolServer(t, s, false, "say")

	const callers, most = 20, 16
	for n := range callers {
		ts.say(t, s, directory.IdentityOf(spiffeid.RequireFromString(fmt.Sprintf("spiffe://beta.test/agent/%d", n))))
	}

	again := time.Tick(time.Millisecond)
	for began := time.Now(); ts.count("DELETE") < callers-most && time.Since(began) < 20*time.Second; {
		<-again
	}

	if got := ts.count("DELETE"); got != callers-most {
		t.Errorf("%d sessions are ended, want %d", got, callers-most)
	}

	end(t, s)

	if got := ts.count("DELETE"); got != callers {
		t.Errorf("%d sessions are ended, want all", got)
	}
}

// Calls that are made at once are in sessions of their own, of which some are kept.
func TestMCPSessionsAtOnce(t *testing.T) {
	s := newStage(t, nil)
	ts := newToolServer(t, s, false, "say")

	var all sync.WaitGroup
	for n := range 12 {
		all.Go(func() {
			caller := directory.IdentityOf(spiffeid.RequireFromString(fmt.Sprintf("spiffe://beta.test/agent/%d", n%3)))
			for range 4 {
				r, err := s.Invoke(t.Context(), ts.entry(t, 1),
					invoke.Request{Operation: "say", Body: []byte(`{"text":"a"}`), Caller: caller})
				if err != nil || string(r.Body) != `{"text":"say:a"}` {
					t.Errorf("%+v, %v", r, err)
				}
			}
		})
	}

	all.Wait()
	end(t, s)

	if opened := ts.count("initialize"); ts.calls != 48 || opened > 12 || ts.count("DELETE") != opened {
		t.Errorf("%d calls in %d sessions, of which %d are ended", ts.calls, opened, ts.count("DELETE"))
	}
}
