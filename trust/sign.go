package trust

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

// MaxJWS bounds a compact JWS in bytes, whatever it carries; readers of one
// type bound it further.
const MaxJWS = 1 << 20

// sign makes a compact JWS by an Ed25519 key. The protected header is
// {"alg":"EdDSA","kid":…,"typ":…} without white space: alphabetical order.
// It is written here and not by the library, since a peer's first sync has every
// record signed, and what goes round a signature cost a fifth of it.
func sign(key ed25519.PrivateKey, kid, typ string, payload []byte) (string, error) {
	h := strictjson.AppendText([]byte{'{'}, "alg", string(jose.EdDSA))
	h = append(strictjson.AppendText(strictjson.AppendText(h, "kid", kid), "typ", typ), '}')
	b64 := directory.B64
	b := make([]byte, 0, b64.EncodedLen(len(h))+b64.EncodedLen(len(payload))+b64.EncodedLen(ed25519.SignatureSize)+2)
	b = append(b64.AppendEncode(b, h), '.')
	b = b64.AppendEncode(b, payload)
	signature, err := key.Sign(nil, b, crypto.Hash(0))
	if err != nil {
		return "", err
	}
	return string(b64.AppendEncode(append(b, '.'), signature)), nil
}

// verifySignature checks a compact JWS that was parsed already; the payload is
// the one that was parsed.
func verifySignature(jws string, alg jose.SignatureAlgorithm, key any) error {
	signedWith, err := jose.ParseSignedCompact(jws, []jose.SignatureAlgorithm{alg})
	if err != nil {
		return fmt.Errorf("%w: %w", signed.ErrHeader, err)
	}
	if _, err := signedWith.Verify(key); err != nil {
		return signed.ErrSignature
	}
	return nil
}

// A compact is a JWS in compact serialization (RFC 7515, 7.1) whose form holds.
// Its signature has not been looked at.
type compact struct {
	header    []strictjson.Member // exactly the expected names
	payload   []byte              // as received
	signature []byte
}

// parseCompact takes a compact JWS of the expected typ apart, as splitCompact.
func parseCompact(jws, typ string, limit int, names ...string) (*compact, error) {
	c, err := splitCompact(jws, limit, names...)
	if err != nil {
		return nil, err
	}
	if got, err := c.text("typ"); err != nil || got != typ {
		return nil, fmt.Errorf("%w: typ is not %s", signed.ErrHeader, typ)
	}
	return c, nil
}

// splitCompact takes a compact JWS apart: three parts in canonical base64url, and
// a protected header without white space or escapes that has exactly the members
// of names, in any order. What the library lets pass (line breaks, spare bits,
// members it knows and we don't want) is refused here. The error is
// directory.ErrHeader.
func splitCompact(jws string, limit int, names ...string) (*compact, error) {
	if len(jws) > limit {
		return nil, fmt.Errorf("%w: over %d bytes", errForm, limit)
	}
	parts := strings.SplitN(jws, ".", 4)
	if len(parts) != 3 {
		return nil, fmt.Errorf("%w: not three parts", errForm)
	}
	var raw [3][]byte
	for i, part := range parts {
		b, err := decodeB64(part)
		if err != nil {
			return nil, err
		}
		raw[i] = b
	}
	members, err := parseHeader(raw[0], names)
	if err != nil {
		return nil, err
	}
	return &compact{members, raw[1], raw[2]}, nil
}

// errForm says that something is no canonical compact JWS.
var errForm = fmt.Errorf("%w: not a compact JWS in canonical form", signed.ErrHeader)

// decodeB64 decodes base64url that has exactly one text: no padding, no spare
// bits, and no line breaks, which the standard decoder skips.
func decodeB64(s string) ([]byte, error) {
	if s == "" || strings.IndexByte(s, '\n') >= 0 || strings.IndexByte(s, '\r') >= 0 {
		return nil, errForm
	}
	b, err := directory.B64.DecodeString(s)
	if err != nil {
		return nil, errForm
	}
	return b, nil
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
		if member(members, name) == nil { // no name occurs twice, so all are there and no other
			return nil, fmt.Errorf("%w: no member %s", signed.ErrHeader, name)
		}
	}
	if string(strictjson.AppendObject(nil, members)) != string(raw) {
		return nil, fmt.Errorf("%w: white space or escapes", signed.ErrHeader)
	}
	return members, nil
}

func member(members []strictjson.Member, name string) []byte {
	for _, m := range members {
		if m.Name == name {
			return m.Value
		}
	}
	return nil
}

// text returns a member of the header that is a string in its one written form.
func (c *compact) text(name string) (string, error) {
	raw := member(c.header, name)
	var s string
	if err := json.Unmarshal(raw, &s); err != nil || string(strictjson.AppendString(nil, s)) != string(raw) {
		return "", fmt.Errorf("%w: %s is not a plain string", signed.ErrHeader, name)
	}
	return s, nil
}

// parseOwn is parseCompact for what a signing key signed (federation.md,
// "Bytes"): the header is exactly alg, kid and typ, and alg is EdDSA.
func parseOwn(jws, typ string, limit int) (c *compact, kid string, err error) {
	if c, err = parseCompact(jws, typ, limit, "alg", "kid", "typ"); err != nil {
		return nil, "", err
	}
	if alg, err := c.text("alg"); err != nil || alg != string(jose.EdDSA) {
		return nil, "", fmt.Errorf("%w: alg is not EdDSA", signed.ErrHeader)
	}
	if kid, err = c.text("kid"); err != nil {
		return nil, "", err
	}
	if _, err := directory.ParseHash(kid); err != nil {
		return nil, "", fmt.Errorf("%w: kid is not a thumbprint", signed.ErrHeader)
	}
	if len(c.signature) != ed25519.SignatureSize {
		return nil, "", signed.ErrSignature
	}
	return c, kid, nil
}

// verifyOwn checks the signature of what parseOwn took apart.
func verifyOwn(jws string, key ed25519.PublicKey) error {
	return verifySignature(jws, jose.EdDSA, key)
}
