package certs

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"fmt"
)

// Sizes of RSA keys: bits of the modulus, and the exponent.
const (
	MinRSA      = 2048
	maxRSA      = 8192
	MaxExponent = 65537
)

// IsAffordable reports whether verifying a signature by a key takes a bounded time. The
// library accepts RSA keys of any size in the certificates of a chain. It needs ten
// seconds for one of 200,000 bits, with any signature.
func IsAffordable(key crypto.PublicKey) bool {
	large, ok := key.(*rsa.PublicKey)
	return !ok || large.N.BitLen() <= maxRSA && large.E <= MaxExponent
}

// AlgorithmOf returns the one algorithm of JWS that a key of an SVID signs with.
func AlgorithmOf(key crypto.PublicKey) (string, error) {
	switch key := key.(type) {
	case ed25519.PublicKey:
		return "EdDSA", nil
	case *ecdsa.PublicKey:
		switch key.Curve {
		case elliptic.P256():
			return "ES256", nil
		case elliptic.P384():
			return "ES384", nil
		}
	case *rsa.PublicKey:
		if key.N.BitLen() >= MinRSA && IsAffordable(key) {
			return "RS256", nil
		}
	}

	return "", fmt.Errorf("a key of type %T and this size signs nothing here (ES256, ES384, RS256, EdDSA)", key)
}
