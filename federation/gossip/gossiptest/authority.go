package gossiptest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math/big"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// Authorities are the certificate authorities of all domains. The zero value is
// ready; a domain gets its authority when its first node asks for a certificate.
type Authorities struct {
	Stranger string // a domain whose bundle no node has

	mu  sync.Mutex
	cas map[spiffeid.TrustDomain]*authority
}

type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey

	// proven has the certificates that it has signed: to verify each message's sender anew
	// takes half of the time of tests.
	proven sync.Map
}

// TLS returns both configurations of a node that has a certificate for id.
func (a *Authorities) TLS(t testing.TB, id spiffeid.ID) (server, client *tls.Config) {
	t.Helper()

	chain := a.certificate(t, id)
	server = &tls.Config{
		CurvePreferences: []tls.CurveID{tls.X25519},
		Certificates:     []tls.Certificate{chain},
		ClientAuth:       tls.RequireAnyClientCert,
		VerifyConnection: a.verify,
	}
	client = &tls.Config{
		Certificates:       []tls.Certificate{chain},
		InsecureSkipVerify: true,
		VerifyConnection:   a.verify,
	}

	return server, client
}

func (a *Authorities) certificate(t testing.TB, id spiffeid.ID) tls.Certificate {
	t.Helper()

	ca := a.of(t, id.TrustDomain())
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(0, 1, 0),
		URIs: []*url.URL{id.URL()}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.cert, key.Public(), ca.key)
	must(t, err)

	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// of returns the authority of a domain, a new one if it has none.
func (a *Authorities) of(t testing.TB, td spiffeid.TrustDomain) *authority {
	t.Helper()

	a.mu.Lock()
	defer a.mu.Unlock()

	if ca := a.cas[td]; ca != nil {
		return ca
	}

	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(1, 0, 0),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	must(t, err)
	cert, err := x509.ParseCertificate(der)
	must(t, err)

	if a.cas == nil {
		a.cas = map[spiffeid.TrustDomain]*authority{}
	}

	a.cas[td] = &authority{cert: cert, key: key}

	return a.cas[td]
}

// Replace gives a domain another authority in the place of its own. Certificates of the first are
// no longer accepted.
func (a *Authorities) Replace(t testing.TB, td spiffeid.TrustDomain) {
	t.Helper()

	a.mu.Lock()
	delete(a.cas, td)
	a.mu.Unlock()
	a.of(t, td)
}

// verify checks the other end's certificate by the authority of its domain.
func (a *Authorities) verify(state tls.ConnectionState) error {
	leaf := state.PeerCertificates[0]

	peer, err := spiffeid.FromURI(leaf.URIs[0])
	if err != nil {
		return err
	}

	a.mu.Lock()
	anchor := a.cas[peer.TrustDomain()]
	a.mu.Unlock()

	if anchor == nil || peer.TrustDomain().Name() == a.Stranger {
		return errors.New("no bundle for " + peer.TrustDomain().String())
	}

	if _, ok := anchor.proven.Load(string(leaf.Raw)); ok && time.Now().Before(leaf.NotAfter) {
		return nil
	}

	roots := x509.NewCertPool()
	roots.AddCert(anchor.cert)

	_, err = leaf.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	if err == nil {
		anchor.proven.Store(string(leaf.Raw), true)
	}

	return err
}

func must(t testing.TB, err error) {
	t.Helper()

	if err != nil {
		t.Fatal(err)
	}
}
