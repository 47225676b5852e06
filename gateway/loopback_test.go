package gateway_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/gateway"
)

// An agent at plain http is refused by the rule scheme, on loopback too, unless the gateway
// of a development mesh is told otherwise. notes/users.md: `an agent at http://127.0.0.1/a2a`.
//
// Requirement: XU-043
func TestPlainHTTPIsForLoopbackInDevelopment(t *testing.T) {
	token := ""
	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		token = r.Header.Get("Authorization")

		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":"1","result":{"got":%q}}`, body)
	}))
	defer agent.Close()

	card := func(more string) *directory.Entry {
		return entry(t, directory.KindA2A, "a", `{"name":"A","description":"D","version":"1","skills":[],"url":"`+
			agent.URL+`/a2a"`+more+`}`)
	}

	strict := newStage(t, nil)

	_, err := invokeAgent(strict, card(""), "", `"hello"`)
	if directory.ProblemOf(err) != directory.EndpointRefused ||
		!strings.Contains(err.Error(), `binding is not https; the gateway calls https only (the guard's rule "scheme")`) {
		t.Errorf("refused as %v", err)
	}

	insecure := newStage(t, func(cfg *gateway.Config) {
		cfg.Guard = newGuard(t, gateway.GuardConfig{Allow: loopback, InsecureLoopback: true})
		cfg.Tokens = &tokens{}
	})

	got, err := invokeAgent(insecure, card(""), "", `"hello"`)
	if err != nil || !strings.Contains(got, `\"parts\":[{\"kind\":\"text\",\"text\":\"hello\"}]`) || token != "" {
		t.Errorf("answered %s, %v; token %q", got, err, token)
	}

	mutual := card(`,"securitySchemes":{"m":{"type":"mutualTLS"}},"security":[{"m":[]}]`)

	_, err = invokeAgent(insecure, mutual, "", `"x"`)
	if directory.ProblemOf(err) != directory.AgentFailed || !strings.Contains(err.Error(), "identity") {
		t.Errorf("an agent that speaks mTLS: %v", err)
	}
}

// Names and addresses beyond loopback stay closed to http, whatever they resolve to.
func TestPlainHTTPLeavesTheMachineNever(t *testing.T) {
	resolver, asked := rebinding(netip.MustParseAddr("10.1.2.3"), netip.MustParseAddr("93.184.216.34"))
	own := netip.MustParseAddrPort("127.0.0.1:8400")
	guard := newGuard(t, gateway.GuardConfig{
		Allow: append(loopback, netip.MustParsePrefix("10.0.0.0/8")), InsecureLoopback: true, Resolver: resolver,
		IsOwn: func(at netip.AddrPort) bool { return at == own },
	})

	for target, rule := range map[string]gateway.Rule{
		"http://10.1.2.3:8080/": gateway.RuleScheme, "http://agent.test:8080/": gateway.RuleScheme,
		"ftp://127.0.0.1:8080/": gateway.RuleScheme, "http://127.0.0.1:8400/": gateway.RuleAddress,
		"http://u@127.0.0.1:8080/": gateway.RuleAddress, "http://127.0.0.1:99999/": gateway.RulePort,
	} {
		parsed, err := url.Parse(target)
		if err == nil {
			err = guard.Check(parsed)
		}

		wantRule(t, target, err, rule)
	}

	if asked.Load() != 0 {
		t.Error("a name was resolved")
	}
}
