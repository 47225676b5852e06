package api

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/api/client/contract"
	"github.com/roster-mesh/roster/api/operator"
	"github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/invoke"
)

// quietOperator is a node with one peer, which takes any peering.
type quietOperator struct{ set func(directory.Peering) }

func (quietOperator) Keys() wire.KeysStatus { return wire.KeysStatus{Keys: []wire.SigningKey{}} }

func (quietOperator) PreviewPolicy(context.Context, string) (wire.PolicyPreview, error) {
	return wire.PolicyPreview{
		Peers: []wire.PeerPreview{{
			Domain:    "beta.test",
			Withdrawn: wire.ChangedExports{Total: 1, Agents: []string{"weather"}},
		}},
		Unknown: []wire.UnknownDomain{{Domain: "bta.test", Near: "beta.test"}},
	}, nil
}

func (quietOperator) RotateKey(context.Context) error { return errNoLeader }

func (quietOperator) EraseHistory(context.Context, directory.RID) error { return nil }

func (quietOperator) RevokeKey(context.Context, string) error { return errNoLeader }

func (quietOperator) Evidence(spiffeid.TrustDomain, string) ([]byte, error) {
	return []byte(`{"offence":"E3","keys":["a","b"],"bundle":{}}` + "\n"), nil
}

func (quietOperator) Policy() wire.PolicyText {
	return wire.PolicyText{Policy: "permit (principal, action, resource);", Version: 7}
}

func (quietOperator) SetPolicy(context.Context, directory.Identity, string, []uint64) (directory.Outcome, error) {
	return directory.Outcome{}, errNoLeader
}

func (quietOperator) Node() wire.NodeStatus {
	return wire.NodeStatus{ID: "spiffe://alpha.test/roster/node/1", Version: "v0.1.0", Ready: true, Position: "1.2",
		SVIDExpires: time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)}
}

func (quietOperator) Raft() wire.RaftStatus {
	return wire.RaftStatus{Leader: "spiffe://alpha.test/roster/node/1",
		Peers: []wire.RaftPeer{{
			ID: "spiffe://alpha.test/roster/node/1", Address: "127.0.0.1:1", Voter: true, State: "alive",
			LastContact: time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)}}}
}

func (quietOperator) Members() []wire.Member {
	return []wire.Member{{ID: "spiffe://beta.test/roster/node/1", Domain: "beta.test", Address: "127.0.0.1:2",
		State: "alive"}}
}

func (quietOperator) Peers() []wire.Peer {
	return []wire.Peer{{Domain: "beta.test", State: "active", Agreed: "active", Watermark: "1.2", LagRevisions: 3,
		Received: map[string]uint64{"applied": 4}}}
}

func (o quietOperator) SetPeering(_ context.Context, p directory.Peering) error {
	o.set(p)
	return nil
}

// signedRequests hands out evidence that a test can tell apart.
type signedRequests struct{}

func (signedRequests) Record(_ context.Context, origin spiffeid.TrustDomain, rid directory.RID) (string, error) {
	return "record of " + origin.Name() + " " + rid.String(), nil
}

func (signedRequests) Proof(_ context.Context, origin spiffeid.TrustDomain, rid directory.RID) ([]byte, error) {
	return []byte(`{"record":"` + origin.Name() + `","page":"p"}`), nil
}

func (signedRequests) Staple(origin spiffeid.TrustDomain, _ directory.RID) ([]byte, error) {
	return []byte(`{"attestation":"of ` + origin.Name() + `"}`), nil
}

// asCaller makes every request one of that caller.
type asCaller string

func (c asCaller) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Test-Caller", string(c))

	return http.DefaultTransport.RoundTrip(r)
}

// newTestClient returns a client of s as one of alpha.test's callers.
func newTestClient(t *testing.T, s *Server, caller string) *apiclient.Client {
	t.Helper()
	server := httptest.NewServer(s.Handler())
	t.Cleanup(server.Close)

	return apiclient.NewDirect(server.URL, &http.Client{Transport: asCaller(caller)})
}

func TestClientReads(t *testing.T) {
	var entries []*directory.Entry
	for i := range 5 {
		entries = append(entries, entry(t, alpha, rid(i), "agent "+strconv.Itoa(i), uint64(i+1), aDocument))
	}

	entries = append(entries, entry(t, beta, rid(9), "foreign", 9, aDocument))
	s := newTestServer(t, nil, entries...)
	c := newTestClient(t, s, "/ops/operator")

	var names []string
	for l, err := c.Lookup(t.Context(), apiclient.LookupOptions{Agent: "agent *", Protocol: []string{"mcp"},
		Count: 2}); l != nil; l, err = c.Next(t.Context(), l) {
		must(t, err)

		for _, a := range l.Agents {
			names = append(names, a.Agent)
		}
	}

	if got := strings.Join(names, ", "); got != "agent 0, agent 1, agent 2, agent 3, agent 4" {
		t.Errorf("the lookup finds %s", got)
	}

	for _, id := range []string{rid(9), "foreign", "/ad/r/beta.test/" + rid(9)} {
		got, err := c.Get(t.Context(), id)
		must(t, err)

		if got.Agent != "foreign" || got.Provenance.Authority != "beta.test" ||
			got.Provenance.Verification.State != "verified" ||
			got.RID() != rid(9) || !strings.HasPrefix(string(got.Body), `{"agent":"foreign"`) ||
			!strings.HasPrefix(got.Index(), "alpha.test=") {
			t.Errorf("Get(%s) is %+v", id, got)
		}

		if r, err := c.Record(t.Context(), got.Href); err != nil || string(r.Body) != "record of beta.test "+rid(9) ||
			r.Header.Get("Content-Type") != "application/sd-jwt" {
			t.Errorf("Record(%s) is %v, %v", got.Href, r, err)
		}

		if r, err := c.Proof(t.Context(), id); err != nil || string(r.Body) != `{"record":"beta.test","page":"p"}` {
			t.Errorf("Proof(%s) is %v, %v", id, r, err)
		}
	}

	raft, reply, err := c.Operator().Raft(t.Context())
	if err != nil || raft.Leader == "" || len(raft.Peers) != 1 || !raft.Peers[0].Voter ||
		raft.Peers[0].LastContact.IsZero() {
		t.Errorf("Raft is %+v, %v", raft, err)
	} else if want := `{"leader":"spiffe://alpha.test/roster/node/1","peers":[{"id":"spiffe://alpha.test/roster/node/1","address":"127.0.0.1:1","voter":true,"last_contact":"2026-06-01T12:00:00Z","state":"alive"}]}` + "\n"; string(reply.Body) != want {
		t.Errorf("the body is %s, want %s", reply.Body, want)
	}

	if ms, _, err := c.Operator().Members(t.Context()); err != nil || len(ms) != 1 || ms[0].Domain != "beta.test" {
		t.Errorf("Members is %+v, %v", ms, err)
	}

	if ps, _, err := c.Operator().Peers(t.Context()); err != nil || len(ps) != 1 || ps[0].LagRevisions != 3 ||
		ps[0].Received["applied"] != 4 {
		t.Errorf("Peers is %+v, %v", ps, err)
	}
}

func TestClientErrors(t *testing.T) {
	s := newTestServer(t, nil,
		entry(t, beta, rid(1), "twice", 1, aDocument), entry(t, gamma, rid(2), "twice", 1, aDocument))

	c := newTestClient(t, s, "/agent/ada")
	for _, x := range []struct {
		problem directory.Problem
		status  int
		do      func() error
	}{
		{directory.NotFound, 404, func() error { _, err := c.Get(t.Context(), "nobody"); return err }},
		{directory.Unavailable, 503, func() error {
			_, err := c.Register(t.Context(), "one", []byte(aDocument),
				apiclient.RegisterOptions{Lifetime: time.Minute})

			return err
		}},
		{directory.BadLifetime, 400, func() error {
			_, err := c.Register(t.Context(), "one", []byte(aDocument),
				apiclient.RegisterOptions{Lifetime: time.Second})

			return err
		}},
		{directory.BadDocument, 400, func() error {
			_, err := c.Register(t.Context(), "one", []byte(`{}`), apiclient.RegisterOptions{})
			return err
		}},
		{directory.ForeignRegistration, 403, func() error { _, err := c.Deregister(t.Context(), rid(1)); return err }},
		{directory.Unavailable, 503, func() error { _, err := c.Refresh(t.Context(), rid(7), 0); return err }},
		{directory.Forbidden, 403, func() error { _, _, err := c.Operator().Raft(t.Context()); return err }},
		{"", 300, func() error { _, err := c.Get(t.Context(), "twice"); return err }},
	} {
		var e *apiclient.Error
		if err := x.do(); !errors.As(err, &e) || e.Code != string(x.problem) || e.Status != x.status ||
			e.Error() == "" || len(e.Body) == 0 {
			t.Errorf("got %#v, want %s with %d", err, x.problem, x.status)
		}
	}
}

func TestClientSetsPeerings(t *testing.T) {
	var set directory.Peering
	s := newTestServer(t, func(cfg *Config) { cfg.Operator = quietOperator{func(p directory.Peering) { set = p }} })

	want := directory.Peering{Domain: beta, State: directory.PeeringActive, Bundle: []byte(`{"keys":[]}`),
		Addresses: []string{"https://127.0.0.1:8401"}, Gossip: []string{"127.0.0.1:9401"}, Mesh: true}
	if err := newTestClient(t, s, "/ops/operator").Operator().
		SetPeering(t.Context(), operator.WirePeering(want)); err != nil || !set.Equal(want) {
		t.Errorf("set is %+v, %v; want %+v", set, err, want)
	}

	for _, body := range []string{
		``, `[]`, `{"domain":"mesh"}`, `{"domain":"alpha.test"}`, `{"domain":"Beta.test"}`, `{"domain":"beta.test"}`,
		`{"domain":"beta.test","bundle":"x","addresses":["https://a"]}`,
		`{"domain":"beta.test","bundle":{},"addresses":[]}`,
		`{"domain":"beta.test","bundle":{},"addresses":["http://a"]}`,
		`{"domain":"beta.test","bundle":{},"addresses":["https://a/path"]}`,
		`{"domain":"beta.test","bundle":{},"addresses":["https://a"],"state":"friends"}`,
		`{"domain":"beta.test","bundle":{},"addresses":["https://a"],"exported":true}`,
	} {
		wantStatus(t, ask(t, s, "/ops/operator", "POST", "/v1/operator/peers", body), 400)
	}

	wantStatus(t, ask(t, s, "/agent/ada", "POST", "/v1/operator/peers", `{}`), 403)
	wantStatus(t, ask(t, s, "", "POST", "/v1/operator/peers", `{}`), 401)
}

func TestAdmin(t *testing.T) {
	var (
		failing error
		shed    []string
	)

	h := NewAdmin(AdminConfig{
		Hosts: func() []string { return []string{"metrics.example"} },
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "roster_up 1\n")
		}),
		Ready: func() error { return failing },
		Shed:  func() []string { return shed },
	})
	host := "127.0.0.1:8401"
	get := func(path string) (int, string) {
		w, r := httptest.NewRecorder(), httptest.NewRequest("GET", path, nil)
		r.Host = host
		h.ServeHTTP(w, r)

		return w.Code, w.Body.String()
	}
	want := func(path string, status int, part string) {
		t.Helper()

		if code, body := get(path); code != status || !strings.Contains(body, part) {
			t.Errorf("%s: %d %s, want %d and %q", path, code, body, status, part)
		}
	}
	want("/metrics", 200, "roster_up 1")
	want("/healthz", 200, "true")

	shed = []string{"beta.test", "gamma.test"}
	want("/readyz", 200, `{"ready":true,"short_of_memory_without":"beta.test gamma.test"}`)

	shed = nil
	want("/readyz", 200, `{"ready":true}`)

	want("/readyz", 200, "true")
	failing = errors.New("no leader")
	want("/readyz", 503, `"failing":"no leader"`)
	want("/healthz", 200, "true")
	want("/nothing", 404, `"correlation_id"`)

	for _, path := range []string{"", "cmdline", "profile?seconds=1", "symbol", "trace?seconds=1", "heap"} {
		want("/debug/pprof/"+path, 404, `"correlation_id"`)
	}

	for name, status := range map[string]int{
		"127.0.0.1:8401": 200, "[::1]:8401": 200, "[::1]": 200, "10.0.0.7": 200, "localhost:8401": 200,
		"LOCALHOST": 200, "metrics.example:8401": 200, "rebound.example:8401": 421, "localhost.example": 421, "": 421,
	} {
		host = name
		want("/metrics", status, "")
		want("/healthz", status, "")
	}
}

// The listeners for other machines serve health alone, and metrics alone: users.md, "an own
// listen.metrics and listen.health for other addresses".
func TestHealthAndMetricsAreApart(t *testing.T) {
	metrics := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })

	for name, c := range map[string]struct {
		cfg     AdminConfig
		metrics int
		health  int
	}{
		"health":  {AdminConfig{Ready: func() error { return nil }}, 404, 200},
		"metrics": {AdminConfig{Metrics: metrics}, 200, 404},
	} {
		handler := NewAdmin(c.cfg)
		for path, want := range map[string]int{"/metrics": c.metrics, "/healthz": c.health, "/readyz": c.health} {
			w, r := httptest.NewRecorder(), httptest.NewRequest("GET", path, nil)
			r.Host = "10.1.2.3:8404"

			if handler.ServeHTTP(w, r); w.Code != want {
				t.Errorf("%s at the listener for %s: %d, want %d", path, name, w.Code, want)
			}
		}
	}
}

// Profiles are for operators, and for who may open the socket; each refusal is a problem.
//
// Requirement: SEC-016
func TestProfiles(t *testing.T) {
	s := newTestServer(t, whole)
	wantStatus(t, ask(t, s, "", "GET", "/v1/operator/debug/pprof/heap", ""), 401)
	wantStatus(t, ask(t, s, "/agent/ada", "GET", "/v1/operator/debug/pprof/heap", ""), 403)
	wantStatus(t, ask(t, s, "/ops/operator", "GET", "/v1/operator/debug/pprof/nothing", ""), 404)
	wantStatus(t, ask(t, s, "/ops/operator", "GET", "/v1/operator/debug/pprof/trace?seconds=600", ""), 400)

	debug := operator.NewDebug(publicURL)
	for path, status := range map[string]int{
		"/debug/pprof/heap?gc=1": 200, "/debug/pprof/goroutine?debug=1": 200, "/debug/pprof/profile?seconds=0": 400,
		"/debug/pprof/nothing": 404, "/metrics": 404,
	} {
		w := httptest.NewRecorder()
		debug.ServeHTTP(w, httptest.NewRequest("GET", path, nil))

		if media := w.Header().Get("Content-Type"); w.Code != status ||
			status != 200 && media != "application/problem+json" {
			t.Errorf("%s: %d %s, want %d", path, w.Code, media, status)
		}
	}
}

// The client judges by the schemas what it sends, and what comes; it leaves that to the
// gateway where it is told to, or where the registration is not to be read.
//
// Requirement: WOA-024
func TestClientJudgesInvocations(t *testing.T) {
	e := entry(t, alpha, "01JWNTC0000000000000000AD1", "agent", 1,
		`{"base":"https://agents.example.com/a","capabilities":[{"name":"sum","type":"tool",
		"input_schema":{"type":"object","required":["n"]},"output_schema":{"type":"object","required":["sum"]}}]}`)
	asked := 0
	s := newTestServer(t, func(cfg *Config) {
		cfg.Gateway = answering(func() (*invoke.Reply, error) {
			asked++
			return &invoke.Reply{Status: 200, ContentType: "application/json", Body: []byte(`{"total":1}`)}, nil
		})
	}, e)
	server := httptest.NewServer(s.Handler())
	defer server.Close()
	c := apiclient.NewDirect(server.URL, &http.Client{Transport: asCaller("/agent/bob")})
	against := func(input string) contract.Invocation {
		return contract.Invocation{ID: "agent", Input: []byte(input), Contract: invoke.ContractOf(e)}
	}

	var unfit *directory.Error
	if _, err := contract.Invoke(t.Context(), c, against(`{"m":1}`),
		apiclient.InvokeOptions{}); !errors.As(err, &unfit) || unfit.Problem != directory.BadInput || asked != 0 {
		t.Errorf("an input against the schema: %v; asked %d times", err, asked)
	}

	var bad *contract.OutputError
	if r, err := contract.Invoke(t.Context(), c, against(`{"n":1}`),
		apiclient.InvokeOptions{}); !errors.As(err, &bad) || r == nil || string(r.Body) != `{"total":1}` {
		t.Errorf("an answer against the schema: %v, %v", r, err)
	}

	if r, err := c.Invoke(t.Context(), "agent", "", []byte(`{"m":1}`), apiclient.InvokeOptions{}); err != nil ||
		r.Status != 200 || asked != 2 {
		t.Errorf("what is not to be judged: %v, %v; asked %d times", r, err, asked)
	}

	var refused *apiclient.Error
	if _, err := contract.Invoke(t.Context(), c, contract.Invocation{ID: "nobody", Input: []byte(`{}`)},
		apiclient.InvokeOptions{}); !errors.As(err, &refused) || refused.Status != 404 {
		t.Errorf("an agent that there isn't: %v", err)
	}
}
