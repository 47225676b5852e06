package trust

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/url"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
)

// shake makes a connection over loopback and passes one byte each way.
func shake(t testing.TB, server, client *tls.Config) (atServer, atClient tls.ConnectionState, serverErr,
	clientErr error) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer listener.Close()
	right, err := net.Dial("tcp", listener.Addr().String())
	must(t, err)
	left, err := listener.Accept()
	must(t, err)

	return shakeOver(t, left, right, server, client)
}

// shakeOver is shake over a connection that is there. A client knows that it was
// taken only once it has read: TLS 1.3 judges it last.
func shakeOver(t testing.TB, left, right net.Conn, server, client *tls.Config) (atServer, atClient tls.ConnectionState,
	serverErr, clientErr error) {
	t.Helper()

	s, c := tls.Server(left, server), tls.Client(right, client)
	for _, conn := range []net.Conn{left, right} {
		must(t, conn.SetDeadline(time.Now().Add(10*time.Second)))
	}

	one := make([]byte, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer left.Close()

		if _, serverErr = s.Read(make([]byte, 1)); serverErr == nil {
			_, serverErr = s.Write([]byte("!"))
		}

		atServer = s.ConnectionState()
	}()

	if _, clientErr = c.Write([]byte("?")); clientErr == nil {
		_, clientErr = c.Read(one)
	}

	atClient = c.ConnectionState()
	_ = right.Close()
	<-done

	return
}

func anyone(spiffeid.ID) error { return nil }

// twoDomains are nodes of alpha and beta that believe each other's bundles.
func twoDomains(t testing.TB) (a, b *CA, bundles *Bundles) {
	t.Helper()

	var err error
	a, err = NewCA(alpha, time.Now())
	must(t, err)
	b, err = NewCA(beta, time.Now())
	must(t, err)
	bundles = NewBundles()
	must(t, bundles.SetX509(alpha, a.Bundle().X509Authorities()))
	must(t, bundles.SetX509(beta, b.Bundle().X509Authorities()))

	return a, b, bundles
}

func issue(t testing.TB, ca *CA, path string) *x509svid.SVID {
	t.Helper()
	svid, err := ca.Issue(path, time.Hour, time.Now())
	must(t, err)

	return svid
}

// Requirement: TRUST-001, AD-037
func TestTLSRefusesWithReason(t *testing.T) {
	a, b, bundles := twoDomains(t)
	stranger, err := NewCA(gamma, time.Now())
	must(t, err)
	impostor, err := NewCA(beta, time.Now()) // calls itself beta; beta's bundle doesn't hold it
	must(t, err)
	server := NewSource(issue(t, a, "/roster/node/1"))

	middle := intermediate(t, b, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth})
	narrow := middle.issueWith(t, "/roster/node/1", nil)
	narrow.Certificates = append(narrow.Certificates, middle.cert)

	// Signed by beta's CA in alpha's name.
	foreign := b.issueWith(t, "/agent/ada", func(c *x509.Certificate) {
		c.URIs = []*url.URL{{Scheme: "spiffe", Host: "alpha.test", Path: "/agent/ada"}}
	})
	second := &url.URL{Scheme: "spiffe", Host: "beta.test", Path: "/agent/eve"}

	rows := []struct {
		name   string
		svid   *x509svid.SVID
		reason Reason
	}{
		{"no SAN", b.issueWith(t, "/agent/bob", func(c *x509.Certificate) { c.URIs = nil }), ReasonNoSAN},
		{"a DNS name alone", b.issueWith(t, "/agent/bob", func(c *x509.Certificate) {
			c.URIs, c.DNSNames = nil, []string{"localhost"}
		}), ReasonNoSAN},
		{"two SANs", b.issueWith(t, "/agent/bob", func(c *x509.Certificate) {
			c.URIs = append(c.URIs, second)
		}), ReasonManySANs},
		{"not SPIFFE", b.issueWith(t, "/agent/bob", func(c *x509.Certificate) {
			c.URIs[0].Scheme = "wimse"
		}), ReasonNotSPIFFE},
		{"a trust domain's own ID", b.issueWith(t, "/agent/bob", func(c *x509.Certificate) {
			c.URIs[0].Path = ""
		}), ReasonNotSPIFFE},
		{"a domain without bundle", issue(t, stranger, "/agent/bob"), ReasonUnknownDomain},
		{"another domain's CA", foreign, ReasonUntrusted},
		{"a CA that is not in the bundle", issue(t, impostor, "/agent/bob"), ReasonUntrusted},
		{"not for clientAuth", b.issueWith(t, "/agent/bob", func(c *x509.Certificate) {
			c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		}), ReasonUsage},
		{"for no use at all", b.issueWith(t, "/agent/bob", func(c *x509.Certificate) {
			c.ExtKeyUsage = nil
		}), ReasonUsage},
		{"under a CA for servers", narrow, ReasonUsage},
		{"a CA", b.issueWith(t, "/agent/bob", func(c *x509.Certificate) { c.IsCA = true }), ReasonUsage},
		{"a key that signs certificates", b.issueWith(t, "/agent/bob", func(c *x509.Certificate) {
			c.KeyUsage |= x509.KeyUsageCertSign
		}), ReasonUsage},
		{"a key that signs nothing", b.issueWith(t, "/agent/bob", func(c *x509.Certificate) {
			c.KeyUsage = x509.KeyUsageKeyEncipherment
		}), ReasonUsage},
		{"expired", b.issueWith(t, "/agent/bob", func(c *x509.Certificate) {
			c.NotAfter = time.Now().Add(-time.Second)
		}), ReasonExpired},
		{"not yet valid", b.issueWith(t, "/agent/bob", func(c *x509.Certificate) {
			c.NotBefore = time.Now().Add(time.Hour)
		}), ReasonNotYetValid},
	}
	for _, row := range rows {
		for listener, config := range map[string]func(func(string)) *tls.Config{
			"API":  func(count func(string)) *tls.Config { return ServerTLS(server, bundles, count) },
			"node": func(count func(string)) *tls.Config { return NodeServerTLS(server, bundles, anyone, count, "h2") },
		} {
			var reasons []string
			client := ClientTLS(NewSource(row.svid), bundles, anyone, "h2")

			_, _, serverErr, clientErr := shake(t, config(func(r string) { reasons = append(reasons, r) }), client)
			if serverErr == nil || clientErr == nil {
				t.Errorf("%s at the %s listener: taken", row.name, listener)
			}

			if !slices.Equal(reasons, []string{string(row.reason)}) {
				t.Errorf("%s at the %s listener: counted as %q, want %q (%v)", row.name, listener, reasons, row.reason,
					serverErr)
			}
		}
	}
}

// Requirement: TRUST-001, AD-037
func TestTLSVersionAndMissingCertificate(t *testing.T) {
	a, b, bundles := twoDomains(t)
	server := NewSource(issue(t, a, "/roster/node/1"))

	var reasons []string
	count := func(r string) { reasons = append(reasons, r) }

	old := ClientTLS(NewSource(issue(t, b, "/agent/bob")), bundles, anyone)

	old.MinVersion, old.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	if _, _, serverErr, _ := shake(t, ServerTLS(server, bundles, count), old); serverErr == nil {
		t.Error("TLS 1.2 is spoken")
	}

	none := ClientTLS(nil, bundles, anyone)
	if _, _, serverErr, _ := shake(t, NodeServerTLS(server, bundles, anyone, count), none); serverErr == nil {
		t.Error("a node listener takes clients without a certificate")
	}

	if _, _, serverErr, _ := shake(t, NodeServerTLS(server, bundles, nil, count),
		ClientTLS(server, bundles, anyone)); serverErr == nil {
		t.Error("a listener that allows nobody takes somebody")
	}

	noNode := func(id spiffeid.ID) error {
		if !IsNode(id, beta) {
			return errors.New("not a node of beta.test")
		}

		return nil
	}

	agent := ClientTLS(NewSource(issue(t, b, "/agent/bob")), bundles, anyone)
	if _, _, serverErr, _ := shake(t, NodeServerTLS(server, bundles, noNode, count), agent); serverErr == nil {
		t.Error("a listener for nodes takes an agent")
	}

	want := []string{"version", "no_certificate", "not_allowed", "not_allowed"}
	if !slices.Equal(reasons, want) {
		t.Errorf("counted %q, want %q", reasons, want)
	}
}

// Requirement: TRUST-001
func TestClientJudgesServer(t *testing.T) {
	a, b, bundles := twoDomains(t)
	impostor, err := NewCA(alpha, time.Now())
	must(t, err)
	client := func(allow func(spiffeid.ID) error) *tls.Config {
		return ClientTLS(NewSource(issue(t, b, "/roster/node/1")), bundles, allow)
	}

	only := func(id spiffeid.ID) error {
		if id.String() != "spiffe://alpha.test/roster/node/1" {
			return errors.New("another node")
		}

		return nil
	}
	for _, row := range []struct {
		name  string
		svid  *x509svid.SVID
		allow func(spiffeid.ID) error
		ok    bool
	}{
		{"the node that was meant", issue(t, a, "/roster/node/1"), only, true},
		{"another node", issue(t, a, "/roster/node/2"), only, false},
		{"nobody is meant", issue(t, a, "/roster/node/1"), nil, false},
		{"a CA that is not in the bundle", issue(t, impostor, "/roster/node/1"), only, false},
		{"not for serverAuth", a.issueWith(t, "/roster/node/1", func(c *x509.Certificate) {
			c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
		}), only, false},
		{"expired", a.issueWith(t, "/roster/node/1", func(c *x509.Certificate) {
			c.NotAfter = time.Now().Add(-time.Second)
		}), only, false},
	} {
		if _, _, _, err := shake(t, ServerTLS(NewSource(row.svid), bundles, nil),
			client(row.allow)); (err == nil) != row.ok {
			t.Errorf("%s: %v", row.name, err)
		}
	}
}

// Requirement: AD-037
func TestTLSConnection(t *testing.T) {
	a, b, bundles := twoDomains(t)
	server := NewSource(issue(t, a, "/roster/node/1"))
	bob := issue(t, b, "/agent/bob")
	client := ClientTLS(NewSource(bob), bundles, anyone, "h2")
	cache := &countingCache{}

	client.ClientSessionCache, client.SessionTicketsDisabled = cache, false
	for range 2 {
		atServer, atClient, serverErr, clientErr := shake(t, ServerTLS(server, bundles, nil), client)
		must(t, errors.Join(serverErr, clientErr))

		if atServer.Version != tls.VersionTLS13 || atServer.NegotiatedProtocol != "h2" {
			t.Errorf("version %x, protocol %q", atServer.Version, atServer.NegotiatedProtocol)
		}

		if id, ok := PeerID(&atServer); !ok || id != bob.ID || !Expiry(&atServer).Equal(bob.Certificates[0].NotAfter) {
			t.Errorf("the server sees %s until %s", id, Expiry(&atServer))
		}

		if id, ok := PeerID(&atClient); !ok || id != server.SVID().ID {
			t.Errorf("the client sees %s", id)
		}

		if atServer.DidResume {
			t.Error("a session was resumed")
		}
	}

	if cache.puts > 0 {
		t.Errorf("%d session tickets were issued", cache.puts)
	}

	atServer, _, serverErr, clientErr := shake(t, ServerTLS(server, bundles, nil), ClientTLS(nil, bundles, anyone))
	must(t, errors.Join(serverErr, clientErr))

	if id, ok := PeerID(&atServer); ok || !Expiry(&atServer).IsZero() {
		t.Errorf("a client without certificate is %s", id)
	}

	if _, ok := PeerID(nil); ok {
		t.Error("no connection is somebody")
	}
}

type countingCache struct{ puts int }

func (c *countingCache) Get(string) (*tls.ClientSessionState, bool) { return nil, false }
func (c *countingCache) Put(string, *tls.ClientSessionState)        { c.puts++ }

// A plain TLS client that knows the CA and no SPIFFE works with a node.
func TestTLSPlainClient(t *testing.T) {
	a, _, bundles := twoDomains(t)
	roots := x509.NewCertPool()
	certPEM, _ := a.PEM()
	roots.AppendCertsFromPEM(certPEM)

	for _, name := range []string{"localhost", "127.0.0.1", "::1"} {
		client := &tls.Config{RootCAs: roots, ServerName: name}
		if _, _, _, err := shake(t, ServerTLS(NewSource(issue(t, a, "/roster/node/1")), bundles, nil),
			client); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Domains that are removed, bundles that are replaced and certificates that are
// swapped count from the next handshake on.
func TestTLSFollowsChanges(t *testing.T) {
	a, b, bundles := twoDomains(t)
	source := NewSource(issue(t, a, "/roster/node/1"))
	server := ServerTLS(source, bundles, nil)
	client := ClientTLS(NewSource(issue(t, b, "/agent/bob")), bundles, anyone)
	_, before, _, err := shake(t, server, client)
	must(t, err)

	changed := source.Changed()
	source.Set(issue(t, a, "/roster/node/1"))
	<-changed
	_, after, _, err := shake(t, server, client)
	must(t, err)

	if before.PeerCertificates[0].Equal(after.PeerCertificates[0]) {
		t.Error("the old certificate is shown after the swap")
	}

	bundles.Remove(beta)

	if _, _, err, _ := shake(t, server, client); err == nil {
		t.Error("a domain without bundle is believed")
	}

	next, err := NewCA(beta, time.Now())
	must(t, err)
	must(t, bundles.SetX509(beta, next.Bundle().X509Authorities()))

	if _, _, err, _ := shake(t, server, client); err == nil {
		t.Error("a CA that left the bundle is believed")
	}
}

// A connection may outlive its certificate; the identity does not.
func TestPeerIDEndsWithCertificate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, bundles := twoDomains(t)
		short, err := b.Issue("/agent/bob", time.Minute, time.Now())
		must(t, err)
		server := ServerTLS(NewSource(issue(t, a, "/roster/node/1")), bundles, nil)
		left, right := net.Pipe()
		atServer, _, serverErr, clientErr := shakeOver(t, left, right, server,
			ClientTLS(NewSource(short), bundles, anyone))
		must(t, errors.Join(serverErr, clientErr))
		time.Sleep(59 * time.Second)

		if _, ok := PeerID(&atServer); !ok {
			t.Error("nobody before the certificate expired")
		}

		time.Sleep(time.Second)

		if id, ok := PeerID(&atServer); ok {
			t.Errorf("still %s after the certificate expired", id)
		}
	})
}

// intermediate is a CA under c for some uses.
func intermediate(t testing.TB, c *CA, uses []x509.ExtKeyUsage) *CA {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := *c.cert
	template.ExtKeyUsage, template.NotAfter = uses, time.Now().Add(2*time.Hour)
	cert, err := certify(&template, c.cert, key.Public(), c.key)
	must(t, err)

	return &CA{c.td, cert, key}
}

// Every certificate of a development domain names localhost and 127.0.0.1, so that people
// reach its nodes and agents with plain TLS clients.
//
// Requirement: OPS-002
func TestIssuedCertificatesNameThisMachine(t *testing.T) {
	ca, err := NewCA(alpha, time.Now())
	if err != nil {
		t.Fatal(err)
	}

	for _, path := range []string{"/roster/node/1", "/agent/ada"} {
		svid, err := ca.Issue(path, time.Hour, time.Now())
		if err != nil {
			t.Fatal(err)
		}

		for _, host := range []string{"localhost", "127.0.0.1", "::1"} {
			if err := svid.Certificates[0].VerifyHostname(host); err != nil {
				t.Errorf("%s: %v", path, err)
			}
		}
	}
}
