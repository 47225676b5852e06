package checkpoint

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Types of keys and of their signatures that are known here.
const (
	TypeLog     = 0x01 // Ed25519 over the note's text
	TypeWitness = 0x04 // cosignature/v1: Ed25519 over a time and the note's text
)

// A VerifierKey is the public key by which a log or a witness signs notes.
type VerifierKey struct {
	Name string // not empty, without spaces and "+"
	Type byte   // TypeLog or TypeWitness
	Key  ed25519.PublicKey
}

// String returns the vkey of C2SP signed-note: NAME+ID+KEY.
func (k VerifierKey) String() string {
	return fmt.Sprintf("%s+%08x+%s", k.Name, k.ID(), b64.EncodeToString(k.typed()))
}

// ID returns the key id that a signature line of the key carries.
func (k VerifierKey) ID() uint32 {
	sum := sha256.Sum256([]byte(k.Name + "\n" + string(k.typed())))
	return binary.BigEndian.Uint32(sum[:])
}

// Equal reports whether both are the same key by the same name and type.
func (k VerifierKey) Equal(other VerifierKey) bool {
	return k.Name == other.Name && k.Type == other.Type && k.Key.Equal(other.Key)
}

func (k VerifierKey) typed() []byte { return append([]byte{k.Type}, k.Key...) }

// ParseVerifierKey reads a vkey of a type that is known here.
func ParseVerifierKey(s string) (VerifierKey, error) {
	name, rest, _ := strings.Cut(s, "+")
	id, key, _ := strings.Cut(rest, "+")

	raw, err := b64.DecodeString(key)
	if err != nil || !isName(name) || len(raw) == 0 || len(id) != 8 {
		return VerifierKey{}, fmt.Errorf("%w: %q is not a vkey, NAME+ID+KEY", ErrForm, clip(s))
	}

	if raw[0] != TypeLog && raw[0] != TypeWitness {
		return VerifierKey{}, fmt.Errorf("%w: vkey %q is of type %#02x, not %#02x (Ed25519) or %#02x (cosignature)",
			ErrForm, clip(s), raw[0], TypeLog, TypeWitness)
	}

	if len(raw) != 1+ed25519.PublicKeySize {
		return VerifierKey{}, fmt.Errorf("%w: vkey %q has a key of %d bytes, not %d", ErrForm, clip(s), len(raw)-1,
			ed25519.PublicKeySize)
	}

	k := VerifierKey{name, raw[0], raw[1:]}

	// Ids and base64 have several spellings, of which the key's own text is the only one taken.
	if want, err := strconv.ParseUint(id, 16, 32); err != nil || uint32(want) != k.ID() || k.String() != s {
		return VerifierKey{}, fmt.Errorf("%w: vkey %q does not have the id of its name and key, %08x", ErrForm, clip(s),
			k.ID())
	}

	return k, nil
}

// isName reports whether s may name a key.
func isName(s string) bool {
	return s != "" && utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool {
		return r == '+' || r < ' ' || unicode.IsSpace(r)
	})
}
