package strictjson

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// MaxDepth bounds the nesting of JSON that comes from outside (AD-046).
const MaxDepth = 64

// A Member is one member of a JSON object; Value has the bytes as written.
type Member struct {
	Name  string
	Value []byte
}

// FindMember returns the value of the member of that name.
func FindMember(members []Member, name string) ([]byte, bool) {
	for _, m := range members {
		if m.Name == name {
			return m.Value, true
		}
	}

	return nil, false
}

// TextMember returns the member of that name where it is a string.
func TextMember(members []Member, name string) (s string, is bool) {
	raw, found := FindMember(members, name)
	if !found || raw[0] != '"' {
		return "", false
	}

	return s, json.Unmarshal(raw, &s) == nil
}

// An Error says why a text is not one strict JSON object.
type Error struct {
	Pointer string // JSON pointer to the fault; empty for the whole
	Detail  string
	Err     error // the decoder's, if any
}

func (e *Error) Error() string { return e.Detail }

func (e *Error) Unwrap() error { return e.Err }

func refuse(format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Detail: err.Error(), Err: errors.Unwrap(err)}
}

// ParseObject reads exactly one JSON object strictly: valid UTF-8, no name twice at
// any depth, at most MaxDepth deep, nothing after it. It returns the members in the
// order in which they were written; their values are copies. Its errors are *Error.
func ParseObject(body []byte) ([]Member, error) {
	if IsDeeper(body, MaxDepth) {
		return nil, refuse("the JSON is nested more than %d deep", MaxDepth)
	}

	d := Decoder(body)
	defer Release(d)

	if d.PeekKind() != '{' {
		// A text that is not JSON at all gets the error of its syntax.
		if _, err := d.ReadValue(); err != nil {
			return nil, syntaxError(err)
		}

		return nil, refuse("the body is not one JSON object")
	}

	// PeekKind has seen the brace, so this can't fail.
	_, _ = d.ReadToken()

	var members []Member
	for {
		name, err := d.ReadToken()
		if err != nil {
			return nil, syntaxError(err)
		}

		if name.Kind() == '}' {
			break
		}

		member := Member{Name: name.String()}

		value, err := d.ReadValue()
		if err != nil {
			return nil, syntaxError(err)
		}

		member.Value = bytes.Clone(value)
		members = append(members, member)
	}

	if _, err := d.ReadToken(); !errors.Is(err, io.EOF) {
		return nil, refuse("something follows the JSON object")
	}

	return members, nil
}

// IsObjectOf reports whether ParseObject of body returns these members.
func IsObjectOf(body []byte, members []Member) bool {
	if IsDeeper(body, MaxDepth) {
		return false
	}

	d := Decoder(body)
	defer Release(d)

	if d.PeekKind() != '{' {
		return false
	}

	_, _ = d.ReadToken()

	for _, m := range members {
		// The object may end before the members do.
		if d.PeekKind() != '"' {
			return false
		}

		name, err := d.ReadToken()
		if err != nil || name.String() != m.Name {
			return false
		}

		value, err := d.ReadValue()

		// A value that reaches into the next member would be read as another one.
		if err != nil || !bytes.Equal(value, m.Value) {
			return false
		}
	}

	if end, err := d.ReadToken(); err != nil || end.Kind() != '}' {
		return false
	}

	_, err := d.ReadToken()

	return errors.Is(err, io.EOF)
}

// decoders are for use again: a new one takes a kilobyte, and most texts are shorter.
var decoders = sync.Pool{New: func() any { return new(jsontext.Decoder) }}

// Decoder returns a decoder that reads b. It refuses duplicate names and invalid UTF-8.
// Values that it returns are parts of b. The caller gives it back with Release.
func Decoder(b []byte) *jsontext.Decoder {
	d := decoders.Get().(*jsontext.Decoder)
	d.Reset(bytes.NewBuffer(b))

	return d
}

// Release gives back a decoder. The caller uses it no more.
func Release(d *jsontext.Decoder) { decoders.Put(d) }

// IsDeeper reports whether data, which may be any bytes, nests objects and arrays deeper than
// limit.
func IsDeeper(data []byte, limit int) bool {
	// Nearly all texts have fewer opening brackets than that, and these are counted much faster.
	return bytes.Count(data, []byte{'{'})+bytes.Count(data, []byte{'['}) > limit && depth(data) > limit
}

// depth returns how deep data nests objects and arrays.
func depth(data []byte) int {
	deepest := 0
	now := 0

	inString := false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			now++
			deepest = max(deepest, now)
		case c == '}' || c == ']':
			now--
		}
	}

	return deepest
}
