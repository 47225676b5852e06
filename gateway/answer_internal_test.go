package gateway

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/egress"
	"github.com/roster-mesh/roster/directory/invoke"
)

// wantProblem fails unless an error is of a problem, and its text contains words. Without one it is nil.
func wantProblem(t *testing.T, what string, err error, problem directory.Problem, words string) {
	t.Helper()

	if problem == "" && err != nil ||
		problem != "" && (directory.ProblemOf(err) != problem || !strings.Contains(err.Error(), words)) {
		t.Errorf("%s: %v (%s), want %s with %q", what, err, directory.ProblemOf(err), problem, words)
	}
}

// An agent's refusal is about the caller's credentials only if the agent was shown some, and carries the
// agent's own words and wait, but not those of an agent that is unavailable.
//
// Requirement: AI-034
func TestRefusalsOfAgents(t *testing.T) {
	later := time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)

	for _, x := range []struct {
		status  int
		own     bool
		body    string
		after   string
		problem directory.Problem
		words   string
		wait    int // at least, and a minute more at most
	}{
		{401, true, "", "", directory.AgentUnauthorized, "401", 0},
		{401, false, "", "", directory.AgentFailed, "401", 0},
		{403, true, "", "", directory.AgentForbidden, "403", 0},
		{403, false, "", "", directory.AgentFailed, "403", 0},
		{404, true, `{"detail": "gone"}`, "", directory.AgentNotFound, "404: gone", 0},
		{409, false, `{"detail": 5, "message": "busy"}`, "", directory.AgentConflict, "409: busy", 0},
		{409, false, `{"detail": "", "error": {"message": "busy"}}`, "", directory.AgentConflict, "409: busy", 0},
		{409, false, `{"error": "busy"}`, "", directory.AgentConflict, "409: busy", 0},
		{429, false, "", "7", directory.AgentRateLimited, "429", 7},
		{429, false, "", later, directory.AgentRateLimited, "429", 3540},
		{429, false, "", "soon", directory.AgentRateLimited, "429", 0},
		{429, false, "", "999999999", directory.AgentRateLimited, "429", maxRetryAfter},
		{429, false, "", "-7", directory.AgentRateLimited, "429", 0},
	} {
		resp := &http.Response{StatusCode: x.status, Header: http.Header{"Retry-After": {x.after}},
			Body: io.NopCloser(strings.NewReader(x.body))}
		err := refusalOf(resp, x.own)
		wantProblem(t, x.body, err, x.problem, x.words)

		var told *directory.Error
		if errors.As(err, &told); told.RetryAfter < x.wait || told.RetryAfter > x.wait+60 ||
			x.body == "" && strings.Contains(told.Detail, ":") {
			t.Errorf("%s: %q, wait for %d s", x.after, told.Detail, told.RetryAfter)
		}
	}

	unavailable := refusalOf(&http.Response{StatusCode: 503, Body: io.NopCloser(strings.NewReader(`{"detail":"x:y"}`))},
		false)
	if strings.Contains(unavailable.Error(), "x:y") {
		t.Errorf("an agent that is unavailable: %v", unavailable)
	}
}

// What the client is told of each way in which a call fails.
//
// Requirement: AI-034, AI-035
func TestFailuresAreExplained(t *testing.T) {
	gone, cancel := context.WithCancel(t.Context())
	cancel()

	late, stop := context.WithTimeout(t.Context(), -1)
	defer stop()

	told := directory.Refuse(directory.AgentConflict, "busy")

	for _, x := range []struct {
		ctx     context.Context
		err     error
		problem directory.Problem
		words   string
	}{
		{t.Context(), told, directory.AgentConflict, "busy"},
		{late, context.DeadlineExceeded, directory.AgentTimeout, "in time"},
		{t.Context(), refuse(RuleTime, nil, "late"), directory.AgentTimeout, "in time"},
		{t.Context(), refuse(RuleScheme, nil, "http"), directory.EndpointRefused, "https only"},
		{t.Context(), refuse(RulePort, nil, "22"), directory.EndpointRefused, `"port"`},
		{t.Context(), refuse(RuleIdentity, nil, "other"), directory.AgentFailed, `"identity"; nothing was sent`},
		{t.Context(), notReached(io.EOF), directory.AgentFailed, "nothing was sent"},
		{t.Context(), refuse(RuleSize, nil, "large"), directory.AgentFailed, "larger"},
		{t.Context(), refuse(RuleRedirect, nil, "away"), directory.AgentFailed, `"redirect"`},
		{t.Context(), egress.ErrCoding, directory.AgentFailed, "can't be read"},
		{t.Context(), io.EOF, directory.AgentFailed, "failed before its answer"},
	} {
		wantProblem(t, x.err.Error(), explain(x.ctx, x.err), x.problem, x.words)
	}

	if err := explain(gone, io.EOF); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller that has gone: %v", err)
	}

	for want, err := range map[string]error{
		"name:":                               notReached(&net.DNSError{}),
		"connect: the endpoint refuses":       notReached(syscall.ECONNREFUSED),
		"connect: no connection":              notReached(syscall.EHOSTUNREACH),
		"tls: the handshake failed: tls: EOF": &unreachedError{"tls", io.EOF},
		"http:":                               io.EOF,
	} {
		if got := classOf(err); !strings.HasPrefix(got, want) {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
}

// An exchange with an MCP server fails for the reason that says most. Its session is used again only if the
// gateway itself had nothing sent.
//
// Requirement: AI-034
func TestFailuresOfExchanges(t *testing.T) {
	gone, cancel := context.WithCancel(t.Context())
	cancel()

	rpc := func(code int64) error { return &jsonrpc.Error{Code: code, Message: "no such part"} }
	last := error(directory.Refuse(directory.AgentUnavailable, "wait"))
	told := directory.Refuse(directory.BadInput, "against the schema")

	for name, x := range map[string]struct {
		ctx     context.Context
		err     error
		problem directory.Problem
		words   string
		spoiled bool
	}{
		"the gateway's own":  {gone, told, directory.BadInput, "", false},
		"bad parameters":     {gone, rpc(jsonrpc.CodeInvalidParams), directory.AgentBadRequest, "no such", true},
		"another error":      {t.Context(), rpc(-32603), directory.AgentFailed, "-32603", true},
		"nothing was sent":   {t.Context(), io.EOF, directory.Internal, "EOF", true},
		"the caller is gone": {gone, rpc(-32603), directory.Internal, "canceled", true},
	} {
		use := &exchange{ctx: x.ctx}

		err := use.failed(x.err)
		if x.problem == directory.Internal {
			if !strings.Contains(err.Error(), x.words) {
				t.Errorf("%s: %v", name, err)
			}
		} else {
			wantProblem(t, name, err, x.problem, x.words)
		}

		if use.spoiled.Load() != x.spoiled {
			t.Errorf("%s: spoiled %t", name, use.spoiled.Load())
		}
	}

	x := exchange{ctx: gone}
	x.last.Store(&last)
	wantProblem(t, "after the guard's refusal", x.cause(rpc(jsonrpc.CodeInvalidParams)), directory.AgentUnavailable, "")
	wantProblem(t, "the gateway's own, after a refusal", x.cause(told), directory.BadInput, "")

	if err := x.silence(io.EOF); !errors.Is(err, last) {
		t.Errorf("a probe after the guard's refusal: %v", err)
	}

	x = exchange{ctx: t.Context()}
	if !x.lost() {
		t.Error("an exchange in which nothing was sent did something")
	}

	x.sent.Store(true)
	err := x.cause(io.EOF)
	wantProblem(t, "an answer that is none", err, directory.AgentFailed, "cut off")

	if !errors.Is(err, io.EOF) {
		t.Errorf("the reason is not kept: %v", err)
	}

	x.status.Store(404)
	wantProblem(t, "a status", x.cause(io.EOF), directory.AgentFailed, "404")
}

// A server that fails to give the rest of an answer, or refuses for now, is the reason of what fails.
//
// Requirement: FLD-030
func TestStatusesOfExchanges(t *testing.T) {
	for _, x := range []struct {
		method  string
		status  int // 0: the connection fails
		problem directory.Problem
		words   string
	}{
		{http.MethodPost, 503, directory.AgentUnavailable, "503"},
		{http.MethodPost, 429, directory.AgentRateLimited, "429"},
		{http.MethodPost, 500, directory.AgentFailed, "500"}, {http.MethodPost, 404, directory.AgentFailed, "404"},
		{http.MethodGet, 503, directory.AgentFailed, "503 to the request for the rest"},
		{http.MethodGet, 0, directory.AgentFailed, "can't be asked for the rest"},
		{http.MethodPost, 0, "", "refused"},
	} {
		next := http.RoundTripper(answering(x.status))
		if x.status == 0 {
			next = failing{}
		}

		exchange := &exchange{ctx: t.Context(), next: next}

		_, failed := exchange.RoundTrip(httptest.NewRequest(x.method, "https://agent.test", nil))
		if (failed != nil) != (x.status == 0) {
			t.Errorf("%+v: %v", x, failed)
		}

		err := exchange.cause(io.EOF)
		if x.problem == "" {
			if !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("%+v: %v", x, err)
			}

			continue
		}

		wantProblem(t, x.method, err, x.problem, x.words)

		if x.status == 0 && !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("%+v: the reason is not kept: %v", x, err)
		}
	}
}

// failing is a connection that can't be made.
type failing struct{}

func (failing) RoundTrip(*http.Request) (*http.Response, error) { return nil, syscall.ECONNREFUSED }

// A tool's output is its structured content, else text that is JSON, else the content as it is.
//
// Requirement: WOA-011
func TestOutputsOfTools(t *testing.T) {
	text := func(text string) mcp.Content { return &mcp.TextContent{Text: text} }

	for want, result := range map[string]*mcp.CallToolResult{
		`{"n":1}`:  {Content: []mcp.Content{text(`{"n":1}`)}},
		`{"n":2}`:  {Content: []mcp.Content{text(`{"n":1}`)}, StructuredContent: map[string]int{"n": 2}},
		`"hello"`:  {Content: []mcp.Content{text("hello")}},
		`"[1]"`:    {Content: []mcp.Content{text("[1]"), text("[2]")}},
		`"image"`:  {Content: []mcp.Content{&mcp.ImageContent{MIMEType: "image/png"}}},
		"an error": {Content: []mcp.Content{text("{}")}, IsError: true},
	} {
		reply, err := replyOf(result)
		if result.IsError {
			wantProblem(t, want, err, directory.AgentFailed, "with an error")
			continue
		}

		if err != nil || !bytes.Contains(reply.Body, []byte(want)) || reply.Status != http.StatusOK ||
			want[0] == '{' && string(reply.Body) != want {
			t.Errorf("%s, %v, want %s", reply.Body, err, want)
		}
	}
}

// The result of a JSON-RPC answer, or why there is none.
func TestResultsOfJSONRPC(t *testing.T) {
	for body, want := range map[string]directory.Problem{
		`{"result": 1}`: "", `{"result": null}`: "", `{}`: directory.AgentFailed, `[`: directory.AgentFailed,
		`{"error": {"code": -32602}}`: directory.AgentBadRequest, `{"error": {"code": 1}}`: directory.AgentFailed,
	} {
		result, err := resultOf([]byte(body))
		if wantProblem(t, body, err, want, ""); (want == "") != (len(result) > 0) {
			t.Errorf("%s: %s", body, result)
		}
	}
}

// A success that contains an error object is a failure, however its name is written, unless the
// operation's output has such a member.
//
// Requirement: AI-035
func TestSuccessesWithErrors(t *testing.T) {
	declared := invoke.Operation{Output: []byte(`{"type":"object","properties":{"error":{"type":"object"}}}`)}

	for body, failed := range map[string]bool{
		`{"error": {"code": 1}}`: true, `{"\u0065rror": {"code": 1}}`: true, `{"error": "none"}`: false,
		`{"text": "an error"}`: false, `["error"]`: false, `{"other": {"error": {}}}`: false,
	} {
		if err := noError([]byte(body), invoke.Operation{}); (err != nil) != failed {
			t.Errorf("%s: %v", body, err)
		}

		if err := noError([]byte(body), declared); err != nil {
			t.Errorf("%s, which the operation declares: %v", body, err)
		}
	}
}

// A body ends with its bound, and ends its exchange when it is closed.
func TestBodiesAreBounded(t *testing.T) {
	for text, want := range map[string]Rule{"0123456789": "", "0123456789a": RuleSize} {
		ctx, cancel := context.WithCancel(t.Context())
		answer := &body{ReadCloser: io.NopCloser(strings.NewReader(text)), ctx: ctx, cancel: cancel, left: 10, most: 10}

		for again := range 2 {
			got, err := io.ReadAll(answer)
			if RuleOf(err) != want || again == 0 && string(got) != text[:10] || again == 1 && len(got) > 0 {
				t.Errorf("read %q, %v", got, err)
			}
		}

		if err := answer.Close(); err != nil || ctx.Err() == nil {
			t.Errorf("closed: %v, %v", err, ctx.Err())
		}
	}
}

// A request that the guard refuses is left as it was, but for its body, which is closed.
func TestRefusedRequestsAreClosed(t *testing.T) {
	guard := NewGuard(GuardConfig{})
	sent := &body{ReadCloser: http.NoBody, cancel: func() {}}
	closed := false
	sent.cancel = func() { closed = true }

	r := &http.Request{Method: http.MethodPost, URL: &url.URL{Scheme: "ftp", Host: "agent.test"}, Body: sent}
	if _, err := (guarded{guard, Target{}}).RoundTrip(r); RuleOf(err) != RuleScheme || !closed {
		t.Errorf("closed %t, %v", closed, err)
	}

	for address, want := range map[string]string{
		"https://A.test/x": "https://a.test:443", "https://a.test:444": "https://a.test:444",
		"http://a.test": "http://a.test:",
	} {
		if target, _ := url.Parse(address); Authority(target) != want {
			t.Errorf("%s: %s", address, Authority(target))
		}
	}
}

// Plain http goes to loopback alone, whatever its caller checked.
func TestPlainHTTPIsDialledOnLoopback(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer ln.Close()

	for _, insecure := range []bool{false, true} {
		guard := NewGuard(GuardConfig{Allow: egress.Anywhere, InsecureLoopback: insecure})

		_, err := guard.dialPlain(t.Context(), "tcp", "10.1.2.3:80", server{})
		if RuleOf(err) != RuleScheme {
			t.Errorf("beyond loopback: %v", err)
		}

		conn, err := guard.dialPlain(t.Context(), "tcp", ln.Addr().String(), server{})
		if (err == nil) != insecure {
			t.Errorf("on loopback, insecure %t: %v", insecure, err)
		}

		if err == nil {
			_ = conn.Close()
		}

		target, _ := url.Parse("http://127.0.0.1:8080/")
		if err := guard.Check(target); (err == nil) != insecure {
			t.Errorf("insecure %t: %v", insecure, err)
		}
	}
}
