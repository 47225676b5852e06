package api

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/api/admission"
	"github.com/roster-mesh/roster/api/request"
	"github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/invoke"
)

// The agents that are invoked here answer what the tests say: package gateway's
// own tests and the scenarios call real ones.

type quietGateway struct {
	reply invoke.Reply
	err   error
	asked func(invoke.Request)
}

func (g quietGateway) Invoke(_ context.Context, _ *directory.Entry, in invoke.Request) (*invoke.Reply, error) {
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

	frozen := entry(t, beta, "01JWNTC0000000000000000AD4", "frozen", 4, invocable)

	withheld, policy := directory.Withhold("description"), newPartPolicy(directory.Redaction{})
	policy.set(partRules{sight: withheld, hidden: "secret"})

	var (
		in   invoke.Request
		held error
	)

	s := newTestServer(t, func(cfg *Config) {
		cfg.Policy = policy
		cfg.Frozen = func() []spiffeid.TrustDomain { return []spiffeid.TrustDomain{beta} }
		cfg.Gateway = quietGateway{reply: invoke.Reply{Status: 202, ContentType: "application/json",
			Body: []byte(`{"done":true}`), Replayed: true}, asked: func(got invoke.Request) {
			in, held = got, got.Hold(4<<20)
		}}
		cfg.Invocable = func(*directory.Entry) bool { return true }
		cfg.MaxInvocation = 100
	}, e, secret, reserved, frozen)
	json := []string{"Content-Type", "application/json"}

	resp := ask(t, s, "/agent/bob", "POST", "/agents/agent/translate", `{"a":1}`,
		append(json, "Idempotency-Key", "k", "Accept", "text/event-stream")...)
	if body := wantStatus(t, resp, 202); body["done"] != true || resp.Header.Get("Cache-Control") != "no-store" ||
		resp.Header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("answered %v, %v", body, resp.Header)
	}

	if in.Operation != "translate" || in.Key != "k" || !in.Stream || string(in.Body) != `{"a":1}` ||
		in.Caller.IsZero() || in.Redaction != withheld {
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
		"nobody": {"", "/agents/agent/invoke", `{}`, json, 401},
		"policy": {"/agent/bob", "/agents/reserved/invoke", `{}`, json, 403},
		"frozen": {"/agent/bob", "/agents/frozen/invoke", `{}`, json, 403},
		"hidden": {"/agent/bob", "/agents/secret/invoke", `{}`, json, 404},
		"none":   {"/agent/bob", "/agents/none/invoke", `{}`, json, 404},
		"multipart": {"/agent/bob", "/agents/agent/invoke", `x`,
			[]string{"Content-Type", "multipart/form-data; boundary=x"}, 415},
		"text":      {"/agent/bob", "/agents/agent/invoke", `x`, []string{"Content-Type", "text/plain"}, 415},
		"too large": {"/agent/bob", "/agents/agent/invoke", strings.Repeat(" ", 101), json, 413},
		"two keys": {"/agent/bob", "/agents/agent/invoke", `{}`,
			append(json, "Idempotency-Key", strings.Repeat("k", 256)), 400},
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

	// The memory of an answer is given back.
	for range 50 {
		if wantStatus(t, ask(t, s, "/agent/bob", "POST", "/agents/agent/invoke", `{}`, json...), 202); held != nil {
			t.Fatal(held)
		}

		call := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"invoke_agent","arguments":` +
			`{"rid":"` + rid + `","input":{}}}}`

		result := wantStatus(t, rpc(t, s, "/agent/bob", call), 200)["result"].(map[string]any)
		if result["isError"] == true || held != nil {
			t.Fatal("by a tool: ", result, held)
		}
	}

	if n := s.Pools().Held(admission.AnswerBytesPool); n != 0 {
		t.Errorf("%d bytes of answers are still counted", n)
	}

	if got := wantStatus(t, ask(t, s, "", "GET", "/agents/agent", ""),
		200)["gateway"]; got != "/agents/"+rid+"/invoke" {
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

// An open policy lets everybody invoke.
type openPolicy struct{ houseRules }

func (openPolicy) Invoke(directory.Identity, *directory.Entry) directory.Decision {
	return directory.Decision{Allow: true}
}

// Callers without an identity are told apart by nothing, so they may not have a key that gives the answer to another
// call.
//
// Requirement: AI-007
func TestStrangersHaveNoIdempotencyKeys(t *testing.T) {
	s := newTestServer(t, func(cfg *Config) {
		cfg.Policy = openPolicy{}
		cfg.Gateway = quietGateway{reply: invoke.Reply{Status: 202}}
	}, entry(t, alpha, "01JWNTC0000000000000000AD1", "agent", 1, invocable))

	for key, want := range map[string]int{"": 202, "k": 400} {
		header := []string{"Content-Type", "application/json"}
		if key != "" {
			header = append(header, "Idempotency-Key", key)
		}

		if resp := ask(t, s, "", "POST", "/agents/agent/invoke", `{}`, header...); resp.StatusCode != want {
			t.Errorf("with the key %q: %d, want %d", key, resp.StatusCode, want)
		}
	}
}

// Every invocation has its two lines in the audit trail, without what was asked and
// answered; where the first can't be written, no agent is called. A token that is for
// reads invokes nothing.
//
// Requirement: AI-018, TRUST-015
func TestInvocationsAreAudited(t *testing.T) {
	e := entry(t, alpha, "01JWNTC0000000000000000AD1", "agent", 1, invocable)
	foreign := entry(t, beta, "01JWNTC0000000000000000AD2", "foreign", 1, invocable)

	var trail invocationTrail
	asked, reads := 0, false
	reply, failure := invoke.Reply{Status: 200, ContentType: "application/json", Body: []byte(`"canary"`)}, error(nil)

	var log bytes.Buffer
	s := newTestServer(t, func(cfg *Config) {
		cfg.AuditLog, cfg.Logger = &trail, slog.New(slog.NewTextHandler(&log, nil))
		cfg.Gateway = answering(func() (*invoke.Reply, error) { asked++; return &reply, failure })
		identify := cfg.Identify
		cfg.Identify = func(r *http.Request) (request.Credential, error) {
			c, err := identify(r)
			c.ReadOnly = reads

			return c, err
		}
	}, e, foreign)
	call := func(id string) int {
		return ask(t, s, "/agent/bob", "POST", "/agents/"+id+"/invoke", `{"canary":1}`, "Content-Type",
			"application/json").StatusCode
	}
	want := func(what string, status, got int, lines ...directory.AuditEvent) {
		t.Helper()

		if len(trail.lines) != len(lines) || status != got {
			t.Fatalf("%s: %d, want %d; the lines are %+v", what, got, status, trail.lines)
		}

		for i, l := range trail.lines {
			if !l.Actor.IsZero() && l.RequestID != "" && l.Owner == e.Owner {
				l.Actor, l.Owner, l.RequestID, l.Policies = directory.Identity{}, directory.Identity{}, "", nil
			}

			if !reflect.DeepEqual(l, lines[i]) {
				t.Errorf("%s: line %d is %+v, want %+v", what, i, trail.lines[i], lines[i])
			}
		}

		trail.lines = nil
	}
	intent := directory.AuditEvent{Action: "invoke", Agent: "agent", RID: e.RID, Authn: "x509-svid"}
	outcome := func(of directory.AuditEvent, is string) directory.AuditEvent { of.Outcome = is; return of }
	want("one that succeeds", 200, call("agent"), intent, outcome(intent, "ok"))

	if log.Len() > 0 {
		t.Errorf("what the trail has is logged as well: %s", &log)
	}

	failure = directory.Refuse(directory.AgentFailed, "canary")
	want("one that fails", 502, call("agent"), intent, outcome(intent, "agent-failed"))

	if failure = nil; !strings.Contains(log.String(), "status=502") {
		t.Errorf("one that fails is not logged: %s", &log)
	}

	away := directory.AuditEvent{Action: "invoke", Agent: "foreign", RID: foreign.RID, Authn: "x509-svid",
		Target: "beta.test"}
	want("another domain's agent", 200, call("foreign"), away, outcome(away, "ok"))
	reply = invoke.Reply{Status: 200, ContentType: "text/event-stream", Stream: io.NopCloser(failing{})}
	func() {
		defer func() { _ = recover() }()
		call("agent")
	}()
	want("a stream that breaks", 0, 0, intent, outcome(intent, "cut off"))
	trail.err = directory.Refuse(directory.Unavailable, "the disk is full")
	asked = 0
	want("a trail that can't be written", 503, call("agent"))

	trail.err, reads = nil, true
	if status := call("agent"); status != 403 || len(trail.lines) != 1 || trail.lines[0].Outcome != "forbidden" {
		t.Errorf("by a token for reads: %d, %+v", status, trail.lines)
	}

	if asked != 0 {
		t.Errorf("the agent was called %d times all the same", asked)
	}
}

type answering func() (*invoke.Reply, error)

func (f answering) Invoke(context.Context, *directory.Entry, invoke.Request) (*invoke.Reply, error) {
	return f()
}

type invocationTrail struct {
	lines []directory.AuditEvent
	err   error
}

func (k *invocationTrail) Intend(e directory.AuditEvent) (func(directory.AuditEvent), error) {
	if k.err != nil {
		return nil, k.err
	}

	k.lines = append(k.lines, e)

	return k.Refused, nil
}

func (k *invocationTrail) Refused(e directory.AuditEvent) { k.lines = append(k.lines, e) }

// A stream is passed on; one that breaks is not ended as if it were whole, and says
// why where that is an event of its own. A node that stops ends it so.
//
// Requirement: AI-010
func TestInvokeStreams(t *testing.T) {
	e := entry(t, alpha, "01JWNTC0000000000000000AD1", "agent", 1, invocable)
	stopping := directory.Refuse(directory.Unavailable, "the node stops")
	slow := directory.Refuse(directory.AgentTimeout, "too slow")

	const one, unavailable = "data: 1\n\n", "event: error\n" +
		"data: {\"error\":{\"code\":\"Unavailable\",\"message\":\"the node stops\"}}\n\n"
	for name, tc := range map[string]struct {
		stream io.Reader
		media  string
		want   string
		broken bool
	}{
		"whole":  {strings.NewReader(one), wire.MediaEvents, one, false},
		"broken": {io.MultiReader(strings.NewReader(one), failing{}), wire.MediaEvents, one, true},
		"stopped": {io.MultiReader(strings.NewReader(one), failing{stopping}), wire.MediaEvents,
			one + unavailable, false},
		"stopped at once": {failing{stopping}, wire.MediaEvents, unavailable, false},
		"stopped in a line": {io.MultiReader(strings.NewReader("data: 1\n"), strings.NewReader("dat"),
			failing{stopping}), wire.MediaEvents, "data: 1\ndat", true},
		"stopped, lines": {io.MultiReader(strings.NewReader("{}\n"), failing{stopping}), "application/x-ndjson",
			"{}\n", true},
		"late": {io.MultiReader(strings.NewReader("data: 1\n"), strings.NewReader("\n"), failing{slow}),
			wire.MediaEvents, one + strings.NewReplacer("Unavailable", "Timeout", "the node stops", "too slow").
				Replace(unavailable), true},
	} {
		stream := &closing{Reader: tc.stream}
		s := newTestServer(t, func(cfg *Config) {
			cfg.Gateway = quietGateway{reply: invoke.Reply{Status: 200, ContentType: tc.media, Stream: stream}}
		}, e)
		w, r := httptest.NewRecorder(), httptest.NewRequest("POST", "https://ad.alpha.test:8400/agents/agent/invoke",
			strings.NewReader("{}"))
		r.Header.Set("Test-Caller", "/agent/bob")
		r.Header.Set("Content-Type", "application/json")
		broken := false
		func() {
			defer func() {
				err, _ := recover().(error)
				broken = errors.Is(err, http.ErrAbortHandler)
			}()
			s.Handler().ServeHTTP(w, r)
		}()

		if w.Code != 200 || w.Header().Get("Content-Type") != tc.media || w.Body.String() != tc.want ||
			broken != tc.broken || !stream.closed {
			t.Errorf("%s: %d %v %q, torn: %v, closed: %v", name, w.Code, w.Header(), w.Body, broken, stream.closed)
		}
	}
}

// A closing stream shows whether it was closed, which gives an agent's place back.
type closing struct {
	io.Reader
	closed bool
}

func (c *closing) Close() error {
	c.closed = true
	return nil
}

// A stream ends with the credential by which it was asked for, as a watch does.
//
// Requirement: TRUST-002
func TestInvokedStreamsEndWithTheCredential(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		s := newTestServer(t, func(cfg *Config) {
			cfg.Gateway = endless{}
			cfg.Identify = func(*http.Request) (request.Credential, error) {
				return request.Credential{Identity: identity("/agent/bob"), Method: "x509-svid",
					Until: began.Add(time.Minute)}, nil
			}
		}, entry(t, alpha, "01JWNTC0000000000000000AD1", "agent", 1, invocable))
		r := httptest.NewRequest("POST", "https://ad.alpha.test:8400/agents/agent/invoke", strings.NewReader("{}"))
		r.Header.Set("Content-Type", "application/json")
		defer func() {
			if err, _ := recover().(error); !errors.Is(err, http.ErrAbortHandler) || time.Since(began) != time.Minute {
				t.Errorf("it ended after %v: %v", time.Since(began), err)
			}
		}()
		s.Handler().ServeHTTP(httptest.NewRecorder(), r)
	})
}

// endless is a gateway to an agent that goes on for an hour.
type endless struct{}

func (endless) Invoke(ctx context.Context, _ *directory.Entry, _ invoke.Request) (*invoke.Reply, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Hour)
	from, to := io.Pipe()
	context.AfterFunc(ctx, func() { cancel(); _ = to.CloseWithError(ctx.Err()) })

	return &invoke.Reply{Status: 200, ContentType: wire.MediaEvents, Stream: from}, nil
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, cmp.Or(f.err, errors.New("the agent is gone")) }

// A registrant that names a directory for its agent's endpoint has a gateway ask that, by
// the gateway's identity. It is refused at every route, for reads too, but for the invocation
// of an agent of another domain. So is the account of a followed source, and whatever an
// intermediary forwards to the routes of nodes and operators.
//
// Requirement: WOA-018, SEC-009
func TestGatewaysAskNothingOfADirectory(t *testing.T) {
	e := entry(t, alpha, "01JWNTC0000000000000000AD1", "agent", 1, invocable)

	s := newTestServer(t, func(cfg *Config) {
		whole(cfg)
		cfg.Gateway = quietGateway{reply: invoke.Reply{Status: 200, ContentType: "application/json",
			Body: []byte("{}")}}
		ours := cfg.Identify
		cfg.Identify = func(r *http.Request) (request.Credential, error) {
			if caller := r.Header.Get("Test-Caller"); strings.HasPrefix(caller, "beta.test/") {
				id := spiffeid.RequireFromString("spiffe://" + caller)
				return request.Credential{Identity: directory.IdentityOf(id), Method: "x509-svid"}, nil
			}

			return ours(r)
		}
	}, e)
	for _, res := range resources(s.table()) {
		for method, row := range res.routes {
			refused := func(what string, resp *http.Response) {
				t.Helper()

				if resp.StatusCode != 403 {
					t.Errorf("%s %s, %s: %d", method, res.path, what, resp.StatusCode)
				}
			}
			path := concrete.Replace(res.path)

			for _, caller := range []string{"/ops/operator", "beta.test/node/1", ""} {
				if resp := ask(t, s, caller, method, path, "", "Via", invoke.ViaGateway); !row.who.calls ||
					caller == "/ops/operator" {
					refused("of the gateway of "+caller, resp)
				}
			}

			if row.who.level == levelAnyone {
				continue // which ask for no identity
			}

			refused("of a source", ask(t, s, "beta.test/roster/source/x", method, path, ""))
			refused("of an own gateway", ask(t, s, "/roster/gateway/1", method, path, ""))

			if !row.who.calls {
				refused("of a peer's gateway", ask(t, s, "beta.test/roster/gateway/1", method, path, ""))
			}

			if row.who.level == levelNode || row.who.level == levelOperator {
				refused("by a proxy", ask(t, s, "/ops/operator", method, path, "", "Via", "1.1 proxy"))
			}
		}
	}

	for _, tc := range []struct {
		caller, via string
		status      int
	}{
		{"/node/1", "1.1 proxy", 200},
		{"/node/1", invoke.ViaGateway, 403},
		{"/roster/gateway/1", invoke.ViaGateway, 403},
		{"beta.test/roster/gateway/1", invoke.ViaGateway, 200},
		{"beta.test/roster/gateway/1", "", 200},
		{"beta.test/roster/gateway/1", invoke.ViaGateway + ", 1.1 proxy, " + invoke.ViaGateway, 403},
	} {
		wantStatus(t, ask(t, s, tc.caller, "POST", "/agents/agent/invoke", "{}", "Via", tc.via), tc.status)
	}
}

// What a gateway is refused counts as what anybody is: the quota is not to be evaded by a
// header field.
func TestWhatIsRefusedToGatewaysCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := registry(t, func(cfg *Config) { cfg.Limits = admission.Limits{admission.Queries: .2} })
		for i, status := range []int{403, 403, 429} {
			if resp := ask(t, s, "", "POST", "/agents/search", `{"query":"translate"}`, "Via",
				invoke.ViaGateway); resp.StatusCode != status {
				t.Errorf("%d: %d, want %d", i, resp.StatusCode, status)
			}
		}
	})
}
