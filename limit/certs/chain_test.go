package certs_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"testing"
	"time"

	"github.com/roster-mesh/roster/limit/certs"
)

// A signer is a CA whose certificates a test makes.
type signer struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// newSigner returns a CA, certified by another one, or by itself if that is nil.
func newSigner(t testing.TB, name string, curve elliptic.Curve, by *signer, extra int) *signer {
	t.Helper()

	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}

	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		SubjectKeyId: make([]byte, extra),
	}
	made := &signer{key: key}

	if by == nil {
		by = &signer{template, key}
	}

	der, err := x509.CreateCertificate(rand.Reader, template, by.cert, &key.PublicKey, by.key)
	if err == nil {
		made.cert, err = x509.ParseCertificate(der)
	}

	if err != nil {
		t.Fatal(err)
	}

	return made
}

// chainOf returns a leaf and n-1 CAs behind it.
func chainOf(t testing.TB, n int) []*x509.Certificate {
	t.Helper()

	chain := make([]*x509.Certificate, n)

	var above *signer
	for i := n - 1; i >= 0; i-- {
		above = newSigner(t, fmt.Sprint("ca-", i), elliptic.P256(), above, 0)
		chain[i] = above.cert
	}

	return chain
}

// A chain at the bounds is verified, one beyond any of them is not.
//
// Requirement: SEC-001
func TestAChainIsBoundedBeforeItIsVerified(t *testing.T) {
	if err := certs.CheckChain(chainOf(t, certs.MaxChain)); err != nil {
		t.Errorf("%d certificates: %v", certs.MaxChain, err)
	}

	chain := chainOf(t, 3)
	if err := certs.CheckChain(append(chain, chain[2])); err != nil {
		t.Errorf("a certificate that is sent twice: %v", err)
	}

	twin := newSigner(t, "ca-2", elliptic.P256(), nil, 0).cert
	large := newSigner(t, "large", elliptic.P521(), nil, 0).cert

	for what, refused := range map[string][]*x509.Certificate{
		"one certificate too many": chainOf(t, certs.MaxChain+1),
		"a chain over the bytes":   {chain[0], newSigner(t, "long", elliptic.P256(), nil, certs.MaxChainBytes).cert},
		"two CAs of one subject":   append(chain[:3:3], twin),
		"a CA with a key of P-521": append(chain[:3:3], large),
		"a leaf over the bytes":    {newSigner(t, "long", elliptic.P256(), nil, certs.MaxChainBytes).cert},
		"the bytes over all of them": {
			newSigner(t, "a", elliptic.P256(), nil, certs.MaxChainBytes/2).cert,
			newSigner(t, "b", elliptic.P256(), nil, certs.MaxChainBytes/2).cert,
		},
	} {
		if err := certs.CheckChain(refused); !errors.Is(err, certs.ErrChain) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A bundle has at most 16 authorities, four of one subject, none with a large key.
func TestABundleIsBounded(t *testing.T) {
	var many, alike []*x509.Certificate
	for i := range certs.MaxAuthorities {
		many = append(many, newSigner(t, fmt.Sprint("ca-", i), elliptic.P256(), nil, 0).cert)
	}

	for range 4 {
		alike = append(alike, newSigner(t, "ca", elliptic.P256(), nil, 0).cert)
	}

	for _, taken := range [][]*x509.Certificate{many, alike} {
		if err := certs.CheckAuthorities(taken); err != nil {
			t.Errorf("%d authorities: %v", len(taken), err)
		}
	}

	for what, refused := range map[string][]*x509.Certificate{
		"one too many":            append(many[:len(many):len(many)], alike[0]),
		"five of one subject":     append(alike[:4:4], newSigner(t, "ca", elliptic.P256(), nil, 0).cert),
		"one with a key of P-521": {newSigner(t, "ca", elliptic.P521(), nil, 0).cert},
	} {
		if err := certs.CheckAuthorities(refused); !errors.Is(err, certs.ErrChain) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
