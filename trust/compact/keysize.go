package compact

import (
	"crypto"
	"crypto/rsa"
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
