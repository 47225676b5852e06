package gateway_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/gateway"
)

// The guard judges a literal address before anything is sent, by the operator's list.
// Package egress has the table of addresses.
//
// Requirement: WOA-018, SEC-010
func TestCheckJudgesAddresses(t *testing.T) {
	open := newGuard(t, gateway.GuardConfig{})
	allowing := newGuard(t, gateway.GuardConfig{Allow: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}})

	for _, tc := range []struct {
		host           string
		open, allowing bool
	}{
		{"93.184.216.34", true, true},
		{"10.1.2.3", false, true},
		{"127.0.0.1", false, false},
		{"169.254.169.254", false, false},
		{"[::ffff:10.0.0.1]", false, false},
		{"[64:ff9b::a00:1]", false, false},
	} {
		u := &url.URL{Scheme: "https", Host: tc.host}
		for guard, want := range map[*gateway.Guard]bool{open: tc.open, allowing: tc.allowing} {
			err := guard.Check(u)
			if permitted := err == nil; permitted != want {
				t.Errorf("%s, allowing %v: %v", tc.host, guard == allowing, err)
			}

			if err != nil {
				wantRule(t, tc.host, err, gateway.RuleAddress)
			}
		}
	}
}

// An address at which a member of the own domain listens is never connected to: neither as
// a literal, nor where a name leads there, on the allow list or not.
//
// Requirement: SEC-009
func TestGuardSparesOwnListeners(t *testing.T) {
	reached := false
	authority := newCA(t, "")
	listener := serve(t, authority.leaf(t, "agent.test", spiffeid.ID{}),
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true }))
	own := netip.MustParseAddrPort(listener.Listener.Addr().String())
	resolver, _ := rebinding(own.Addr())

	guard := newGuard(t, gateway.GuardConfig{Allow: loopback, Hosts: []string{"agent.test"}, Roots: authority.pool(),
		Resolver: resolver, IsOwn: func(at netip.AddrPort) bool { return at == own }})

	for _, host := range []string{own.String(), fmt.Sprintf("agent.test:%d", own.Port())} {
		_, err := fetch(t, guard, "https://"+host+"/", gateway.Target{})
		wantRule(t, host, err, gateway.RuleAddress)
	}

	if reached {
		t.Error("a member's listener was called")
	}

	agent := serve(t, authority.leaf(t, "127.0.0.1", spiffeid.ID{}), http.NotFoundHandler())
	if _, err := fetch(t, guard, agent.URL, gateway.Target{}); err != nil {
		t.Errorf("an agent beside it: %v", err)
	}
}

// Schemes, ports and users are judged before anything is resolved.
//
// Requirement: WOA-014
func TestCheckJudgesURLs(t *testing.T) {
	for address, rule := range map[string]gateway.Rule{
		"http://example.com/":         gateway.RuleScheme,
		"file:///etc/passwd":          gateway.RuleScheme,
		"https:///x":                  gateway.RuleAddress,
		"https://u:p@example.com/":    gateway.RuleAddress,
		"https://example.com:22/":     gateway.RulePort,
		"https://example.com:0/":      gateway.RulePort,
		"https://example.com:443/":    "",
		"https://example.com/":        "",
		"https://example.com:8443/":   "",
		"https://[fe80::1%25eth0]/":   gateway.RuleAddress,
		"https://[::ffff:127.0.0.1]/": gateway.RuleAddress,
	} {
		u, err := url.Parse(address)
		must(t, err)

		wantRule(t, address, newGuard(t, gateway.GuardConfig{}).Check(u), rule)
	}

	narrow := newGuard(t, gateway.GuardConfig{Ports: []uint16{8443}})
	wantRule(t, "a port that is not on the list", narrow.Check(&url.URL{Scheme: "https", Host: "example.com"}),
		gateway.RulePort)
	wantRule(t, "the port on the list", narrow.Check(&url.URL{Scheme: "https", Host: "example.com:8443"}), "")
}

var (
	alpha = spiffeid.RequireFromString("spiffe://alpha.test/agent/ada")
	other = spiffeid.RequireFromString("spiffe://alpha.test/agent/eve")
	beta  = spiffeid.RequireFromString("spiffe://beta.test/agent/ada")

	node           = spiffeid.RequireFromString("spiffe://alpha.test/roster/node/1")
	foreignGateway = spiffeid.RequireFromString("spiffe://beta.test/roster/gateway/1")
)

// Who may answer for a host, and who for a registrant: never a directory's own program.
//
// Requirement: WOA-014, SEC-009
func TestGuardJudgesServers(t *testing.T) {
	web, alphaCA, betaCA := newCA(t, ""), newCA(t, "alpha.test"), newCA(t, "beta.test")
	cfg := gateway.GuardConfig{Allow: loopback, Roots: web.pool(),
		Judge: bundles(t, map[string]*ca{"alpha.test": alphaCA, "beta.test": betaCA})}
	anybody := cfg
	anybody.AnyBundle = true
	expired := func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Second) }
	notServer := func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} }

	none := spiffeid.ID{}
	for _, tc := range []struct {
		name   string
		cert   tls.Certificate
		target gateway.Target
		any    bool
		want   gateway.Rule
	}{
		{"web PKI", web.leaf(t, "127.0.0.1", none), gateway.Target{}, false, ""},
		{"nobody's for the host", newCA(t, "").leaf(t, "127.0.0.1", none), gateway.Target{}, true,
			gateway.RuleCertificate},
		{"web PKI with a path like a node's", web.leaf(t, "127.0.0.1", none, func(c *x509.Certificate) {
			c.URIs = []*url.URL{{Scheme: "https", Host: "example.com", Path: node.Path()}}
		}), gateway.Target{}, false, ""},
		{"web PKI, another host", web.leaf(t, "example.com", none), gateway.Target{}, false, gateway.RuleCertificate},
		{"web PKI, expired", web.leaf(t, "127.0.0.1", none, expired), gateway.Target{}, false, gateway.RuleCertificate},
		{"web PKI, of a client", web.leaf(t, "127.0.0.1", none, notServer), gateway.Target{}, false,
			gateway.RuleCertificate},
		{"the registrant", alphaCA.leaf(t, "", alpha), gateway.Target{Registrant: alpha}, false, ""},
		{"the registrant, expired", alphaCA.leaf(t, "", alpha, expired), gateway.Target{Registrant: alpha}, false,
			gateway.RuleCertificate},
		{"a neighbour for another host", alphaCA.leaf(t, "", other), gateway.Target{Registrant: alpha}, false,
			gateway.RuleCertificate},
		{"a neighbour for the host", alphaCA.leaf(t, "127.0.0.1", other), gateway.Target{Registrant: alpha}, false, ""},
		{"another domain for the host", betaCA.leaf(t, "127.0.0.1", beta), gateway.Target{Registrant: alpha}, false,
			gateway.RuleCertificate},
		{"another domain for the host, any", betaCA.leaf(t, "127.0.0.1", beta), gateway.Target{Registrant: alpha},
			true, ""},
		{"nobody's agent", alphaCA.leaf(t, "127.0.0.1", alpha), gateway.Target{}, false, gateway.RuleCertificate},
		{"nobody's agent, any", alphaCA.leaf(t, "127.0.0.1", alpha), gateway.Target{}, true, ""},
		{"mTLS, the registrant", alphaCA.leaf(t, "", alpha), gateway.Target{Registrant: alpha, MutualTLS: true}, false,
			""},
		{"mTLS, a neighbour", alphaCA.leaf(t, "127.0.0.1", other), gateway.Target{Registrant: alpha, MutualTLS: true},
			true, gateway.RuleIdentity},
		{"mTLS, web PKI", web.leaf(t, "127.0.0.1", none), gateway.Target{Registrant: alpha, MutualTLS: true}, false,
			gateway.RuleIdentity},
		{"a node of the domain for the host", alphaCA.leaf(t, "127.0.0.1", node), gateway.Target{Registrant: alpha},
			true, gateway.RuleIdentity},
		{"a node that is the registrant", alphaCA.leaf(t, "", node), gateway.Target{Registrant: node}, false,
			gateway.RuleIdentity},
		{"web PKI with the name of a node", web.leaf(t, "127.0.0.1", node), gateway.Target{}, false,
			gateway.RuleIdentity},
		{"a gateway for the host", betaCA.leaf(t, "127.0.0.1", foreignGateway), gateway.Target{}, true,
			gateway.RuleIdentity},
		{"mTLS, a forged one", betaCA.leaf(t, "", alpha), gateway.Target{Registrant: alpha, MutualTLS: true}, false,
			gateway.RuleIdentity},
	} {
		s := serve(t, tc.cert, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {}))

		g := newGuard(t, cfg)
		if tc.any {
			g = newGuard(t, anybody)
		}

		_, err := fetch(t, g, s.URL, tc.target)
		wantRule(t, tc.name, err, tc.want)

		if tc.want == "" && err != nil {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}

// A connection that was judged for one registrant is not used for another.
func TestGuardKeepsRegistrantsApart(t *testing.T) {
	authority := newCA(t, "alpha.test")
	g := newGuard(t, gateway.GuardConfig{Allow: loopback, Judge: bundles(t, map[string]*ca{"alpha.test": authority})})

	s := serve(t, authority.leaf(t, "127.0.0.1", alpha),
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {}))
	if _, err := fetch(t, g, s.URL, gateway.Target{Registrant: alpha, MutualTLS: true}); err != nil {
		t.Fatal(err)
	}

	_, err := fetch(t, g, s.URL, gateway.Target{Registrant: other, MutualTLS: true})
	wantRule(t, "another registrant's agent", err, gateway.RuleIdentity)
}

// A server that asks for a certificate sees the gateway's own identity, or none.
//
// Requirement: AI-017, SEC-009
func TestGuardShowsTheGateway(t *testing.T) {
	authority := newCA(t, "alpha.test")
	svid := authority.leaf(t, "", spiffeid.RequireFromString("spiffe://alpha.test/roster/gateway/1"))

	for name, tc := range map[string]struct {
		certificate func() *tls.Certificate
		want        string
	}{
		"its own":         {func() *tls.Certificate { return &svid }, "spiffe://alpha.test/roster/gateway/1"},
		"none yet":        {func() *tls.Certificate { return nil }, ""},
		"none configured": {nil, ""},
	} {
		guard := newGuard(t, gateway.GuardConfig{Allow: loopback, Roots: authority.pool(),
			Certificate: tc.certificate})

		shown := ""
		server := serve(t, authority.leaf(t, "127.0.0.1", spiffeid.ID{}),
			http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				for _, cert := range r.TLS.PeerCertificates {
					shown += cert.URIs[0].String()
				}
			}))

		if _, err := fetch(t, guard, server.URL, gateway.Target{}); err != nil || shown != tc.want {
			t.Errorf("%s: the agent saw %q: %v", name, shown, err)
		}
	}
}

// Redirects stay with the authority, and a plain client follows none.
//
// Requirement: WOA-018
func TestGuardFollowsFewRedirects(t *testing.T) {
	authority := newCA(t, "")
	g := newGuard(t, gateway.GuardConfig{Allow: loopback, Roots: authority.pool()})
	cert := authority.leaf(t, "127.0.0.1", spiffeid.ID{})
	reached := false
	elsewhere := serve(t, cert, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true }))

	s := serve(t, cert, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/here":
			http.Redirect(w, r, "/there", http.StatusFound)
		case "/there":
			w.Write([]byte("arrived"))
		case "/loop":
			http.Redirect(w, r, "/loop", http.StatusFound)
		default:
			http.Redirect(w, r, r.URL.Query().Get("to"), http.StatusFound)
		}
	}))
	if a, err := fetch(t, g, s.URL+"/here", gateway.Target{}); err != nil || string(a.Body) != "arrived" ||
		a.URL.Path != "/there" {
		t.Errorf("a redirect within the authority: %+v, %v", a, err)
	}

	for _, to := range []string{elsewhere.URL, "http://169.254.169.254/latest/meta-data/", "https://169.254.169.254/",
		"http" + s.URL[len("https"):], "file:///etc/passwd"} {
		_, err := fetch(t, g, s.URL+"/to?to="+url.QueryEscape(to), gateway.Target{})
		wantRule(t, to, err, gateway.RuleRedirect)
	}

	_, err := fetch(t, g, s.URL+"/loop", gateway.Target{})
	wantRule(t, "a loop", err, gateway.RuleRedirect)

	resp, err := g.Client(gateway.Target{}).
		Post(s.URL+"/to?to="+url.QueryEscape(elsewhere.URL), "application/json", nil)
	must(t, err)

	resp.Body.Close()

	if resp.StatusCode != http.StatusFound || reached {
		t.Errorf("an invocation was answered %d; the redirect's target was reached: %v", resp.StatusCode, reached)
	}
}

// A server that is late with its header is refused by the time for that; a caller whose own time is over is told so.
//
// Requirement: WOA-018
func TestGuardWaitsForAHeader(t *testing.T) {
	authority := newCA(t, "")
	silent := serve(t, authority.leaf(t, "127.0.0.1", spiffeid.ID{}),
		http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))

	for header, want := range map[time.Duration]gateway.Rule{50 * time.Millisecond: gateway.RuleTime, 0: ""} {
		guard := newGuard(t, gateway.GuardConfig{Allow: loopback, Roots: authority.pool(), HeaderTimeout: header})

		ctx, cancel := context.WithCancel(t.Context())
		if header == 0 {
			ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
		}

		defer cancel()

		r, err := http.NewRequest(http.MethodGet, silent.URL, nil)
		must(t, err)

		_, err = guard.Fetch(ctx, r, gateway.Target{})
		wantRule(t, "a silent server", err, want)

		if want == "" && !errors.Is(err, context.DeadlineExceeded) || r.Header.Get("Accept-Encoding") != "" {
			t.Errorf("%v; the request's header is %v", err, r.Header)
		}
	}
}

// A fault in what judges servers, on a goroutine that no server is below, is the end of
// a connection and not of the process.
func TestGuardOutlivesItsJudge(t *testing.T) {
	g := newGuard(t, gateway.GuardConfig{Allow: loopback, Judge: func([]*x509.Certificate) (spiffeid.ID, error) {
		panic("a fault")
	}})

	agent := serve(t, newCA(t, "").leaf(t, "127.0.0.1", spiffeid.ID{}), http.NotFoundHandler())
	if _, err := fetch(t, g, agent.URL, gateway.Target{}); err == nil || !strings.Contains(err.Error(), "a fault") {
		t.Errorf("the judge panics: %v", err)
	}
}
