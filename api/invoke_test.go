package api

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/roster-mesh/roster/directory"
)

// The agents that are invoked here answer what the tests say: package gateway's
// own tests and the scenarios call real ones.

type quietGateway struct {
	reply directory.Reply
	err   error
	asked func(directory.Invocation)
}

func (g quietGateway) Invoke(_ context.Context, _ *directory.Entry, in directory.Invocation) (*directory.Reply, error) {
	if g.asked != nil {
		g.asked(in)
	}
	return &g.reply, g.err
}

const invocable = `{"base":"https://agents.example.com/a","name":"A"}`

// Who may invoke what, and what is asked of the gateway.
//
// Requirement: AI-007, AI-036, XU-065
func TestInvoke(t *testing.T) {
	const rid = "01JWNTC0000000000000000AD1"
	e := entry(t, alpha, rid, "agent", 1, invocable)
	secret := entry(t, alpha, "01JWNTC0000000000000000AD2", "secret", 2, invocable)
	reserved := entry(t, alpha, "01JWNTC0000000000000000AD3", "reserved", 3, invocable)
	var in directory.Invocation
	s := newTestServer(t, func(cfg *Config) {
		cfg.Gateway = quietGateway{reply: directory.Reply{Status: 202, ContentType: "application/json", Body: []byte(`{"done":true}`), Replayed: true}, asked: func(got directory.Invocation) { in = got }}
		cfg.Fronts = func(*directory.Entry) bool { return true }
		cfg.MaxInvocation = 100
	}, e, secret, reserved)
	json := []string{"Content-Type", "application/json"}
	resp := ask(t, s, "/agent/bob", "POST", "/agents/agent/translate", `{"a":1}`, append(json, "Idempotency-Key", "k", "Accept", "text/event-stream")...)
	if body := wantStatus(t, resp, 202); body["done"] != true || resp.Header.Get("Cache-Control") != "no-store" || resp.Header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("answered %v, %v", body, resp.Header)
	}
	if in.Operation != "translate" || in.Key != "k" || !in.Stream || string(in.Body) != `{"a":1}` || in.Caller.IsZero() {
		t.Errorf("asked for %+v", in)
	}
	wantStatus(t, ask(t, s, "/agent/bob", "POST", "/agents/"+rid+"/invoke", `{"a":1}`, json...), 202)
	if in.Operation != "" || in.Key != "" || in.Stream {
		t.Errorf("asked for %+v", in)
	}
	for name, tc := range map[string]struct {
		who, path, body string
		header          []string
		want            int
	}{
		"nobody":          {"", "/agents/agent/invoke", `{}`, json, 401},
		"policy":          {"/agent/bob", "/agents/reserved/invoke", `{}`, json, 403},
		"hidden":          {"/agent/bob", "/agents/secret/invoke", `{}`, json, 404},
		"none":            {"/agent/bob", "/agents/none/invoke", `{}`, json, 404},
		"multipart":       {"/agent/bob", "/agents/agent/invoke", `x`, []string{"Content-Type", "multipart/form-data; boundary=x"}, 415},
		"text":            {"/agent/bob", "/agents/agent/invoke", `x`, []string{"Content-Type", "text/plain"}, 415},
		"too large":       {"/agent/bob", "/agents/agent/invoke", strings.Repeat(" ", 101), json, 413},
		"two keys":        {"/agent/bob", "/agents/agent/invoke", `{}`, append(json, "Idempotency-Key", strings.Repeat("k", 256)), 400},
		"a deeper path":   {"/agent/bob", "/agents/agent/invoke/x", `{}`, json, 404},
		"another method":  {"/agent/bob", "/agents/agent/x", ``, nil, 405},
		"an empty suffix": {"/agent/bob", "/agents/agent/", `{}`, json, 404},
	} {
		method := "POST"
		if tc.want == 405 {
			method = "GET"
		}
		if resp := ask(t, s, tc.who, method, tc.path, tc.body, tc.header...); resp.StatusCode != tc.want {
			t.Errorf("%s: %d, want %d", name, resp.StatusCode, tc.want)
		}
	}
	if got := wantStatus(t, ask(t, s, "", "GET", "/agents/agent", ""), 200)["gateway"]; got != "/agents/"+rid+"/invoke" {
		t.Errorf("gateway is %v", got)
	}
	off := newTestServer(t, nil, e)
	for _, path := range []string{"/agents/agent/invoke", "/agents/agent/translate"} {
		wantStatus(t, ask(t, off, "/agent/bob", "POST", path, `{}`, json...), 404)
	}
	if got, told := wantStatus(t, ask(t, off, "", "GET", "/agents/agent", ""), 200)["gateway"]; told {
		t.Errorf("gateway is %v, and there is none", got)
	}
}

// A stream is passed on; one that breaks is not ended as if it were whole.
//
// Requirement: AI-010
func TestInvokeStreams(t *testing.T) {
	e := entry(t, alpha, "01JWNTC0000000000000000AD1", "agent", 1, invocable)
	for name, tc := range map[string]struct {
		stream io.Reader
		broken bool
	}{
		"whole":  {strings.NewReader("data: 1\n\n"), false},
		"broken": {io.MultiReader(strings.NewReader("data: 1\n\n"), failing{}), true},
	} {
		s := newTestServer(t, func(cfg *Config) {
			cfg.Gateway = quietGateway{reply: directory.Reply{Status: 200, ContentType: "text/event-stream", Stream: io.NopCloser(tc.stream)}}
		}, e)
		broken := false
		func() {
			defer func() {
				err, _ := recover().(error)
				broken = errors.Is(err, http.ErrAbortHandler)
			}()
			resp := ask(t, s, "/agent/bob", "POST", "/agents/agent/invoke", `{}`, "Content-Type", "application/json")
			body, _ := io.ReadAll(resp.Body)
			if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" || string(body) != "data: 1\n\n" {
				t.Errorf("%s: %d %v %q", name, resp.StatusCode, resp.Header, body)
			}
		}()
		if broken != tc.broken {
			t.Errorf("%s: the connection was torn: %v", name, broken)
		}
	}
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("the agent is gone") }
