package gateway_test

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/gateway"
)

// Addresses are judged by what they lead to.
//
// Requirement: WOA-018
func TestCheckJudgesAddresses(t *testing.T) {
	open := newGuard(t, gateway.GuardConfig{})

	allowing := newGuard(t,
		gateway.GuardConfig{Allow: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"),
			netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("100.64.0.0/10")}})
	for _, tc := range []struct {
		address        string
		open, allowing bool
	}{
		{"93.184.216.34", true, true},
		{"2606:2800:220:1::1", true, true},
		{"10.1.2.3", false, true},
		{"127.0.0.1", false, false},
		{"0.0.0.0", false, false},
		{"100.64.1.1", false, true},
		{"100.100.100.200", false, false}, // metadata
		{"169.254.1.1", false, true},
		{"169.254.169.254", false, false}, // metadata
		{"168.63.129.16", false, false},   // metadata at a public address
		{"172.31.255.255", false, false},
		{"172.32.0.1", true, true},
		{"192.168.0.1", false, false},
		{"198.18.0.1", false, false},
		{"224.0.0.1", false, false},
		{"240.0.0.1", false, false},
		{"255.255.255.255", false, false},
		{"::", false, false},
		{"::1", false, false},
		{"fe80::1", false, false},
		{"fc00::1", false, false},
		{"fd00:ec2::254", false, false},
		{"ff02::1", false, false},
		{"::ffff:127.0.0.1", false, false},
		{"::ffff:10.0.0.1", false, true},
		{"::ffff:93.184.216.34", true, true},
		{"::127.0.0.1", false, false},          // IPv4-compatible
		{"64:ff9b::a00:1", false, true},        // NAT64 of 10.0.0.1
		{"64:ff9b::5db8:d822", true, true},     // NAT64 of a public one
		{"64:ff9b:1::a00:1", false, false},     // NAT64, local use
		{"2002:7f00:1::", false, false},        // 6to4 of 127.0.0.1
		{"2002:a9fe:a9fe::", false, false},     // 6to4 of metadata
		{"2001:0:4136:e378::1", false, false},  // Teredo
		{"2606:2800::5efe:a00:1", false, true}, // ISATAP of 10.0.0.1
		{"2606:2800::200:5efe:7f00:1", false, false},
		{"2001:db8::1", false, false},
		{"3fff::1", false, false},
	} {
		host := tc.address
		if strings.Contains(host, ":") {
			host = "[" + host + "]"
		}

		u := &url.URL{Scheme: "https", Host: host}
		for name, g := range map[string]struct {
			*gateway.Guard
			want bool
		}{"open": {open, tc.open}, "allowing": {allowing, tc.allowing}} {
			err := g.Check(u)
			if ok := err == nil; ok != g.want {
				t.Errorf("%s: %s: %v", name, tc.address, err)
			}

			if err != nil {
				wantRule(t, tc.address, err, gateway.RuleAddress)
			}
		}
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
		if err != nil {
			t.Fatal(err)
		}

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
)

// Who may answer for a host, and who for a registrant.
//
// Requirement: WOA-014
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

// Requirement: AI-017
func TestGuardShowsTheNode(t *testing.T) {
	authority := newCA(t, "alpha.test")
	node := spiffeid.RequireFromString("spiffe://alpha.test/roster/node/1")
	svid := authority.leaf(t, "", node)
	g := newGuard(t, gateway.GuardConfig{Allow: loopback, Roots: authority.pool(),
		Certificate: func() *tls.Certificate {
			return &svid
		}})

	var shown string

	s := serve(t, authority.leaf(t, "127.0.0.1", spiffeid.ID{}),
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			shown = r.TLS.PeerCertificates[0].URIs[0].String()
		}))
	if _, err := fetch(t, g, s.URL, gateway.Target{}); err != nil || shown != node.String() {
		t.Errorf("the agent saw %q: %v", shown, err)
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
	if err != nil {
		t.Fatal(err)
	}

	resp.Body.Close()

	if resp.StatusCode != http.StatusFound || reached {
		t.Errorf("an invocation was answered %d; the redirect's target was reached: %v", resp.StatusCode, reached)
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
