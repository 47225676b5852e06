package certs_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/roster-mesh/roster/limit/certs"
)

// A certificate of an authority that the bundle lacks is refused in plain words, also if the bundle
// has another authority of the same name.
func TestAnUnknownAuthorityIsExplained(t *testing.T) {
	issue := func(name string, parent *x509.Certificate, key *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
		t.Helper()

		own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}

		template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
			NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour),
			IsCA: parent == nil, BasicConstraintsValid: true}
		if parent == nil {
			parent, key = template, own
		}

		der, err := x509.CreateCertificate(rand.Reader, template, parent, own.Public(), key)
		if err != nil {
			t.Fatal(err)
		}

		certificate, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}

		return certificate, own
	}

	ca, key := issue("beta.test", nil, nil)
	namesake, _ := issue("beta.test", nil, nil)
	other, _ := issue("gamma.test", nil, nil)
	leaf, _ := issue("leaf", ca, key)

	for text, authority := range map[string]*x509.Certificate{
		"no CA in the bundle signed it": other, "has the issuer's name and another key": namesake,
	} {
		roots := x509.NewCertPool()
		roots.AddCert(authority)

		_, err := leaf.Verify(x509.VerifyOptions{Roots: roots})

		got := certs.ExplainAuthority(err)
		if !strings.Contains(got.Error(), text) || strings.Contains(got.Error(), "x509") || !errors.Is(got, err) {
			t.Errorf("%v, want %q", got, text)
		}
	}

	expired := x509.CertificateInvalidError{Cert: leaf, Reason: x509.Expired}
	if got := certs.ExplainAuthority(expired); !errors.Is(got, expired) || got.Error() != expired.Error() {
		t.Errorf("another fault: %v", got)
	}
}
