package trust

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"time"

	"github.com/roster-mesh/roster/directory/durable"
	"github.com/spiffe/go-spiffe/v2/bundle/spiffebundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
)

const (
	caLifetime = 10 * 365 * 24 * time.Hour
	backdated  = time.Minute // so that a reader whose clock is behind takes a new certificate
)

// A CA is a small certificate authority of one trust domain, for "roster ca", for
// "roster dev" and for tests. Its key lies in a file; a domain with many workloads uses
// SPIRE.
type CA struct {
	td   spiffeid.TrustDomain
	cert *x509.Certificate
	key  crypto.Signer
}

// NewCA makes a CA with a new ECDSA P-256 key that holds for ten years from now.
func NewCA(td spiffeid.TrustDomain, now time.Time) (*CA, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}

	template := &x509.Certificate{
		Subject:               pkix.Name{Organization: []string{"Roster CA"}, CommonName: td.Name()},
		URIs:                  []*url.URL{td.ID().URL()},
		NotBefore:             now.Add(-time.Hour),
		NotAfter:              now.Add(caLifetime),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}

	cert, err := certify(template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}

	return &CA{td, cert, key}, nil
}

// LoadCA reads the output of PEM.
func LoadCA(certPEM, keyPEM []byte) (*CA, error) {
	certs, err := parseCertificates(certPEM)
	if err != nil {
		return nil, err
	}

	if len(certs) != 1 || len(certs[0].URIs) != 1 || !certs[0].IsCA {
		return nil, errors.New("not the certificate of a roster CA")
	}

	td, err := spiffeid.TrustDomainFromURI(certs[0].URIs[0])
	if err != nil {
		return nil, err
	}

	key, err := ParseKey(keyPEM)
	if err != nil {
		return nil, err
	}

	if public, ok := key.Public().(*ecdsa.PublicKey); !ok || !public.Equal(certs[0].PublicKey) {
		return nil, errors.New("the CA's key is not its certificate's")
	}

	return &CA{td, certs[0], key}, nil
}

// PEM returns the CA's certificate and its private key (PKCS#8).
func (c *CA) PEM() (cert, key []byte) {
	der, err := x509.MarshalPKCS8PrivateKey(c.key)
	if err != nil {
		panic(err) // the key is one that we made or read in that form
	}

	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.cert.Raw}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

// TrustDomain returns the domain that the CA certifies.
func (c *CA) TrustDomain() spiffeid.TrustDomain { return c.td }

// Bundle returns the domain's trust bundle.
func (c *CA) Bundle() *spiffebundle.Bundle {
	return spiffebundle.FromX509Authorities(c.td, []*x509.Certificate{c.cert})
}

// Issue makes a key and an SVID for a path of the domain (/agent/ada), good for
// ttl from now. The certificate also names localhost, 127.0.0.1 and ::1, so that clients
// that know no SPIFFE reach nodes and agents with it.
func (c *CA) Issue(path string, ttl time.Duration, now time.Time) (*x509svid.SVID, error) {
	return c.IssueFor(path, loopback, ttl, now)
}

// loopback are the names of this machine.
var loopback = []string{"localhost", "127.0.0.1", "::1"}

// IssueFor is Issue with the DNS names and IP addresses that the certificate names.
func (c *CA) IssueFor(path string, hosts []string, ttl time.Duration, now time.Time) (*x509svid.SVID, error) {
	id, err := spiffeid.FromPath(c.td, path)
	if err != nil {
		return nil, err
	}

	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}

	template := leafTemplate(id, hosts, now, ttl)

	leaf, err := certify(template, c.cert, key.Public(), c.key)
	if err != nil {
		return nil, err
	}

	return &x509svid.SVID{ID: id, Certificates: []*x509.Certificate{leaf}, PrivateKey: key}, nil
}

func leafTemplate(id spiffeid.ID, hosts []string, now time.Time, ttl time.Duration) *x509.Certificate {
	t := &x509.Certificate{
		Subject:               pkix.Name{Organization: []string{"Roster"}},
		URIs:                  []*url.URL{id.URL()},
		NotBefore:             now.Add(-backdated),
		NotAfter:              now.Add(ttl),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true,
	}

	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			t.IPAddresses = append(t.IPAddresses, ip)
		} else {
			t.DNSNames = append(t.DNSNames, host)
		}
	}

	return t
}

// certify signs a certificate with a random serial number and reads it again.
func certify(template, parent *x509.Certificate, public crypto.PublicKey, signer crypto.Signer) (*x509.Certificate,
	error) {
	// A serial number is positive and has at most 20 octets (RFC 5280, 4.1.2.2).
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}

	template.SerialNumber = serial.Add(serial, big.NewInt(1))

	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, signer)
	if err != nil {
		return nil, err
	}

	return x509.ParseCertificate(der)
}

// WriteSVID writes an SVID as OpenFiles reads it; each file is swapped whole,
// and the key's is readable by its owner alone.
func WriteSVID(svid *x509svid.SVID, certFile, keyFile string) error {
	cert, key, err := svid.Marshal()
	if err != nil {
		return err
	}

	if err := durable.WriteFile(keyFile, key, 0o600); err != nil {
		return fmt.Errorf("write the SVID's key: %w", err)
	}

	if err := durable.WriteFile(certFile, cert, 0o644); err != nil {
		return fmt.Errorf("write the SVID: %w", err)
	}

	return nil
}
