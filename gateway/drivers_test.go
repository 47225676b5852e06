package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/invoke"
)

// A real MCP server's tools, known to the registration or not.
//
// Requirement: WOA-011, WOA-027
func TestMCP(t *testing.T) {
	s := newStage(t, nil)

	type text struct {
		Text string `json:"text"`
	}
	server := func(names ...string) *httptest.Server {
		m := mcp.NewServer(&mcp.Implementation{Name: "agent", Version: "1"}, nil)
		for _, name := range names {
			mcp.AddTool(m, &mcp.Tool{Name: name, Description: "Repeats."},
				func(_ context.Context, _ *mcp.CallToolRequest, in text) (*mcp.CallToolResult, text, error) {
					if in.Text == "fail" {
						return nil, text{}, errors.New("secret")
					}

					return nil, text{name + ":" + in.Text}, nil
				})
		}

		h := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return m }, nil)

		return s.agent(t, h.ServeHTTP)
	}
	card := func(url string) *directory.Entry {
		return entry(t, directory.KindMCP, "m",
			fmt.Sprintf(`{"name": "test.alpha/m", "description": "D", "remotes": [{"type": "streamable-http",`+
				` "url": %q}]}`, url))
	}
	told := func(url, tools string) *directory.Entry {
		return entry(t, directory.KindMCP, "m",
			fmt.Sprintf(`{"name": "test.alpha/m", "description": "D", "remotes": [{"type": "streamable-http",`+
				` "url": %q}], "_meta": {"io.modelcontextprotocol.registry/publisher-provided": {"tools": %s}}}`,
				url, tools))
	}
	woa := func(url, field string) *directory.Entry {
		return entry(t, directory.KindWoA, "tr@host",
			fmt.Sprintf(`{"woa_version": "1", "agents": [`+
				`{"id": "tr", "name": "T", "description": "D", "transports": ["mcp"],
			"inputs": {"type": "object", "required": ["text"]}, "outputs": {"type": "object"}}],
			"transports": {"mcp": {"server": %q, "tool_namespace": "ns", "tool_field": %q}}}`, url, field))
	}

	one, two, bare, prefixed := server("say"), server("say", "sing"), server("tr"), server("ns_tr", "ns_x", "tr")
	for _, tc := range []struct {
		name            string
		e               *directory.Entry
		operation, body string
		want            string
		problem         directory.Problem
	}{
		{"the only tool", card(one.URL), "", `{"text":"a"}`, `{"text":"say:a"}`, ""},
		{"one of two", card(two.URL), "sing", `{"text":"a"}`, `{"text":"sing:a"}`, ""},
		{"a text is the one argument", card(one.URL), "", `"a"`, `{"text":"say:a"}`, ""},
		{"none of two", card(two.URL), "", `{"text":"a"}`, "", directory.BadRequest},
		{"no such tool", card(two.URL), "hum", `{"text":"a"}`, "", directory.NotFound},
		{"against the tool's schema", card(one.URL), "", `{"text":5}`, "", directory.BadInput},
		{"the tool fails", card(one.URL), "", `{"text":"fail"}`, "", directory.AgentFailed},
		{"told by the document", told(two.URL, `[{"name": "sing"}]`), "", `{"text":"a"}`, `{"text":"sing:a"}`, ""},
		{"told, and judged by the server's schema", told(two.URL, `["sing"]`), "", `{"text":5}`, "",
			directory.BadInput},
		{"not told by the document", told(two.URL, `["sing"]`), "say", `{"text":"a"}`, `{"text":"say:a"}`, ""},
		{"no longer there", told(one.URL, `["say", "sing"]`), "sing", `{"text":"a"}`, "", directory.NotFound},
		{"known to the registration",
			aidip(t, two.URL, `"protocols": ["mcp"], "operations": [`+strings.ReplaceAll(translate, `"translate"`,
				`"sing"`)+`]`), "", `{"text":"a"}`, `{"text":"sing:a"}`, ""},
		{"a batch, for which a tool has no place",
			aidip(t, two.URL, `"protocols": ["mcp"], "operations": [`+
				strings.ReplaceAll(translate[:len(translate)-1]+`, "batch": true}`, `"translate"`, `"sing"`)+`]`), "",
			`[{"text":"a"},{"text":"b"}]`, `[{"text":"sing:a"},{"text":"sing:b"}]`, ""},
		{"woa, bare", woa(bare.URL, "agent"), "", `{"agent":"tr","input":{"text":"a"}}`, `{"text":"tr:a"}`, ""},
		{"woa, prefixed", woa(prefixed.URL, "agent"), "", `{"text":"a"}`, `{"text":"ns_tr:a"}`, ""},
		{"woa, by a member", woa(prefixed.URL, "tool"), "", `{"agent":"tr","tool":"x","input":{"text":"a"}}`,
			`{"text":"ns_x:a"}`, ""},
		{"woa, the member is missing", woa(prefixed.URL, "tool"), "", `{"agent":"tr","input":{"text":"a"}}`, "",
			directory.BadRequest},
	} {
		got, err := invokeAgent(s, tc.e, tc.operation, tc.body)
		if got != tc.want || tc.problem != "" && directory.ProblemOf(err) != tc.problem ||
			err != nil && (tc.problem == "" || strings.Contains(err.Error(), "secret")) {
			t.Errorf("%s: %s, %v (%s)", tc.name, got, err, directory.ProblemOf(err))
		}
	}
}

// Both versions of A2A, by both of the transports that are spoken.
func TestA2A(t *testing.T) {
	s := newStage(t, nil)
	answer := ""

	var got, path, version string
	agent := s.agent(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)

		got, path, version = string(body), r.URL.Path, r.Header.Get("A2A-Version")
		if strings.Contains(r.Header.Get("Accept"), "event-stream") {
			w.Header().Set("Content-Type", "text/event-stream")
		} else {
			w.Header().Set("Content-Type", "application/json")
		}

		io.WriteString(w, answer)
	})

	card := func(rest string) *directory.Entry {
		return entry(t, directory.KindA2A, "a",
			`{"name": "A", "description": "D", "version": "1", "skills": [{"id": "sing", "name": "S",`+
				` "description": "D", "tags": []}], `+strings.ReplaceAll(rest, "URL", agent.URL)+`}`)
	}
	for _, tc := range []struct {
		name                  string
		e                     *directory.Entry
		operation, body       string
		stream                bool
		answer, path, version string
		sent                  []string
		want                  string
		problem               directory.Problem
	}{
		{"0.3", card(`"url": "URL/rpc"`), "", `{"text":"hi"}`, false,
			`{"jsonrpc":"2.0","id":"1","result":{"kind":"message"}}`, "/rpc", "",
			[]string{`"method":"message/send"`, `"role":"user"`, `"kind":"message"`, `{"kind":"text","text":"hi"}`},
			`{"kind":"message"}`, ""},
		{"0.3, a text alone", card(`"url": "URL/rpc"`), "", `"hi \"you\""`, false,
			`{"jsonrpc":"2.0","id":"1","result":{"kind":"message"}}`, "/rpc", "",
			[]string{`"parts":[{"kind":"text","text":"hi \"you\""}]`}, `{"kind":"message"}`, ""},
		{"1.0",
			card(`"supportedInterfaces": [{"url": "URL/rpc", "protocolBinding": "JSONRPC",` +
				` "protocolVersion": "1.0"}]`), "sing", `{"text":"hi","loud":true}`, false,
			`{"jsonrpc":"2.0","id":"1","result":{"task":{"status":{"state":"TASK_STATE_COMPLETED"}}}}`, "/rpc", "1.0",
			[]string{`"method":"SendMessage"`, `"role":"ROLE_USER"`, `{"data":{"text":"hi","loud":true}}`,
				`"metadata":{"skillId":"sing"}`}, `{"task":{"status":{"state":"TASK_STATE_COMPLETED"}}}`, ""},
		{"1.0 over HTTP",
			card(`"supportedInterfaces": [{"url": "URL/v", "protocolBinding": "HTTP+JSON",` +
				` "protocolVersion": "1.0"}]`), "", `{"message":{"role":"ROLE_USER","parts":[]},"tenant":"t"}`, false,
			`{"message":{}}`, "/v/message:send", "1.0", []string{`"messageId":"`}, `{"message":{}}`,
			""},
		{"1.0, a message that is a text", card(`"supportedInterfaces": [{"url": "http://127.0.0.1/old",` +
			` "protocolBinding": "JSONRPC", "protocolVersion": "0.3"}, {"url": "URL/rpc",` +
			` "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}]`), "", `{"message":"hi"}`, false,
			`{"jsonrpc":"2.0","id":"1","result":{}}`, "/rpc", "1.0", []string{`{"data":{"message":"hi"}}`}, `{}`, ""},
		{"1.0 over HTTP, a failed task",
			card(`"supportedInterfaces": [{"url": "URL/v", "protocolBinding": "HTTP+JSON",` +
				` "protocolVersion": "1.0"}]`), "", `{"text":"hi"}`, false,
			`{"task":{"status":{"state":"TASK_STATE_FAILED"}}}`, "/v/message:send", "1.0", nil, "",
			directory.AgentFailed},
		{"1.0 over HTTP, no JSON",
			card(`"supportedInterfaces": [{"url": "URL/v", "protocolBinding": "HTTP+JSON",` +
				` "protocolVersion": "1.0"}]`), "", `{"text":"hi"}`, false, `no`, "/v/message:send", "1.0", nil, "",
			directory.AgentFailed},
		{"1.0 over HTTP, streamed",
			card(`"supportedInterfaces": [{"url": "URL/v", "protocolBinding": "HTTP+JSON",` +
				` "protocolVersion": "1.0"}]`), "", `{"text":"hi"}`, true, "data: {}\n\n", "/v/message:stream", "1.0",
			nil, "data: {}\n\n", ""},
		{"0.3, a batch, for which a message has no place", card(`"url": "URL/rpc", "batch": true`), "",
			`[{"text":"hi"}]`, false, `{"jsonrpc":"2.0","id":"1","result":{"kind":"message"}}`, "/rpc", "",
			[]string{`{"kind":"text","text":"hi"}`}, `[{"kind":"message"}]`, ""},
		{"0.3, a failed task", card(`"url": "URL/rpc"`), "", `{"text":"hi"}`, false,
			`{"jsonrpc":"2.0","id":"1","result":{"kind":"task","status":{"state":"failed"}}}`, "/rpc", "", nil, "",
			directory.AgentFailed},
		{"0.3, an error", card(`"url": "URL/rpc"`), "", `{"text":"hi"}`, false,
			`{"jsonrpc":"2.0","id":"1","error":{"code":-32603,"message":"secret"}}`, "/rpc", "", nil, "",
			directory.AgentFailed},
		{"0.3, bad parameters", card(`"url": "URL/rpc"`), "", `{"text":"hi"}`, false,
			`{"jsonrpc":"2.0","id":"1","error":{"code":-32602,"message":"no such part"}}`, "/rpc", "", nil, "",
			directory.AgentBadRequest},
		{"no such skill", card(`"url": "URL/rpc"`), "hum", `{"text":"hi"}`, false, ``, "", "", nil, "",
			directory.NotFound},
		{"0.3, streamed", card(`"url": "URL/rpc"`), "", `{"text":"hi"}`, true,
			"data: {\"jsonrpc\":\"2.0\",\"id\":\"1\",\"result\":{\"n\":1}}\n\n" +
				"data: {\"jsonrpc\":\"2.0\",\"id\":\"1\",\"error\":{\"code\":1}}\n\n", "/rpc", "",
			[]string{`"method":"message/stream"`},
			"data: {\"n\":1}\n\nevent: error\n" +
				"data: {\"error\":{\"code\":\"AgentError\",\"message\":\"the agent answered with the JSON-RPC " +
				"error 1\"}}\n\n", ""},
		{"0.3, streamed by other lines", card(`"url": "URL/rpc"`), "", `{"text":"hi"}`, true,
			": here\r\n\r\nid: 1\r\ndata: {\"jsonrpc\":\"2.0\",\r\ndata:\"id\":\"1\",\"result\":{\"n\":\r\n" +
				"data: 1}}\r\n\r\ndata: {\"result\":2}\r\rdata: {\"error\":{\"code\":1}}\n\ndata: {\"result\":3}\n\n",
			"/rpc", "",
			nil, ": here\n\nid: 1\ndata: {\"n\":1}\n\ndata: 2\n\nevent: error\n" +
				"data: {\"error\":{\"code\":\"AgentError\",\"message\":\"the agent answered with the JSON-RPC " +
				"error 1\"}}\n\n", ""},
		{"0.3, a stream cut off", card(`"url": "URL/rpc"`), "", `{"text":"hi"}`, true,
			"data: {\"result\":1}\n\ndata: {\"result\":2}\n", "/rpc", "", nil, "data: 1\n\n", ""},
		{"0.3, an endless event", card(`"url": "URL/rpc"`), "", `{"text":"hi"}`, true,
			strings.Repeat("data: 1\n", 1<<18) + "\n", "/rpc", "", nil, "", ""},
	} {
		answer, got, path, version = tc.answer, "", "", ""
		r, err := s.Invoke(t.Context(), tc.e, invoke.Request{Operation: tc.operation, Body: []byte(tc.body),
			Stream: tc.stream})

		output := ""
		if err == nil {
			output = string(r.Body)
			if r.Stream != nil {
				b, _ := io.ReadAll(r.Stream)
				output = string(b)
				r.Stream.Close()
			}
		}

		if output != tc.want || path != tc.path || version != tc.version ||
			tc.problem != "" && directory.ProblemOf(err) != tc.problem ||
			err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %q, %v; at %s, version %q", tc.name, output, err, path, version)
		}

		for _, part := range tc.sent {
			if !strings.Contains(got, part) {
				t.Errorf("%s: sent %s, without %s", tc.name, got, part)
			}
		}
	}
}

// What an agent answers is A2A's where it is that, whatever type a server guesses for it;
// other agents say that it is JSON.
func TestA2AThatIsGuessedToBeText(t *testing.T) {
	s := newStage(t, nil)
	answer, media := `{"jsonrpc":"2.0","id":"1","result":{"kind":"message"}}`, ""
	agent := s.agent(t, func(w http.ResponseWriter, _ *http.Request) {
		if media != "" {
			w.Header().Set("Content-Type", media)
		}

		io.WriteString(w, answer)
	})
	e := entry(t, directory.KindA2A, "a",
		fmt.Sprintf(`{"name": "A", "description": "D", "version": "1", "url": %q, "skills": []}`, agent.URL))

	r, err := s.Invoke(t.Context(), e, invoke.Request{Body: []byte(`{"text":"hi"}`)})
	if err != nil || string(r.Body) != `{"kind":"message"}` || r.ContentType != "application/json" {
		t.Errorf("%+v, %v", r, err)
	}

	if _, err := invokeAgent(s, aidip(t, agent.URL, `"operations": [`+translate+`]`), "",
		`{"text":"a"}`); directory.ProblemOf(err) != directory.AgentFailed ||
		!strings.Contains(err.Error(), "not JSON") {
		t.Errorf("another agent's text: %v", err)
	}

	media = "text/html"

	if _, err := invokeAgent(s, e, "", `{"text":"hi"}`); directory.ProblemOf(err) != directory.AgentFailed {
		t.Errorf("JSON as HTML: %v", err)
	}

	media, answer = "", "hello"

	if _, err := invokeAgent(s, e, "", `{"text":"hi"}`); directory.ProblemOf(err) != directory.AgentFailed ||
		!strings.Contains(err.Error(), "not JSON") {
		t.Errorf("text that is no JSON: %v", err)
	}
}

// A session is ended at the server also where the caller has gone before the answer.
func TestMCPSessionsEnd(t *testing.T) {
	s := newStage(t, nil)
	m := mcp.NewServer(&mcp.Implementation{Name: "agent", Version: "1"}, nil)
	called, ended := make(chan struct{}), make(chan struct{})
	mcp.AddTool(m, &mcp.Tool{Name: "say", Description: "Waits."},
		func(ctx context.Context, _ *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
			close(called)

			select {
			case <-ended:
			case <-ctx.Done():
			}

			return nil, nil, errors.New("nobody waits")
		})
	h := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return m }, nil)
	agent := s.agent(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodDelete {
			close(ended)
		}

		h.ServeHTTP(w, r)
	})
	e := entry(t, directory.KindMCP, "m",
		fmt.Sprintf(`{"name": "test.alpha/m", "description": "D", "remotes": [{"type": "streamable-http",`+
			` "url": %q}]}`, agent.URL))
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-called; cancel() }()

	if _, err := s.Invoke(ctx, e, invoke.Request{Body: []byte(`{}`)}); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller that has gone: %v", err)
	}

	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		t.Error("the server was not told that the session has ended")
	}
}
