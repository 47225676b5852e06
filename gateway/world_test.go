package gateway_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory/directorytest"
	"github.com/roster-mesh/roster/gateway"
	"github.com/roster-mesh/roster/trust"
)

// A ca is a trust domain's authority, or one of the web's.
type ca struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newCA(t testing.TB, domain string) *ca {
	t.Helper()

	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)

	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority of " + domain},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	if domain != "" {
		template.URIs = []*url.URL{{Scheme: "spiffe", Host: domain}}
	}

	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	must(t, err)

	cert, err := x509.ParseCertificate(der)
	must(t, err)

	return &ca{cert, key}
}

// leaf returns a certificate for a host, which may be "", and a SPIFFE ID, which
// may be zero.
func (c *ca) leaf(t testing.TB, host string, id spiffeid.ID, change ...func(*x509.Certificate)) tls.Certificate {
	t.Helper()

	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)

	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), NotBefore: time.Now().Add(-time.Minute),
		NotAfter:    time.Now().Add(time.Hour),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	switch ip := net.ParseIP(host); {
	case ip != nil:
		template.IPAddresses = []net.IP{ip}
	case host != "":
		template.DNSNames = []string{host}
	}

	if !id.IsZero() {
		template.URIs = []*url.URL{id.URL()}
	}

	for _, f := range change {
		f(template)
	}

	der, err := x509.CreateCertificate(rand.Reader, template, c.cert, key.Public(), c.key)
	must(t, err)

	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func (c *ca) pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(c.cert)

	return p
}

// serve is an agent's server: real TLS on loopback.
func serve(t testing.TB, cert tls.Certificate, h http.Handler) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequestClientCert}
	s.EnableHTTP2 = true
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.StartTLS()
	t.Cleanup(s.Close)

	return s
}

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}

// bundles returns a judge that knows the authorities of trust domains.
func bundles(t testing.TB, cas map[string]*ca) func([]*x509.Certificate) (spiffeid.ID, error) {
	t.Helper()

	b := trust.NewBundles()
	for name, c := range cas {
		must(t, b.SetX509(spiffeid.RequireTrustDomainFromString(name), []*x509.Certificate{c.cert}))
	}

	return func(chain []*x509.Certificate) (spiffeid.ID, error) { return trust.VerifyServer(chain, b) }
}

func newGuard(t testing.TB, cfg gateway.GuardConfig) *gateway.Guard {
	t.Helper()
	g := gateway.NewGuard(cfg)
	t.Cleanup(g.Close)

	return g
}

func fetch(t testing.TB, g *gateway.Guard, address string, target gateway.Target) (*gateway.Answer, error) {
	t.Helper()

	r, err := http.NewRequest("GET", address, nil)
	must(t, err)

	return g.Fetch(context.Background(), r, target)
}

// wantRule fails unless the guard refused by that rule.
func wantRule(t testing.TB, what string, err error, rule gateway.Rule) {
	t.Helper()

	if got := gateway.RuleOf(err); got != rule {
		t.Errorf("%s: refused by %q (%v), want %q", what, got, err, rule)
	}

	var r *gateway.Refusal
	if rule != "" && !errors.As(err, &r) {
		t.Errorf("%s: %v is no refusal", what, err)
	}
}

var must = directorytest.Must
