package protocol

import (
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
)

var errJWS = errors.New("not a canonical compact JWS")

// A JWS is a compact JWS taken apart, nothing of it verified.
type JWS struct{ Header, Payload []byte }

// JoinJWS makes a compact JWS of its parts. Only the payload is not encoded yet.
func JoinJWS(header string, payload []byte, signature string) string {
	b := make([]byte, 0, len(header)+directory.B64.EncodedLen(len(payload))+len(signature)+2)
	b = directory.B64.AppendEncode(append(append(b, header...), '.'), payload)

	return string(append(append(b, '.'), signature...))
}

// RecordParts are the parts of a record: those of its JWS, with the payload decoded, and its
// disclosures.
type RecordParts struct {
	Header      string
	Payload     []byte
	Signature   string
	Disclosures []string
}

// Text returns the compact serialization of the record (signed.Record).
func (p RecordParts) Text() string {
	return signed.Record{JWS: JoinJWS(p.Header, p.Payload, p.Signature), Disclosures: p.Disclosures}.String()
}

// appendText appends Text without an allocation of its own.
func (p RecordParts) appendText(data []byte) []byte {
	data = append(append(data, p.Header...), '.')
	data = append(directory.B64.AppendEncode(data, p.Payload), '.')
	data = append(append(data, p.Signature...), '~')

	for _, disclosure := range p.Disclosures {
		data = append(append(data, disclosure...), '~')
	}

	return data
}

// SplitJWS takes a compact JWS apart: base64url without padding, spare bits or
// white space, and a signature of Ed25519's size.
func SplitJWS(text string) (JWS, error) {
	parts := strings.Split(text, ".")
	if len(parts) != 3 {
		return JWS{}, errJWS
	}

	header, err1 := directory.B64.DecodeString(parts[0])
	payload, err2 := directory.B64.DecodeString(parts[1])

	signature, err3 := directory.B64.DecodeString(parts[2])
	if err := errors.Join(err1, err2, err3); err != nil || len(signature) != 64 {
		return JWS{}, errJWS
	}

	size := directory.B64.EncodedLen
	if size(len(header))+size(len(payload))+size(len(signature))+2 != len(text) { // the decoder skips line ends
		return JWS{}, errJWS
	}

	return JWS{header, payload}, nil
}

// KeyIDOf returns the key that a header names, "" for none.
func KeyIDOf(header []byte) string {
	var h struct {
		Kid string `json:"kid"`
	}
	_ = json.Unmarshal(header, &h) // an invalid header names no key

	return h.Kid
}

// CheckHeader requires exactly {alg: EdDSA, typ, kid}, without white space or escapes. A
// record's name does not cover its header, so a relay could otherwise enlarge it at will.
func CheckHeader(header []byte, typ string) error {
	var h struct {
		Alg string `json:"alg"`
		Typ string `json:"typ"`
		Kid string `json:"kid"`
	}
	if err := json.Unmarshal(header, &h, json.RejectUnknownMembers(true)); err != nil {
		return fmt.Errorf("%w: %w", signed.ErrHeader, err)
	}

	_, err := directory.ParseHash(h.Kid)
	if h.Alg != "EdDSA" || h.Typ != typ || err != nil ||
		len(header) != len(`{"alg":"EdDSA","kid":"","typ":""}`)+len(h.Kid)+len(typ) {
		return signed.ErrHeader
	}

	return nil
}
