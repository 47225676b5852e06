package api

import (
	"slices"
	"strings"
	"testing"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/api/ad"
	"github.com/roster-mesh/roster/api/agents"
	"github.com/roster-mesh/roster/api/wire"
)

// Parts of a request that have no effect are named, whatever the outcome of the request, but
// for domains that are no peers.
// notes/users.md: `GET /ad/l?agnet=x`, `"protcols"`, `--visibility peers:nowhere.test`.
//
// Requirement: AD-030, XU-003, XU-044
func TestIgnoredPartsAreNamed(t *testing.T) {
	s := newTestServer(t, func(cfg *Config) {
		cfg.IsPeer = func(td spiffeid.TrustDomain) bool { return td == beta }
	})

	for _, c := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"GET", "/ad/l?agnet=x", "", 200, "agnet;near=agent"},
		{"GET", "/ad/l?agent=x&count=3&wait=0&consistency=stale", "", 200, ""},
		{"GET", "/ad/l?agnet=x&agnet=y&zzz=1&protocl=a&count=no", "", 400,
			"agnet;near=agent, zzz, protocl;near=protocol"},
		{"GET", "/ad/l?a%0d%0ab=x", "", 200, `%"a%0d%0ab"`},
		{"GET", "/agents?capabilites=x", "", 200, "capabilites;near=capabilities"},
		{"GET", "/.well-known/ad?v=1", "", 200, "v"},
		{"POST", "/ad/r?agent=x&lifetime=60", `{"base":"https://a.test","protcols":["mcp"],"color":1}`, 503,
			`lifetime, "/protcols";near="/protocols"`},
		{"POST", "/ad/r?agent=x&visibility=peers:beta.test,nowhere.test", `{"base":"https://a.test"}`, 503,
			""},
		{"POST", "/discovery/agents", `{"id":"x","name":"X","description":"X","bindings":[{"protocol":"mcp",` +
			`"endpoint":"https://a.test","media_type":["a"]}]}`, 503,
			`"/bindings/0/media_type";near="/bindings/0/media_types"`},
	} {
		resp := ask(t, s, "/agent/ada", c.method, c.path, c.body)
		if resp.StatusCode != c.status {
			t.Errorf("%s %s: status %d, want %d", c.method, c.path, resp.StatusCode, c.status)
		}

		if got := resp.Header.Get(wire.HeaderIgnored); got != c.want {
			t.Errorf("%s %s: ignored %s, want %s", c.method, c.path, got, c.want)
		}
	}

	reply, err := newTestClient(t, s, "/agent/ada").Do(t.Context(), "GET", "/ad/l?agnet=x", nil, nil)
	must(t, err)

	if got := reply.Ignored(); !slices.Equal(got, []wire.Ignored{{Name: "agnet", Near: "agent"}}) {
		t.Errorf("the client says that %v was ignored", got)
	}
}

// No draft says that a directory ignores parameters of operators' routes.
func TestOperatorsParametersAreKnown(t *testing.T) {
	_, s := trailServer(t)

	for path, want := range map[string]string{
		"/v1/operator/audit?sicne=2026-01-01T00:00:00Z": `There is no parameter "sicne" here; is since meant?`,
		"/v1/operator/audit?zzz=1":                      `there are since, who,`,
		"/v1/operator/peers?domain=beta.test":           `this route has none`,
	} {
		body := wantStatus(t, ask(t, s, "/ops/operator", "GET", path, ""), 400)
		if detail := body["detail"].(string); !strings.Contains(detail, want) {
			t.Errorf("%s: %s", path, detail)
		}

		wantStatus(t, ask(t, s, "/agent/ada", "GET", path, ""), 403) // which says nothing of parameters
	}
}

// The description, by which parameters are judged, has those that the handlers read.
func TestTheDescriptionHasTheParametersOfHandlers(t *testing.T) {
	s := newTestServer(t, whole)

	read := map[string][]string{
		"GET /ad/l": ad.LookupParams, "GET /ad/watch": ad.WatchParams, "GET /agents": agents.ListParams,
	}
	for _, r := range s.table() {
		if r.who.level == levelReader {
			read[r.method+" "+r.path] = append(slices.Clip(read[r.method+" "+r.path]), "consistency", "min", "wait")
		}
	}

	for route, names := range read {
		for _, name := range names {
			if !slices.Contains(s.params[route], name) {
				t.Errorf("%s: %s is not described in openapi.yaml", route, name)
			}
		}
	}
}
