package client

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"
)

// An authority issues certificates for tests.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// newAuthority makes a CA with a SPIFFE ID, or without any for an empty one.
func newAuthority(t *testing.T, id string) *authority {
	t.Helper()

	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "CA " + id}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign,
	}
	if id != "" {
		template.URIs = svidOf(id).URIs
	}

	made := &authority{}
	made.cert = template
	pair := made.issue(t, template)
	made.cert = pair.Leaf
	made.key, _ = pair.PrivateKey.(*ecdsa.PrivateKey)

	return made
}

// svidOf is the template of an X.509-SVID without host names, as SPIRE issues it.
func svidOf(id string) *x509.Certificate {
	uri, err := url.Parse(id)
	if err != nil {
		panic(err)
	}

	return &x509.Certificate{
		URIs: []*url.URL{uri}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
}

// issue issues a certificate of a template for an hour, unless it says otherwise. The
// authority's own is self-signed.
func (a *authority) issue(t *testing.T, template *x509.Certificate) tls.Certificate {
	t.Helper()

	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)

	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	if template.NotAfter.IsZero() {
		template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	}

	signer := a.key
	if signer == nil {
		signer = key
	}

	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), signer)
	must(t, err)

	leaf, err := x509.ParseCertificate(der)
	must(t, err)

	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// startNode starts a server that answers lookups and says who asked.
func startNode(t *testing.T, shows tls.Certificate, clients tls.ClientAuthType) *httptest.Server {
	t.Helper()

	node := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.TLS.PeerCertificates) > 0 {
			w.Header().Set("Roster-Index", r.TLS.PeerCertificates[0].Subject.CommonName)
		}

		_, _ = io.WriteString(w, `{"agents":[]}`)
	}))
	node.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	node.TLS = &tls.Config{MinVersion: tls.VersionTLS13, ClientAuth: clients, Certificates: []tls.Certificate{shows}}
	node.StartTLS()
	t.Cleanup(node.Close)

	return node
}

// A client that holds the domain's bundle accepts the nodes of that domain alone: by
// SPIFFE ID and not by host name, and nothing that the bundle's authorities certify beside.
// notes/users.md: "an expired server SVID".
// notes/users.md: "a node's SVID without DNS or IP SAN, as SPIRE makes by default".
//
// Requirement: TRUST-001
func TestAClientAcceptsNodesOfTheDomainAlone(t *testing.T) {
	const node = "spiffe://alpha.test/roster/node/1"

	alpha, beta := newAuthority(t, "spiffe://alpha.test"), newAuthority(t, "spiffe://beta.test")
	unnamed := newAuthority(t, "")
	stranger := newAuthority(t, "spiffe://alpha.test")
	bundle := []*x509.Certificate{alpha.cert, unnamed.cert, beta.cert}

	expired := svidOf(node)
	expired.NotBefore, expired.NotAfter = time.Now().Add(-2*time.Hour), time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	expired.NotBefore = expired.NotAfter.Add(-time.Hour)

	early := svidOf(node)
	early.NotBefore, early.NotAfter = time.Now().Add(time.Hour), time.Now().Add(2*time.Hour)

	named := svidOf(node)
	named.URIs = nil
	named.DNSNames = []string{"localhost"}

	several := svidOf(node)
	several.URIs = append(several.URIs, svidOf("spiffe://alpha.test/roster/node/2").URIs...)

	clientOnly := svidOf(node)
	clientOnly.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}

	for name, row := range map[string]struct {
		shows tls.Certificate
		want  string // in the error; empty if it is accepted
	}{
		"a node without host names":           {alpha.issue(t, svidOf(node)), ""},
		"a node by an authority without a ID": {unnamed.issue(t, svidOf(node)), ""},
		"an agent": {alpha.issue(t, svidOf("spiffe://alpha.test/agent/eve")),
			"is not a node"},
		"a gateway": {alpha.issue(t, svidOf("spiffe://alpha.test/roster/gateway/1")),
			"is not a node"},
		"the prefix without a separator": {alpha.issue(t, svidOf("spiffe://alpha.test/roster/nodes/1")),
			"is not a node"},
		"another domain's node":         {beta.issue(t, svidOf("spiffe://beta.test/roster/node/1")), "of another domain"},
		"a node by another domain's CA": {beta.issue(t, svidOf(node)), "doesn't certify"},
		"a node by a stranger's CA":     {stranger.issue(t, svidOf(node)), "doesn't certify"},
		"an expired node": {alpha.issue(t, expired),
			"the node's certificate expired at 2026-01-02T03:04:05Z"},
		"a node of tomorrow": {alpha.issue(t, early), "is valid from"},
		"two IDs":            {alpha.issue(t, several), "several URIs"},
		"a client's":         {alpha.issue(t, clientOnly), "doesn't certify"},
		// By host name and the bundle's authority it would hold; the system has no such authority.
		"a host without an ID": {alpha.issue(t, named), "no SPIFFE ID"},
	} {
		t.Run(name, func(t *testing.T) {
			server := startNode(t, row.shows, tls.NoClientCert)
			address := strings.Replace(server.URL, "127.0.0.1", "localhost", 1)
			trusted := &NodeTrust{Domain: "alpha.test", Authorities: func() []*x509.Certificate { return bundle }}

			client, err := New(Config{Addresses: []string{address}, TLS: trusted.TLS(), Attempts: 1})
			must(t, err)
			defer client.CloseIdleConnections()

			_, err = client.Lookup(t.Context(), LookupOptions{})

			var refused *ServerError
			switch {
			case row.want == "" && err != nil:
				t.Error(err)
			case row.want != "" && (!errors.As(err, &refused) || !strings.Contains(refused.Error(), row.want)):
				t.Errorf("got %v, want %q", err, row.want)
			case errors.Is(err, ErrNotInForce) != (name == "an expired node" || name == "a node of tomorrow"):
				t.Errorf("%v is of time: %t", err, errors.Is(err, ErrNotInForce))
			}
		})
	}
}

// Without a domain that of the first node is taken, reported once, and required from then on.
//
// Requirement: TRUST-001
func TestADomainIsTakenFromTheFirstNode(t *testing.T) {
	shared := newAuthority(t, "")
	alpha := startNode(t, shared.issue(t, svidOf("spiffe://alpha.test/roster/node/1")), tls.NoClientCert)
	second := startNode(t, shared.issue(t, svidOf("spiffe://alpha.test/roster/node/2")), tls.NoClientCert)
	beta := startNode(t, shared.issue(t, svidOf("spiffe://beta.test/roster/node/1")), tls.NoClientCert)

	var learned []string

	trusted := &NodeTrust{
		Authorities: func() []*x509.Certificate { return []*x509.Certificate{shared.cert} },
		Learned:     func(domain string) { learned = append(learned, domain) },
	}
	config := trusted.TLS()

	for _, server := range []*httptest.Server{alpha, second, beta} {
		client, err := New(Config{Addresses: []string{server.URL}, TLS: config, Attempts: 1})
		must(t, err)

		_, err = client.Lookup(t.Context(), LookupOptions{})
		client.CloseIdleConnections()

		if isBeta := server == beta; isBeta != (err != nil) {
			t.Errorf("beta: %t, error: %v", isBeta, err)
		}
	}

	if len(learned) != 1 || learned[0] != "alpha.test" {
		t.Errorf("learned %q", learned)
	}
}
