package state

import (
	"io"

	"github.com/fxamacker/cbor/v2"
)

// The log, snapshots and messages between members are written in one way: deterministic
// CBOR (RFC 8949, 4.2) with our own types as their text. The log and snapshots are read
// strictly: nothing unknown is accepted.
var (
	encoding = must(cbor.EncOptions{
		Sort:          cbor.SortCoreDeterministic,
		ShortestFloat: cbor.ShortestFloat16,
		NaNConvert:    cbor.NaNConvert7e00,
		InfConvert:    cbor.InfConvertFloat16,
		IndefLength:   cbor.IndefLengthForbidden,
		TextMarshaler: cbor.TextMarshalerTextString,
	}.EncMode())
	decoding = must(cbor.DecOptions{
		DupMapKey:         cbor.DupMapKeyEnforcedAPF,
		IndefLength:       cbor.IndefLengthForbidden,
		TagsMd:            cbor.TagsForbidden,
		ExtraReturnErrors: cbor.ExtraDecErrorUnknownField,
		TextUnmarshaler:   cbor.TextUnmarshalerTextString,
	}.DecMode())
)

func must[T any](v T, err error) T {
	if err != nil {
		// The options are constants, so this never fails.
		panic(err)
	}

	return v
}

// Marshal encodes a value.
func Marshal(v any) ([]byte, error) { return encoding.Marshal(v) }

// Unmarshal decodes a value and refuses members that it doesn't have.
func Unmarshal(data []byte, v any) error { return decoding.Unmarshal(data, v) }

// NewEncoder returns an encoder of a sequence of values.
func NewEncoder(w io.Writer) *cbor.Encoder { return encoding.NewEncoder(w) }

// NewDecoder returns a decoder of a sequence of values, as strict as Unmarshal.
func NewDecoder(r io.Reader) *cbor.Decoder { return decoding.NewDecoder(r) }
