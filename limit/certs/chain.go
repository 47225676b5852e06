package certs

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"errors"
	"fmt"
)

// Bounds of the cost of verifying certificates (rule S16 of docs/threats.md).
// Within them x509 checks at most 23 signatures for a chain, about 15 ms of a processor.
const (
	MaxChain      = 8        // certificates of a chain, with the leaf
	MaxChainBytes = 16 << 10 // of a chain, in DER

	MaxAuthorities     = 16 // of a trust bundle
	maxAuthoritiesAlso = 4  // of them with one subject: each may be tried for one certificate

	maxSignerRSA = 4096 // bits of the modulus
)

// ErrChain is the error for a chain or a bundle that would cost too much to verify.
var ErrChain = errors.New("too expensive to verify")

// CheckChain refuses a presented chain, leaf first, that would be expensive to verify. It
// checks no signature. Subjects of the certificates behind the leaf must differ, because
// x509 tries every path through certificates of one subject.
func CheckChain(chain []*x509.Certificate) error {
	if len(chain) > MaxChain {
		return fmt.Errorf("the chain has %d certificates, at most %d are verified: %w", len(chain), MaxChain, ErrChain)
	}

	size := 0
	for i, cert := range chain {
		size += len(cert.Raw)
		if size > MaxChainBytes {
			return fmt.Errorf("the chain has over %d bytes: %w", MaxChainBytes, ErrChain)
		}

		if i == 0 {
			// The leaf certifies nothing, so neither its key nor its subject makes a further path.
			continue
		}

		if err := checkSigner(cert); err != nil {
			return err
		}

		for _, earlier := range chain[1:i] {
			// Some servers send a certificate twice, which makes no further path.
			if bytes.Equal(earlier.RawSubject, cert.RawSubject) && !earlier.Equal(cert) {
				return fmt.Errorf("the chain has two certificates of %q: %w", cert.Subject, ErrChain)
			}
		}
	}

	return nil
}

// CheckAuthorities refuses the authorities of a trust bundle if chains that end in them would
// be expensive to verify.
func CheckAuthorities(authorities []*x509.Certificate) error {
	if len(authorities) > MaxAuthorities {
		return fmt.Errorf("%d X.509 authorities, at most %d are taken: %w", len(authorities), MaxAuthorities, ErrChain)
	}

	bySubject := map[string]int{}

	for _, cert := range authorities {
		if err := checkSigner(cert); err != nil {
			return err
		}

		bySubject[string(cert.RawSubject)]++
		if bySubject[string(cert.RawSubject)] > maxAuthoritiesAlso {
			return fmt.Errorf("over %d X.509 authorities are named %q: %w", maxAuthoritiesAlso, cert.Subject, ErrChain)
		}
	}

	return nil
}

// checkSigner refuses the certificate of a CA whose signatures are expensive to verify.
func checkSigner(cert *x509.Certificate) error {
	if !isCheapSigner(cert.PublicKey) {
		return fmt.Errorf("the key of %q is larger than RSA with %d bits, exponent %d, or P-384: %w", cert.Subject,
			maxSignerRSA, MaxExponent, ErrChain)
	}

	return nil
}

func isCheapSigner(key crypto.PublicKey) bool {
	switch key := key.(type) {
	case *rsa.PublicKey:
		return key.N.BitLen() <= maxSignerRSA && key.E <= MaxExponent
	case *ecdsa.PublicKey:
		return key.Curve != elliptic.P521()
	}

	return true
}
