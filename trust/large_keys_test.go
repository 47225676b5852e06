package trust

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"errors"
	"math/big"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/spiffebundle"

	"github.com/roster-mesh/roster/limit/certs"
)

// dear returns a certificate, signed by o's CA, of a CA whose RSA key has that many bits:
// no modulus that anybody could factor, but any odd number does to cost time.
func (o *origin) dear(t testing.TB, bits, exponent int) *x509.Certificate {
	t.Helper()
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), uint(bits)))
	must(t, err)
	n.SetBit(n.SetBit(n, bits-1, 1), 0, 1)
	template := *o.ca.cert
	template.NotAfter = time.Now().Add(time.Hour)
	cert, err := certify(&template, o.ca.cert, &rsa.PublicKey{N: n, E: exponent}, o.ca.key)
	must(t, err)

	return cert
}

// What a peer says of its authorities, and the chains of its nodes' attestations, have
// no key by which whoever shows a certificate takes a processor for seconds.
//
// Requirement: TRUST-009
func TestNobodyIsJudgedByLargeKeys(t *testing.T) {
	o := newOrigin(t, alpha)
	for _, size := range []struct{ bits, exponent int }{{8200, 65537}, {4096, 1<<31 - 1}} {
		large := o.dear(t, size.bits, size.exponent)
		jwks, err := spiffebundle.FromX509Authorities(alpha, []*x509.Certificate{o.ca.cert, large}).Marshal()
		must(t, err)

		b := NewBundles()
		if err := b.Set(alpha, jwks); err == nil || b.Has(alpha) {
			t.Errorf("an authority of %d bits: %v", size.bits, err)
		}

		pem, err := spiffebundle.FromX509Authorities(alpha, []*x509.Certificate{large}).X509Bundle().Marshal()
		must(t, err)

		if _, err := ParseBundle(alpha, pem); !errors.Is(err, certs.ErrChain) {
			t.Errorf("a bundle with one of %d bits: %v", size.bits, err)
		}

		svid := *o.svid
		svid.Certificates = append(svid.Certificates[:1:1], large)
		attestation, err := o.key.Attest(&svid, time.Now())
		must(t, err)

		key := o.signingKey(t)
		if _, err := verifyAttestation(attestation, key, alpha, o.ca.Bundle(), time.Now()); !errors.Is(err,
			certs.ErrChain) {
			t.Errorf("an attestation by way of %d bits: %v", size.bits, err)
		}
	}

	b := NewBundles()
	must(t, b.SetX509(alpha, []*x509.Certificate{o.dear(t, 4096, 65537)}))
}
