// Package compact makes, parses and verifies JWS in compact serialization (RFC 7515, 7.1)
// in their one canonical form.
//
// The signed bytes are the identity of everything that Roster signs, so nothing passes that
// has a second encoding: line breaks, spare bits, white space or members that the reader
// ignores. Parsing never verifies; a caller checks the form, finds the key by it and then
// verifies.
package compact

import (
	"crypto"
	"crypto/ed25519"
	"fmt"
	"strings"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-json-experiment/json"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/directory/strictjson"
)

// MaxSize bounds a compact JWS of any type, in bytes; readers of one type bound it
// further.
const MaxSize = 1 << 20

// Sign makes a compact JWS by an Ed25519 key. The protected header is
// {"alg":"EdDSA","kid":…,"typ":…} without white space: alphabetical order.
// The library is not used for it: in a peer's first sync every record is signed, and its
// overhead is a fifth of that.
func Sign(key ed25519.PrivateKey, kid, typ string, payload []byte) (string, error) {
	data := strictjson.AppendText([]byte{'{'}, "alg", string(jose.EdDSA))
	data = append(strictjson.AppendText(strictjson.AppendText(data, "kid", kid), "typ", typ), '}')
	b64 := directory.B64
	b := make([]byte, 0, b64.EncodedLen(len(data))+b64.EncodedLen(len(payload))+b64.EncodedLen(ed25519.SignatureSize)+2)
	b = append(b64.AppendEncode(b, data), '.')
	b = b64.AppendEncode(b, payload)

	// Ed25519 signs the text itself and not its hash.
	signature, err := key.Sign(nil, b, crypto.Hash(0))
	if err != nil {
		return "", err
	}

	return string(b64.AppendEncode(append(b, '.'), signature)), nil
}

// VerifySignature checks a compact JWS that was parsed already; the payload is
// the one that was parsed.
func VerifySignature(jws string, alg jose.SignatureAlgorithm, key any) error {
	parsed, err := jose.ParseSignedCompact(jws, []jose.SignatureAlgorithm{alg})
	if err != nil {
		return fmt.Errorf("%w: %w", signed.ErrHeader, err)
	}

	if _, err := parsed.Verify(key); err != nil {
		return signed.ErrSignature
	}

	return nil
}

// A JWS is one in compact serialization (RFC 7515, 7.1) whose form holds.
// Its signature has not been looked at.
type JWS struct {
	Header    []strictjson.Member // exactly the expected names
	Payload   []byte              // as received
	Signature []byte
}

// Parse takes a compact JWS of the expected typ apart, as Split.
func Parse(jws, typ string, limit int, names ...string) (*JWS, error) {
	c, err := Split(jws, limit, names...)
	if err != nil {
		return nil, err
	}

	if got, err := c.Text("typ"); err != nil || got != typ {
		return nil, fmt.Errorf("%w: typ is not %s", signed.ErrHeader, typ)
	}

	return c, nil
}

// Split splits a compact JWS: three parts in canonical base64url, and a protected header
// without white space or escapes that has exactly the members of names, in any order. It
// refuses forms that the library accepts: line breaks, spare bits, and members that only
// the library knows. The error is signed.ErrHeader.
func Split(jws string, limit int, names ...string) (*JWS, error) {
	if len(jws) > limit {
		return nil, fmt.Errorf("%w: over %d bytes", ErrForm, limit)
	}

	// A fourth part is enough to refuse a text, however many dots follow.
	parts := strings.SplitN(jws, ".", 4)
	if len(parts) != 3 {
		return nil, fmt.Errorf("%w: not three parts", ErrForm)
	}

	var raw [3][]byte
	for i, part := range parts {
		data, err := DecodeBase64(part)
		if err != nil {
			return nil, err
		}

		raw[i] = data
	}

	members, err := parseHeader(raw[0], names)
	if err != nil {
		return nil, err
	}

	return &JWS{members, raw[1], raw[2]}, nil
}

// ErrForm means that a text is no canonical compact JWS.
var ErrForm = fmt.Errorf("%w: not a compact JWS in canonical form", signed.ErrHeader)

// DecodeBase64 decodes base64url that has exactly one text: no padding, no spare
// bits, and no line breaks, which the standard decoder skips.
func DecodeBase64(s string) ([]byte, error) {
	if s == "" || strings.IndexByte(s, '\n') >= 0 || strings.IndexByte(s, '\r') >= 0 {
		return nil, ErrForm
	}

	data, err := directory.B64.DecodeString(s)
	if err != nil {
		return nil, ErrForm
	}

	return data, nil
}

func parseHeader(raw []byte, names []string) ([]strictjson.Member, error) {
	members, err := directory.ParseObject(raw)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", signed.ErrHeader, err)
	}

	if len(members) != len(names) {
		return nil, fmt.Errorf("%w: it has other members than %v", signed.ErrHeader, names)
	}

	for _, name := range names {
		if Member(members, name) == nil { // no name occurs twice, so all are there and no other
			return nil, fmt.Errorf("%w: no member %s", signed.ErrHeader, name)
		}
	}

	// White space and escapes would give one header several texts.
	if string(strictjson.AppendObject(nil, members)) != string(raw) {
		return nil, fmt.Errorf("%w: white space or escapes", signed.ErrHeader)
	}

	return members, nil
}

// Member returns the value of the member of that name; nil if there is none.
func Member(members []strictjson.Member, name string) []byte {
	value, _ := strictjson.FindMember(members, name)
	return value
}

// Text returns a member of the header that is a string in its one written form.
func (c *JWS) Text(name string) (string, error) {
	raw := Member(c.Header, name)

	var s string
	if err := json.Unmarshal(raw, &s); err != nil || string(strictjson.AppendString(nil, s)) != string(raw) {
		return "", fmt.Errorf("%w: %s is not a plain string", signed.ErrHeader, name)
	}

	return s, nil
}

// ParseOwn is Parse for a JWS by a signing key (federation.md, "Bytes"): the header is
// exactly alg, kid and typ, and alg is EdDSA.
func ParseOwn(jws, typ string, limit int) (c *JWS, kid string, err error) {
	if c, err = Parse(jws, typ, limit, "alg", "kid", "typ"); err != nil {
		return nil, "", err
	}

	if alg, err := c.Text("alg"); err != nil || alg != string(jose.EdDSA) {
		return nil, "", fmt.Errorf("%w: alg is not EdDSA", signed.ErrHeader)
	}

	if kid, err = c.Text("kid"); err != nil {
		return nil, "", err
	}

	if _, err := directory.ParseHash(kid); err != nil {
		return nil, "", fmt.Errorf("%w: kid is not a thumbprint", signed.ErrHeader)
	}

	if len(c.Signature) != ed25519.SignatureSize {
		return nil, "", signed.ErrSignature
	}

	return c, kid, nil
}

// VerifyOwn checks the signature of a JWS that ParseOwn has parsed.
func VerifyOwn(jws string, key ed25519.PublicKey) error {
	at := strings.LastIndexByte(jws, '.')

	signature, err := DecodeBase64(jws[at+1:])
	if err != nil || len(key) != ed25519.PublicKeySize ||
		!ed25519.Verify(key, strictjson.BytesOf(jws[:max(at, 0)]), signature) {
		return signed.ErrSignature
	}

	return nil
}
