package api

import (
	"net/http"
	"testing"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/api/request"
	"github.com/roster-mesh/roster/directory"
)

// A node that is short of memory names the domains that its answers leave out to callers of its own
// domain, who see its peers anyhow, and to no one else.
func TestAnswersNameTheDomainsTheyLeaveOut(t *testing.T) {
	var lacks []string

	s := newTestServer(t, func(cfg *Config) {
		identifyAnyone(cfg)

		cfg.Without = func() []string { return lacks }
	})
	without := func(caller, target string) string {
		return ask(t, s, caller, "GET", target, "").Header.Get("Roster-Without")
	}

	if got := without("/agent/ada", "/ad/l"); got != "" {
		t.Errorf("a node that shows all: %q", got)
	}

	lacks = []string{"beta.test", "gamma.test"}

	for _, target := range []string{"/ad/l", "/agents", "/ad/r/beta.test/nothing"} {
		if got := without("/agent/ada", target); got != "beta.test, gamma.test" {
			t.Errorf("GET %s: %q", target, got)
		}

		for _, caller := range []string{"", "spiffe://beta.test/agent/bob"} {
			if got := without(caller, target); got != "" {
				t.Errorf("%q, GET %s: %q", caller, target, got)
			}
		}
	}

	if got := use(t, s, "/agent/ada", "lookup_agents", `{}`).Meta["Roster-Without"]; got != "beta.test, gamma.test" {
		t.Errorf("the tool lookup_agents: %v", got)
	}
}

// A node names the others to callers of its own domain who ask, on every route that knows
// its caller, and to no one else.
func TestNodesAreNamedToTheOwnDomain(t *testing.T) {
	s := newTestServer(t, func(cfg *Config) {
		identifyAnyone(cfg)

		cfg.Nodes = func() []string { return []string{"https://n2.alpha.test:8400", "https://n3.alpha.test:8400"} }
	})

	const both = "https://n2.alpha.test:8400, https://n3.alpha.test:8400"
	for _, row := range []struct{ caller, target, asks, want string }{
		{"/agent/ada", "/ad/l", "?", both},
		{"/agent/ada", "/ad/r/nothing", "?", both},
		{"/agent/ada", "/ad/l", "", ""},
		{"/agent/ada", "/.well-known/ad", "?", ""},
		{"", "/ad/l", "?", ""},
		{"spiffe://beta.test/agent/bob", "/ad/l", "?", ""},
	} {
		resp := ask(t, s, row.caller, "GET", row.target, "", "Roster-Nodes", row.asks)
		if got := resp.Header.Get("Roster-Nodes"); got != row.want {
			t.Errorf("%q, GET %s, Roster-Nodes: %q: answered with %q, want %q", row.caller, row.target, row.asks, got,
				row.want)
		}
	}
}

// identifyAnyone lets a test's caller be a SPIFFE ID of any domain.
func identifyAnyone(cfg *Config) {
	identify := cfg.Identify
	cfg.Identify = func(r *http.Request) (request.Credential, error) {
		if id, err := spiffeid.FromString(r.Header.Get("Test-Caller")); err == nil {
			return request.Credential{Identity: directory.IdentityOf(id), Method: "x509-svid"}, nil
		}

		return identify(r)
	}
}
