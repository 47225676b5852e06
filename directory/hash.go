package directory

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
)

// B64 is base64url without padding and without spare bits, as all our formats
// use it.
var B64 = base64.RawURLEncoding.Strict()

// A Hash is a SHA-256. In JSON and in text it is base64url without padding.
type Hash [sha256.Size]byte

// HashOf returns the SHA-256 of b.
func HashOf(b []byte) Hash { return sha256.Sum256(b) }

// ParseHash parses the text form; every hash has exactly one.
func ParseHash(s string) (Hash, error) {
	var h Hash

	data, err := B64.DecodeString(s)
	if err != nil || len(data) != len(h) || len(s) != B64.EncodedLen(len(h)) {
		return Hash{}, fmt.Errorf("%q is not a hash", s)
	}

	return Hash(data), nil
}

func (h Hash) String() string { return B64.EncodeToString(h[:]) }

// IsZero reports whether h is no hash at all.
func (h Hash) IsZero() bool { return h == Hash{} }

// MarshalText gives the text form.
func (h Hash) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// UnmarshalText is ParseHash.
func (h *Hash) UnmarshalText(b []byte) error {
	p, err := ParseHash(string(b))
	*h = p

	return err
}
