package gateway_test

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/gateway"
)

// A scriptedServer is an MCP server of 2025-11-25 whose answers to tools/list and tools/call a test
// writes.
type scriptedServer struct {
	list, call, rest func(w http.ResponseWriter, r *http.Request, id string)
	self             string // members of its description; a name, and tools, if it is ""

	mu       sync.Mutex // guards what follows
	asked    []string   // method or, of a GET, the last event's id
	initials string     // parameters of initialize
}

func (s *scriptedServer) serve(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	_, after, _ := strings.Cut(string(body), `"method":"`)
	method, _, _ := strings.Cut(after, `"`)
	_, after, _ = strings.Cut(string(body), `"id":`)
	id := strings.TrimRight(strings.FieldsFunc(after+" ", func(r rune) bool { return r == ',' || r == '}' })[0], " ")

	if r.Method == http.MethodGet {
		method = "GET " + r.Header.Get("Last-Event-Id")
	}

	s.mu.Lock()
	s.asked = append(s.asked, method)

	if method == "initialize" {
		s.initials = string(body)
	}

	s.mu.Unlock()

	w.Header().Set("Content-Type", "application/json")

	switch {
	case r.Method == http.MethodGet:
		w.Header().Set("Content-Type", "text/event-stream")
		s.rest(w, r, "")
	case r.Method == http.MethodDelete:
	case method == "initialize":
		w.Header().Set("Mcp-Session-Id", "s1")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25"%s}}`, id,
			cmp.Or(s.self, `,"capabilities":{"tools":{}},"serverInfo":{"name":"m","version":"1"}`))
	case method == "tools/list":
		s.list(w, r, id)
	case method == "tools/call":
		w.Header().Set("Content-Type", "text/event-stream")
		s.call(w, r, id)
	case strings.HasPrefix(method, "notifications/"):
		w.WriteHeader(http.StatusAccepted)
	default:
		http.Error(w, "no such method", http.StatusBadRequest)
	}
}

func (s *scriptedServer) count(prefix string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()

	for _, a := range s.asked {
		if strings.HasPrefix(a, prefix) {
			n++
		}
	}

	return n
}

func mcpEntry(t *testing.T, address string) *directory.Entry {
	return entry(t, directory.KindMCP, "m",
		fmt.Sprintf(`{"name": "test.alpha/m", "description": "D", "remotes": [{"type": "streamable-http",`+
			` "url": %q}]}`, address))
}

func oneTool(w http.ResponseWriter, _ *http.Request, id string) {
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"tools":[{"name":"say","inputSchema":{"type":"object"}}]}}`, id)
}

// A server may end the stream of an answer: the rest is asked for by GET after its retry, until the
// answer has come, and the call is sent once. A failure on the way is no reason to send it again.
//
// Requirement: FLD-030, FLD-015
func TestMCPAnswerWhoseStreamTheServerEnds(t *testing.T) {
	const result = `{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"{\"n\":1}"}]}}`

	callID := ""
	later := func(w http.ResponseWriter, _ *http.Request, id string) {
		callID = id
		fmt.Fprint(w, "id: e1\nretry: 10\ndata:\n\n")
	}

	for _, tc := range []struct {
		name       string
		call, rest func(w http.ResponseWriter, r *http.Request, id string)
		gets       int
		want       string
		problem    directory.Problem
	}{
		{"an answer at the first request for the rest", later, func(w http.ResponseWriter, _ *http.Request, _ string) {
			fmt.Fprintf(w, "id: e2\ndata: "+result+"\n\n", callID)
		}, 1, `{"n":1}`, ""},
		{"streams that bring nothing first", later, func() func(http.ResponseWriter, *http.Request, string) {
			n := 0

			return func(w http.ResponseWriter, r *http.Request, _ string) {
				if n++; n == 3 && r.Header.Get("Last-Event-Id") == "e1" {
					fmt.Fprintf(w, "data: "+result+"\n\n", callID)
				} else {
					fmt.Fprint(w, "retry: 10\n\n")
				}
			}
		}(), 3, `{"n":1}`, ""},
		{"a server that has no such resource", later, func(w http.ResponseWriter, _ *http.Request, _ string) {
			w.WriteHeader(http.StatusNotFound)
		}, 1, "", directory.AgentFailed},
		{"a server that is unavailable for the rest", later, func(w http.ResponseWriter, _ *http.Request, _ string) {
			w.WriteHeader(http.StatusServiceUnavailable)
		}, 1, "", directory.AgentFailed},
		{"an answer behind a byte order mark, by CR", func(w http.ResponseWriter, _ *http.Request, id string) {
			fmt.Fprintf(w, "\xef\xbb\xbfdata: "+result+"\r\r", id)
		}, nil, 0, `{"n":1}`, ""},
	} {
		s := newStage(t, nil)
		script := &scriptedServer{list: oneTool, call: tc.call, rest: tc.rest}
		got, err := invokeAgent(s, mcpEntry(t, s.agent(t, script.serve).URL), "say", `{}`)

		if got != tc.want || tc.problem != "" && directory.ProblemOf(err) != tc.problem ||
			tc.problem == "" && err != nil {
			t.Errorf("%s: %s, %v", tc.name, got, err)
		}

		if script.count("tools/call") != 1 || script.count("GET") != tc.gets || script.count("GET e") != tc.gets {
			t.Errorf("%s: asked %q", tc.name, script.asked)
		}

		if strings.Contains(script.initials, "roots") {
			t.Errorf("a capability that isn't there: %s", script.initials)
		}
	}
}

// A server that repeats a cursor ends its list: each tool is there once, and an error says so.
//
// Requirement: FLD-017
func TestMCPServerThatRepeatsItsCursor(t *testing.T) {
	s := newStage(t, nil)
	script := &scriptedServer{
		list: func(w http.ResponseWriter, _ *http.Request, id string) {
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"nextCursor":"c","tools":[
				{"name":"say","inputSchema":{"type":"object"}}]}}`, id)
		},
		call: func(w http.ResponseWriter, _ *http.Request, id string) {
			fmt.Fprintf(w, "data: "+`{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"{}"}]}}`+"\n\n", id)
		},
	}
	server := s.agent(t, script.serve)
	e := mcpEntry(t, server.URL)

	if got, err := invokeAgent(s, e, "", `{}`); got != "{}" || script.count("tools/list") != 2 {
		t.Errorf("%s, %v: asked %q", got, err, script.asked)
	}

	if _, err := invokeAgent(s, e, "sing", `{}`); err == nil ||
		!strings.Contains(err.Error(), `it has "say"; the server repeats a cursor`) {
		t.Errorf("no such tool: %v", err)
	}

	guard := newGuard(t, gateway.GuardConfig{Allow: loopback, Roots: s.authority.pool()})

	said, err := guard.DescribeMCP(t.Context(), server.URL, gateway.Target{})
	if err != nil || fmt.Sprint(said.Tools) != "[{say }]" || said.AllTools {
		t.Errorf("%+v, %v", said, err)
	}
}

// A server without tools isn't asked for them; one that doesn't say what it is says nothing.
func TestMCPServersThatDescribeLittle(t *testing.T) {
	authority := newCA(t, "alpha.test")
	guard := newGuard(t, gateway.GuardConfig{Allow: loopback, Roots: authority.pool()})

	for self, name := range map[string]string{
		`,"capabilities":{},"serverInfo":{"name":"m","version":"1"}`: "m",
		`,"serverInfo":{"name":"m","version":"1"}`:                   "m",
		`,"capabilities":{"tools":{}}`:                               "",
	} {
		script := &scriptedServer{list: oneTool, self: self}
		server := serve(t, authority.leaf(t, "127.0.0.1", alpha), http.HandlerFunc(script.serve))

		said, err := guard.DescribeMCP(t.Context(), server.URL, gateway.Target{})
		if name == "" {
			if !errors.Is(err, gateway.ErrNothingSaid) {
				t.Errorf("%s: %+v, %v", self, said, err)
			}
		} else if err != nil || said.Name != name || len(said.Tools) != 0 || !said.AllTools ||
			script.count("tools/list") != 0 {
			t.Errorf("%s: %+v, %v; asked %q", self, said, err, script.asked)
		}
	}
}
