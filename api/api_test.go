package api

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/api/request"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/index"
	"github.com/roster-mesh/roster/directory/kinds"
	"github.com/roster-mesh/roster/discovery"
)

// The tests of this package run against a node that is cut off from its leader:
// it answers reads from its view, and no write can succeed. Writes that do are
// shown by the scripts in testdata, which package scenarios runs against whole
// nodes.

var (
	alpha = spiffeid.RequireTrustDomainFromString("alpha.test")
	beta  = spiffeid.RequireTrustDomainFromString("beta.test")
	gamma = spiffeid.RequireTrustDomainFromString("gamma.test")
)

const publicURL = "https://ad.alpha.test:8400"

// cutOff is the registry of a node that has no leader.
type cutOff struct {
	heard    time.Duration
	position directory.Position
	offer    directory.Offer // open, unless it is zero
}

var errNoLeader = directory.Refuse(directory.Unavailable, "No leader was found in time. Nothing was changed.")

func (cutOff) Register(context.Context, directory.RegisterRequest) (directory.Outcome, error) {
	return directory.Outcome{}, errNoLeader
}

func (cutOff) Refresh(context.Context, directory.RefreshRequest) (directory.Outcome, error) {
	return directory.Outcome{}, errNoLeader
}

func (cutOff) RefreshMany(context.Context, directory.RefreshBatch) (directory.Outcome, error) {
	return directory.Outcome{}, errNoLeader
}

func (cutOff) Remove(context.Context, directory.RemoveRequest) (directory.Outcome, error) {
	return directory.Outcome{}, errNoLeader
}

func (cutOff) TransferOwner(context.Context, directory.TransferRequest) (directory.Outcome, error) {
	return directory.Outcome{}, errNoLeader
}

func (r cutOff) Offer(rid directory.RID) (directory.Offer, bool) {
	return r.offer, !rid.IsZero() && rid == r.offer.RID
}

func (cutOff) Offers(directory.Identity, directory.RID, int) []directory.Offer { return nil }

func (r cutOff) Position() directory.Position { return r.position }
func (r cutOff) Restored() uint64             { return 0 }
func (r cutOff) Heard() time.Duration         { return r.heard }

func (cutOff) Linearize(context.Context) error { return errNoLeader }

// houseRules let everybody read what isn't called secret, identities register,
// the operator operate, and the commissioner commission.
type houseRules struct{}

func (houseRules) Register(id directory.Identity, agent string, _ *directory.Projection,
	_ directory.Visibility) directory.Decision {
	allow := !strings.HasPrefix(agent, "reserved") && !strings.HasSuffix(id.String(), "/agent/blocked")

	return directory.Decision{Allow: allow, Policies: []string{"reserved-names"}}
}

func (r houseRules) Renew(e *directory.Entry) directory.Decision {
	return r.Register(e.Owner, e.Agent, nil, e.Visibility)
}

func (houseRules) Inside(id directory.Identity) bool { return id.MemberOf(alpha) }

func (houseRules) OnBehalf(tool, _ directory.Identity, _ string, _ *directory.Projection,
	_ directory.Visibility) directory.Decision {
	return directory.Decision{Allow: strings.HasSuffix(tool.String(), "/tool/commissioner")}
}

func (houseRules) Read(_ directory.Identity, e *directory.Entry) directory.Decision {
	return directory.Decision{Allow: !strings.HasPrefix(e.Agent, "secret")}
}

func (houseRules) Operate(id directory.Identity, _ string) directory.Decision {
	return directory.Decision{Allow: strings.HasSuffix(id.String(), "/ops/operator")}
}

func (houseRules) Commission(id directory.Identity) bool {
	return strings.HasSuffix(id.String(), "/tool/commissioner")
}

func (houseRules) Version() uint64          { return 0 }
func (houseRules) Generation() uint64       { return 0 }
func (houseRules) Changed() <-chan struct{} { return nil }

func (houseRules) DefaultVisibility() directory.Visibility { return directory.Visibility{Mesh: true} }

// identify takes the word of the request, for want of certificates; a liar is
// one whose credential does not hold.
func identify(r *http.Request) (request.Credential, error) {
	switch who := r.Header.Get("Test-Caller"); who {
	case "":
		return request.Credential{}, nil
	case "liar":
		return request.Credential{}, errors.New("the certificate is not of this domain")
	default:
		return request.Credential{Identity: identity(who), Method: "x509-svid"}, nil
	}
}

func identity(path string) directory.Identity {
	return directory.IdentityOf(spiffeid.RequireFromPath(alpha, path))
}

// newTestServer returns a server of alpha.test over a view with those entries.
func newTestServer(t testing.TB, change func(*Config), entries ...*directory.Entry) *Server {
	t.Helper()

	view := index.NewView(alpha)
	for _, e := range entries {
		if e.Origin == alpha {
			view.Own().Put(e)
		} else {
			view.Origin(e.Origin).Put(e)
		}
	}

	cfg := quietConfig(view)
	cfg.Identify, cfg.Registry = identify, cutOff{position: directory.Position{Epoch: 1780315200, Revision: 385}}
	cfg.Service = func(td spiffeid.TrustDomain) string {
		if td == beta {
			return "https://ad.beta.test:8401"
		}

		return ""
	}
	cfg.Position = func(td spiffeid.TrustDomain) (directory.Position, bool) {
		return directory.Position{Epoch: 1780000000, Revision: 17}, td == beta
	}
	cfg.Claimed = func(*http.Request) directory.Identity { return directory.Identity{} }
	cfg.CredentialRefused, cfg.CaughtUp = func(string) {}, func() bool { return true }
	cfg.Await = func(context.Context, spiffeid.TrustDomain, directory.Position) error {
		return context.DeadlineExceeded
	}

	finder, err := discovery.New(discovery.Config{View: view})
	must(t, err)

	t.Cleanup(finder.Close)

	cfg.Finder = finder
	if change != nil {
		change(&cfg)
	}

	return New(cfg)
}

// entry makes a living registration of kind ad.
func entry(t testing.TB, origin spiffeid.TrustDomain, rid, agent string, revision uint64, doc string) *directory.Entry {
	t.Helper()
	return entryOf(t, directory.KindAD, origin, rid, agent, revision, doc)
}

func entryOf(t testing.TB, kind directory.Kind, origin spiffeid.TrustDomain, rid, agent string, revision uint64,
	doc string) *directory.Entry {
	t.Helper()

	d, err := directory.ParseDocument(kind, []byte(doc))
	must(t, err)

	p, err := kinds.Project(agent, d)
	must(t, err)

	id, err := directory.ParseRID(rid)
	must(t, err)

	now := time.Now().UnixMilli()

	e := &directory.Entry{
		Origin: origin, RID: id, Agent: agent, Owner: identity("/agent/ada"), Document: d, Packed: directory.Pack(d, p),
		Visibility: directory.Visibility{Mesh: true}, Lifetime: 86400,
		RegisteredAt: now, UpdatedAt: now, ExpiresAt: now + 86400_000,
		Created: revision, Revision: revision, Statement: revision,
	}
	if origin != alpha {
		e.Visibility, e.Created = directory.Visibility{}, 0
		e.Received = &directory.Received{At: now, From: gamma, Key: "kid", CheckedAt: now}
	}

	return e
}

const aDocument = `{"base":"https://agents.example.com/one","protocols":["mcp"]}`

// ask sends one request as a caller (a path of alpha.test, or "" for nobody). What
// comes back must be as /openapi.json says.
func ask(t testing.TB, s *Server, caller, method, target, body string, header ...string) *http.Response {
	t.Helper()
	r := httptest.NewRequest(method, "https://ad.alpha.test:8400/", strings.NewReader(body))
	r.RequestURI = target

	u, err := r.URL.Parse("https://ad.alpha.test:8400" + target)
	must(t, err)

	r.URL = u
	if caller != "" {
		r.Header.Set("Test-Caller", caller)
	}

	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}

	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}

	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, r)
	resp := w.Result()
	judgeAnswer(t, s, method, target, resp)

	return resp
}

// wantStatus fails unless resp has that status; a refusal must be a whole
// problem body. It returns the body.
func wantStatus(t testing.TB, resp *http.Response, status int) map[string]any {
	t.Helper()

	b, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != status {
		t.Fatalf("status %d, want %d; body %s", resp.StatusCode, status, b)
	}

	var body map[string]any
	if len(b) > 0 && strings.Contains(resp.Header.Get("Content-Type"), "json") {
		if err := json.Unmarshal(b, &body); err != nil {
			t.Fatalf("body %s: %v", b, err)
		}
	}

	if status >= 400 {
		if got := resp.Header.Get("Content-Type"); got != "application/problem+json" {
			t.Errorf("Content-Type %q, want a problem", got)
		}

		if len(b) > 0 && (body["status"] != float64(status) ||
			body["correlation_id"] != resp.Header.Get("X-Request-Id") ||
			body["message"] != body["detail"] || body["error"] == nil || body["code"] == nil) {
			t.Errorf("not a whole problem body: %s", b)
		}
	}

	return body
}

func parse(t *testing.T, b []byte) map[string]any {
	t.Helper()

	var v map[string]any
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatalf("%s: %v", b, err)
	}

	return v
}

func same(t *testing.T, what string, got, want any) {
	t.Helper()

	if !reflect.DeepEqual(got, want) {
		g, _ := json.Marshal(got, jsontext.Multiline(true), json.Deterministic(true))
		w, _ := json.Marshal(want, jsontext.Multiline(true), json.Deterministic(true))
		t.Errorf("%s is\n%s\nwant\n%s", what, g, w)
	}
}

func (houseRules) Invoke(id directory.Identity, e *directory.Entry) directory.Decision {
	return directory.Decision{Allow: !id.IsZero() && !strings.HasPrefix(e.Agent, "reserved")}
}
