package gateway_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/consensus"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/index"
	"github.com/roster-mesh/roster/directory/invoke"
	"github.com/roster-mesh/roster/gateway"
)

// domain starts a domain of one real member, which keeps its keys.
func domain(t testing.TB) *consensus.Store {
	t.Helper()
	authority := newCA(t, "alpha.test")
	id := spiffeid.RequireFromString("spiffe://alpha.test/roster/node/1")

	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)

	pair := []tls.Certificate{authority.leaf(t, "127.0.0.1", id)}

	s, err := consensus.Open(consensus.Config{
		Domain: id.TrustDomain(), Node: id, Dir: t.TempDir(),
		Members:  []consensus.Member{{ID: id, Address: ln.Addr().String()}},
		Listener: ln,
		Dial: func(ctx context.Context, to string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", to)
		},
		ServerTLS: &tls.Config{Certificates: pair},
		ClientTLS: &tls.Config{Certificates: pair, RootCAs: authority.pool()},
		Index:     index.New(), Timing: consensus.LocalTiming,
	})
	must(t, err)

	t.Cleanup(func() { _ = s.Close() })

	again := time.Tick(5 * time.Millisecond)
	for end := time.Now().Add(time.Minute); s.Ready() != nil; <-again {
		if time.Now().After(end) {
			t.Fatal(s.Ready())
		}
	}

	return s
}

// The first request with a key calls the agent, and the others get what it got, at
// any node.
//
// Requirement: AI-012
func TestIdempotencyKey(t *testing.T) {
	var (
		calls atomic.Int32
		key   atomic.Value
	)
	started, goOn := make(chan struct{}, 10), make(chan struct{})
	close(goOn)
	answer := echo
	agent := func(s *stage) *httptest.Server {
		return s.agent(t, func(w http.ResponseWriter, r *http.Request) {
			calls.Add(1)
			key.Store(r.Header.Get("Idempotency-Key"))
			started <- struct{}{}
			<-goOn
			answer(w, r)
			<-started
		})
	}
	keys := domain(t)

	var guard *gateway.Guard
	here := newStage(t, func(c *gateway.Config) { c.Claims, guard = keys, c.Guard })
	server := agent(here)
	there := &stage{gateway.New(gateway.Config{Claims: keys,
		Guard: newGuard(t, gateway.GuardConfig{Allow: loopback,
			Judge: bundles(t, map[string]*ca{"alpha.test": here.authority})})}), here.authority}
	e := aidip(t, server.URL, `"operations": [`+translate+`]`)
	ask := func(s *stage, who spiffeid.ID, key, body string) (*invoke.Reply, error) {
		return s.Invoke(t.Context(), e, invoke.Request{Body: []byte(body), Caller: directory.IdentityOf(who), Key: key})
	}

	const hello, want = `{"text":"a"}`, `{"text": "{\"text\":\"a\"}"}`

	goOn = make(chan struct{})

	type result struct {
		r   *invoke.Reply
		err error
	}
	first := make(chan result, 1)
	go func() { r, err := ask(here, alpha, "k", hello); first <- result{r, err} }()
	started <- <-started

	var inUse *directory.Error
	if _, err := ask(there, alpha, "k", hello); !errors.As(err, &inUse) || inUse.Problem != directory.KeyInUse ||
		inUse.RetryAfter != 1 {
		t.Errorf("while the first is under way: %v", err)
	}

	close(goOn)

	if got := <-first; got.err != nil || got.r.Replayed || string(got.r.Body) != want || key.Load() == "" {
		t.Fatalf("the first: %+v, %v", got.r, got.err)
	}

	firsts := key.Load()

	for _, s := range []*stage{here, there} {
		if r, err := ask(s, alpha, "k", hello); err != nil || !r.Replayed || string(r.Body) != want ||
			r.Status != 200 || r.ContentType != "application/json" {
			t.Errorf("a repeat: %+v, %v", r, err)
		}
	}

	if _, err := ask(there, alpha, "k", `{"text":"b"}`); directory.ProblemOf(err) != directory.KeyReused {
		t.Errorf("another body: %v", err)
	}

	if r, err := ask(there, other, "k", `{"text":"b"}`); err != nil || r.Replayed {
		t.Errorf("another caller's key: %+v, %v", r, err)
	}

	if key.Load() == firsts {
		t.Error("the agent, which knows both callers as the node, takes their keys for one")
	}

	if n := calls.Load(); n != 2 {
		t.Errorf("%d calls, want one of each caller", n)
	}

	answer = func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "", http.StatusInternalServerError) }
	_, err := ask(here, alpha, "failed", hello)

	_, again := ask(there, alpha, "failed", hello)
	if directory.ProblemOf(err) != directory.AgentFailed || again == nil || again.Error() != err.Error() ||
		calls.Load() != 3 {
		t.Errorf("an agent that failed, and may have acted: %v, then %v after %d calls", err, again, calls.Load())
	}

	answer = func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "", http.StatusServiceUnavailable) }
	_, err = ask(here, alpha, "away", hello)
	answer = echo

	if r, again := ask(there, alpha, "away", hello); directory.ProblemOf(err) != directory.AgentUnavailable ||
		again != nil || r.Replayed {
		t.Errorf("an agent that says it can't now: %v, then %v", err, again)
	}

	large := `{"text":"` + strings.Repeat("a", 70<<10) + `"}`
	if _, err = ask(here, alpha, "large", large); err != nil {
		t.Error(err)
	}

	if _, err = ask(here, alpha, "large", large); directory.ProblemOf(err) != directory.KeySpent {
		t.Errorf("an answer that is too large to keep: %v", err)
	}

	answer = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, "data: 1\n\n")
	}

	if _, err := ask(here, alpha, "unasked", hello); directory.ProblemOf(err) != directory.AgentFailed {
		t.Errorf("a stream that was not asked for: %v", err)
	}

	r, err := here.Invoke(t.Context(), e, invoke.Request{Body: []byte(hello), Caller: directory.IdentityOf(alpha),
		Key: "stream", Stream: true})
	must(t, err)

	_ = r.Stream.Close()

	if _, err = ask(there, alpha, "stream", hello); directory.ProblemOf(err) != directory.KeySpent {
		t.Errorf("a stream: %v", err)
	}

	server.Close()
	guard.Close() // who asks over a connection that was there doesn't know what the agent has heard
	n := calls.Load()

	for range 2 {
		if _, err = ask(here, alpha, "nobody", hello); directory.ProblemOf(err) != directory.AgentFailed {
			t.Errorf("nobody there: %v", err)
		}
	}

	answer = echo

	e = aidip(t, agent(here).URL, `"operations": [`+translate+`]`)
	if _, err := ask(here, alpha, "nobody", hello); err != nil || calls.Load() != n+1 {
		t.Errorf("once it is there: %v after %d calls", err, calls.Load()-n)
	}

	if _, err := ask(newStage(t, nil), alpha, "k", hello); directory.ProblemOf(err) != directory.Unavailable {
		t.Errorf("a gateway that keeps no keys: %v", err)
	}
}

// Who has gone away finds the answer to a key; a proof that was shown is good for one
// call, whichever node it is shown to.
//
// Requirement: AI-012, TRUST-005
func TestACallOutlivesItsCaller(t *testing.T) {
	keys := domain(t)
	s := newStage(t, func(c *gateway.Config) { c.Claims = keys })
	started, goOn := make(chan struct{}, 1), make(chan struct{})
	agent := s.agent(t, func(w http.ResponseWriter, r *http.Request) {
		started <- struct{}{}

		select {
		case <-goOn:
		case <-r.Context().Done():
		}

		echo(w, r)
	})
	e := aidip(t, agent.URL, `"operations": [`+translate+`]`)
	in := invoke.Request{Body: []byte(`{"text":"a"}`), Caller: directory.IdentityOf(alpha), Key: "k"}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { _, err := s.Invoke(ctx, e, in); done <- err }()
	<-started
	cancel()
	close(goOn)

	if err := <-done; err != nil {
		t.Fatalf("the call of one who has gone away: %v", err)
	}

	if r, err := s.Invoke(t.Context(), e, in); err != nil || !r.Replayed {
		t.Errorf("when it is back: %+v, %v", r, err)
	}

	in.Key, in.Proof, in.ProofUntil = "", directory.Hash{1}, time.Now().Unix()+60
	if _, err := s.Invoke(t.Context(), e, in); err != nil {
		t.Fatal(err)
	}

	<-started

	if _, err := s.Invoke(t.Context(), e, in); directory.ProblemOf(err) != directory.Replayed {
		t.Errorf("a proof that was shown before: %v", err)
	}

	if len(started) != 0 {
		t.Error("the agent was called by it")
	}
}

// memory are claims that all end in the same way.
type memory struct {
	err     error
	claims  int
	settled []directory.Settlement
}

func (m *memory) Claim(context.Context, directory.Claim) (*directory.StoredAnswer, error) {
	m.claims++
	return nil, m.err
}

func (m *memory) Settle(_ context.Context, settlement directory.Settlement) error {
	m.settled = append(m.settled, settlement)
	return nil
}

func (m *memory) Spend(context.Context, directory.Hash, int64) error { return nil }

// While the domain can't note a key the agent isn't called, and the key is given free.
//
// Requirement: AI-012
func TestAKeyThatCannotBeNoted(t *testing.T) {
	keys := &memory{err: directory.Refuse(directory.OutcomeUnknown, "no leader")}
	s := newStage(t, func(c *gateway.Config) { c.Claims = keys })
	called := false
	agent := s.agent(t, func(w http.ResponseWriter, r *http.Request) { called = true; echo(w, r) })

	_, err := s.Invoke(t.Context(), aidip(t, agent.URL, `"operations": [`+translate+`]`),
		invoke.Request{Body: []byte(`{"text":"a"}`), Caller: directory.IdentityOf(alpha), Key: "k"})
	if directory.ProblemOf(err) != directory.Unavailable || called || keys.claims != 3 || len(keys.settled) != 1 ||
		!keys.settled[0].Release {
		t.Errorf("%v; called %t, after %d claims, settled %+v", err, called, keys.claims, keys.settled)
	}
}

// The items of a batch have keys of their own, because an agent does nothing for a key that it has seen. A request
// without a key has none.
//
// Requirement: AI-011, AI-012
func TestItemsHaveKeysOfTheirOwn(t *testing.T) {
	s := newStage(t, func(c *gateway.Config) { c.Claims = &memory{} })
	keys := make(chan string, 4)
	agent := s.agent(t, func(w http.ResponseWriter, r *http.Request) {
		keys <- r.Header.Get("Idempotency-Key")

		echo(w, r)
	})
	e := aidip(t, agent.URL, `"operations": [`+translate+`]`)

	for body, want := range map[string]int{`{"text":"a"}`: 1, `[{"text":"a"},{"text":"b"}]`: 2} {
		for _, key := range []string{"", "k"} {
			if _, err := s.Invoke(t.Context(), e, invoke.Request{Body: []byte(body), Key: key}); err != nil {
				t.Fatal(err)
			}

			got := map[string]bool{}
			for range want {
				got[<-keys] = true
			}

			if key == "" && !got[""] || key != "" && (got[""] || len(got) != want) {
				t.Errorf("%s with the key %q: the agent is shown %v", body, key, got)
			}
		}
	}

	// A session with an MCP server is several requests, and one key is for one.
	ts := newToolServer(t, s, false, "say")
	ts.say(t, s, directory.IdentityOf(beta), func(_ *directory.Entry, in *invoke.Request) { in.Key = "k" })

	if ts.keyed > 0 {
		t.Errorf("%d requests of a session have a key", ts.keyed)
	}
}

// A gateway that closes ends what is under way, and says so; it waits for nobody.
func TestClose(t *testing.T) {
	keys := domain(t)
	s := newStage(t, func(c *gateway.Config) { c.Claims = keys })
	started := make(chan struct{}, 3)
	agent := s.agent(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.Header.Get("Accept"), "event-stream") {
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, "data: 1\n\n")
			w.(http.Flusher).Flush()
		}

		started <- struct{}{}
		<-r.Context().Done()
	})
	e := aidip(t, agent.URL, `"operations": [`+translate+`]`)
	in := invoke.Request{Body: []byte(`{"text":"a"}`), Caller: directory.IdentityOf(alpha)}
	streamed := in
	streamed.Stream = true

	r, err := s.Invoke(t.Context(), e, streamed)
	must(t, err)

	<-started

	first := make([]byte, len("data: 1\n\n"))
	if _, err := io.ReadFull(r.Stream, first); err != nil {
		t.Fatalf("a stream before it: %q, %v", first, err)
	}

	s.Drain()

	if b, err := io.ReadAll(r.Stream); len(b) > 0 || directory.ProblemOf(err) != directory.Unavailable {
		t.Errorf("a stream, drained: %q, %v", b, err)
	}

	_ = r.Stream.Close()

	results := make(chan error, 2)
	for _, key := range []string{"", "k"} {
		called := in
		called.Key = key
		go func() { _, err := s.Invoke(t.Context(), e, called); results <- err }()
		<-started
	}

	must(t, s.Close(t.Context()))

	for range 2 {
		if err := <-results; directory.ProblemOf(err) != directory.Unavailable {
			t.Errorf("a call, closed: %v", err)
		}
	}

	if _, err := s.Invoke(t.Context(), e, in); directory.ProblemOf(err) != directory.Unavailable {
		t.Errorf("after it: %v", err)
	}

	in.Key = "k"

	next := &stage{gateway.New(gateway.Config{Claims: keys, Guard: newGuard(t, gateway.GuardConfig{})}), s.authority}
	if _, err := next.Invoke(t.Context(), e, in); directory.ProblemOf(err) != directory.KeySpent {
		t.Errorf("its key, at another node: %v", err)
	}
}

type tokens struct {
	asked []string
	err   error
}

func (k *tokens) JWTSVID(_ context.Context, audience string) (string, time.Time, error) {
	k.asked = append(k.asked, audience)
	return "token-for-" + audience, time.Now().Add(time.Hour), k.err
}

// The node shows the agent its own token, for the place that it is at, whatever the
// registration says; and of the caller's header what an operator named for this very
// agent. The tokens are an identity source's: package trust has the real ones.
//
// Requirement: AI-017
func TestWhatAnAgentIsShown(t *testing.T) {
	from := &tokens{}

	var got http.Header
	s := newStage(t, func(c *gateway.Config) {
		c.Tokens, c.Domain = from, alpha.TrustDomain()
		c.PassHeaders = map[string][]string{"translator": {"X-API-Key"}}
	})
	agent := s.agent(t, func(w http.ResponseWriter, r *http.Request) { got = r.Header.Clone(); echo(w, r) })
	in := invoke.Request{Body: []byte(`{"text":"a"}`), RequestID: "request-1", Header: http.Header{
		"Authorization": {"Bearer callers"}, "Cookie": {"callers"}, "X-Api-Key": {"callers"},
		"Workload-Identity-Token": {"callers"},
		"X-Forwarded-For":         {"callers"}, "Traceparent": {"callers"}, "Host": {"callers"},
	}}
	show := func(e *directory.Entry) {
		t.Helper()
		got = nil

		if _, err := s.Invoke(t.Context(), e, in); err != nil {
			t.Fatal(err)
		}
	}
	e := aidip(t, agent.URL+"/a", `"operations": [`+translate+
		`], "authentication": {"type": "jwt_svid", "audience": "https://victim.example"}`)
	show(e)
	show(e)

	if got.Get("Authorization") != "Bearer token-for-"+agent.URL || len(from.asked) != 1 ||
		got.Get("X-Api-Key") != "callers" || got.Get("X-Request-Id") != "request-1" {
		t.Errorf("shown %v; asked for %q", got, from.asked)
	}

	for name, values := range got {
		if strings.Contains(fmt.Sprint(values), "callers") && name != "X-Api-Key" {
			t.Errorf("%s is the caller's", name)
		}
	}

	if invoke.Gateways(got) != 1 {
		t.Errorf("a gateway is not told by Via: %v", got)
	}

	in.Header["Via"] = []string{"1.1 proxy, " + invoke.ViaGateway}

	if show(e); invoke.Gateways(got) != 2 {
		t.Errorf("the second of two gateways is not told by Via: %v", got)
	}

	in.Header["Traceparent"] = []string{"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}

	if show(e); got.Get("Traceparent") == "" {
		t.Error("the trace is not continued")
	}

	e = aidip(t, strings.Replace(agent.URL, "127.0.0.1", "localhost", 1), `"operations": [`+translate+`]`)
	from.err = errors.New("the source is away")

	for range 2 {
		if show(e); got.Get("Authorization") != "" {
			t.Errorf("a token that there is none of: %v", got)
		}
	}

	if len(from.asked) != 2 {
		t.Errorf("a source that is away is asked again at once: %q", from.asked)
	}

	for name, ok := range map[string]bool{
		"X-API-Key": true, "A2A-Extensions": true, "Host": false, "transfer-encoding": false, "X Y": false, "": false,
		"X-A\r\nB":      false,
		"authorization": false, "Cookie": false, "workload-identity-token": false, "DPoP": false,
		"MCP-session-id": false, "A2A-Version": false, "Last-Event-ID": false,
	} {
		if err := gateway.CheckPassHeader(name); (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// An agent of another domain gets no field that an operator named for one of this domain
// with that name. An owner of this domain, as whom a peer registered it, doesn't certify its
// server: only the origin's own identities do (finding 4).
//
// Requirement: AI-017, SEC-009
func TestAPeersAgentIsNotTakenForOneOfOurs(t *testing.T) {
	var got http.Header

	web := newCA(t, "")
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { got = r.Header.Clone(); echo(w, r) })
	s := newStage(t, func(c *gateway.Config) {
		c.PassHeaders = map[string][]string{"translator": {"X-API-Key"}}
	})
	byHost := newStage(t, func(c *gateway.Config) {
		c.Guard = newGuard(t, gateway.GuardConfig{Allow: loopback, Roots: web.pool()})
		c.PassHeaders = map[string][]string{"translator": {"X-API-Key"}}
	})
	in := invoke.Request{Body: []byte(`{"text":"a"}`), Header: http.Header{"X-Api-Key": {"callers"}}}

	foreign := func(endpoint string) *directory.Entry {
		e := aidip(t, endpoint, `"operations": [`+translate+`]`)
		e.Origin = spiffeid.RequireTrustDomainFromString("beta.test") // its owner is of alpha.test

		return e
	}

	internal := s.agent(t, handler)
	if _, err := s.Invoke(t.Context(), foreign(internal.URL), in); err == nil || got != nil {
		t.Errorf("a service of the owner that a peer names was called: %v", err)
	}

	public := serve(t, web.leaf(t, "127.0.0.1", spiffeid.ID{}), handler)
	if _, err := byHost.Invoke(t.Context(), foreign(public.URL), in); err != nil || got.Get("X-Api-Key") != "" {
		t.Errorf("another domain's agent of that name is shown %v: %v", got, err)
	}
}

// Two places that are written alike are not shown one token: the one could be the
// node towards the other.
//
// Requirement: AI-017
func TestAudiences(t *testing.T) {
	from := &tokens{}
	s := newStage(t, func(c *gateway.Config) { c.Tokens = from })
	want := []string{"https://[::1]:8443", "https://[::1:8443]", "https://a.test", "https://a.test:8443"}
	ended, cancel := context.WithCancel(t.Context())
	cancel() // whether it is there doesn't matter

	for _, endpoint := range []string{"https://[::1]:8443/x", "https://[::1:8443]:443/x", "https://A.test/x",
		"https://a.test:443/y", "https://a.test:8443"} {
		e := aidip(t, endpoint, `"operations": [`+translate+`]`)
		if _, err := s.Invoke(ended, e, invoke.Request{Body: []byte(`{"text":"a"}`)}); err == nil {
			t.Errorf("%s answered", endpoint)
		}
	}

	if !slices.Equal(from.asked, want) {
		t.Errorf("asked for %q, want %q", from.asked, want)
	}
}

// Each request says which content coding it takes, and takes it, whether or not it asked; a bound is
// of what is unpacked. Another coding is named.
//
// Requirement: FLD-012
func TestPackedAnswers(t *testing.T) {
	s := newStage(t, func(c *gateway.Config) { c.MaxBody = 64 << 10 })

	var asked, coding, content string

	pack := true
	agent := s.agent(t, func(w http.ResponseWriter, r *http.Request) {
		asked = strings.Join(r.Header.Values("Accept-Encoding"), ", ")

		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Encoding", coding)

		if !pack {
			io.WriteString(w, content)
			return
		}

		packed := gzip.NewWriter(w)
		io.WriteString(packed, content)
		packed.Close()
	})
	e := aidip(t, agent.URL, `"operations": [`+translate+`]`)

	const small = `{"text":"a"}`

	for _, tc := range []struct {
		coding, content string
		packs           bool
		want, message   string
	}{
		{"gzip", small, true, small, ""},
		{"X-GZIP", small, true, small, ""},
		{"identity", small, false, small, ""},
		{"br", small, false, "", `"br"; gzip and identity are taken`},
		{"gzip", small, false, "", "not in gzip, though it says so"},
		{"gzip", `{"text":"` + strings.Repeat("a", 1<<20) + `"}`, true, "", "larger than this gateway"},
	} {
		coding, content, pack = tc.coding, tc.content, tc.packs

		got, err := invokeAgent(s, e, "", small)
		if got != tc.want || asked != "gzip" ||
			tc.message != "" && (directory.ProblemOf(err) != directory.AgentFailed ||
				!strings.Contains(err.Error(), tc.message)) {
			t.Errorf("%s: %.100s, %v; asked for %q", tc.coding, got, err, asked)
		}
	}

	coding, content, pack = "gzip", small, true

	guard := newGuard(t, gateway.GuardConfig{Allow: loopback, Roots: s.authority.pool()})
	if answer, err := fetch(t, guard, agent.URL, gateway.Target{}); err != nil || string(answer.Body) != small {
		t.Errorf("metadata: %+v, %v", answer, err)
	}

	// What can't be made smaller is larger packed, and its bound is of what is unpacked.
	random := make([]byte, 1<<10)
	_, _ = rand.Read(random)
	content = string(random)

	for most, rule := range map[int64]gateway.Rule{1 << 10: "", 1<<10 - 1: gateway.RuleSize} {
		answer, err := fetch(t, guard, agent.URL, gateway.Target{MaxBody: most})
		if gateway.RuleOf(err) != rule || (err == nil) != (rule == "") ||
			err == nil && string(answer.Body) != content {
			t.Errorf("1024 random bytes, of at most %d: %v", most, err)
		}
	}

	// Members of nothing make a body that is endless as it is packed.
	var nothing bytes.Buffer

	_ = gzip.NewWriter(&nothing).Close()
	content, pack = strings.Repeat(nothing.String(), 1000), false
	_, err := fetch(t, guard, agent.URL, gateway.Target{MaxBody: 1 << 10})
	wantRule(t, "a packed body that is larger than its contents", err, gateway.RuleSize)

	content, pack = small, true

	// The events of a stream that a server packs could be held back.
	_, _ = s.Invoke(t.Context(), e, invoke.Request{Body: []byte(small), Stream: true})
	if asked != "identity" {
		t.Errorf("a stream: asked for %q", asked)
	}
}
