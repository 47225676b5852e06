package directory

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strconv"
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

// ParseObject reads exactly one JSON object strictly: valid UTF-8, no name
// twice at any depth, at most MaxDepth deep, nothing behind it. It returns the
// members in the order in which they were written; their values are copies.
func ParseObject(body []byte) ([]Member, error) {
	if depth(body) > MaxDepth {
		return nil, Refuse(BadRequest, "the JSON is nested more than %d deep", MaxDepth)
	}
	d := decoderOf(body)
	defer decoders.Put(d)
	if d.PeekKind() != '{' {
		if _, err := d.ReadValue(); err != nil {
			return nil, jsonRefusal(err)
		}
		return nil, Refuse(BadRequest, "the body is not one JSON object")
	}
	_, _ = d.ReadToken()
	var members []Member
	for {
		name, err := d.ReadToken()
		if err != nil {
			return nil, jsonRefusal(err)
		}
		if name.Kind() == '}' {
			break
		}
		m := Member{Name: name.String()}
		value, err := d.ReadValue()
		if err != nil {
			return nil, jsonRefusal(err)
		}
		m.Value = bytes.Clone(value)
		members = append(members, m)
	}
	if _, err := d.ReadToken(); !errors.Is(err, io.EOF) {
		return nil, Refuse(BadRequest, "something follows the JSON object")
	}
	return members, nil
}

// decoders have read something. A new one takes a kilobyte, and most of what there is
// to read is less.
var decoders = sync.Pool{New: func() any { return new(jsontext.Decoder) }}

// decoderOf returns one that reads b, for who puts it back. It refuses duplicate names
// and invalid UTF-8. Values that it returns are parts of b.
func decoderOf(b []byte) *jsontext.Decoder {
	d := decoders.Get().(*jsontext.Decoder)
	d.Reset(bytes.NewBuffer(b))
	return d
}

func jsonRefusal(err error) error {
	if errors.Is(err, io.EOF) {
		return Refuse(BadRequest, "the body is empty; a JSON object is expected")
	}
	var s *jsontext.SyntacticError
	if errors.As(err, &s) {
		return Refuse(BadRequest, "the body is not strict JSON: %v", err).At(string(s.JSONPointer))
	}
	return Refuse(BadRequest, "the body is not strict JSON: %w", err)
}

// depth returns how deep b nests objects and arrays, for any bytes.
func depth(b []byte) int {
	deepest, now, inString := 0, 0, false
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
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

// decode decodes JSON into v: strict, and exact about the case of names.
// Unknown members are left alone.
func decode(b []byte, v any) error { return json.Unmarshal(b, v) }

// AppendString appends s as a JSON string, escaped only where JSON demands it:
// the quotation mark, the backslash and U+0000 to U+001F, as \u00XX in lower case.
func AppendString(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	for {
		n := plain(s)
		b = append(b, s[:n]...)
		if n == len(s) {
			return append(b, '"')
		}
		if c := s[n]; c < 0x20 {
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		} else {
			b = append(b, '\\', c)
		}
		s = s[n+1:]
	}
}

// plain returns how many bytes s begins with that JSON writes as they are. It
// looks at eight at once: answers consist mostly of such.
func plain(s string) (n int) {
	const low, high = 0x0101010101010101, 0x8080808080808080
	// below is not 0 where a byte of v is under limit, which is at most 128. (It may
	// name a byte behind such a one as well, but never one where there is none.)
	below := func(v uint64, limit uint64) uint64 { return (v - low*limit) & ^v & high }
	for ; len(s)-n >= 8; n += 8 {
		c := s[n : n+8]
		v := uint64(c[0]) | uint64(c[1])<<8 | uint64(c[2])<<16 | uint64(c[3])<<24 |
			uint64(c[4])<<32 | uint64(c[5])<<40 | uint64(c[6])<<48 | uint64(c[7])<<56
		if below(v, 0x20)|below(v^low*'"', 1)|below(v^low*'\\', 1) != 0 {
			break
		}
	}
	for n < len(s) && s[n] >= 0x20 && s[n] != '"' && s[n] != '\\' {
		n++
	}
	return n
}

// AppendObject appends members as a JSON object without white space of its own;
// values stay as they are.
func AppendObject(b []byte, members []Member) []byte {
	b = append(b, '{')
	for i, m := range members {
		if i > 0 {
			b = append(b, ',')
		}
		b = AppendString(b, m.Name)
		b = append(b, ':')
		b = append(b, m.Value...)
	}
	return append(b, '}')
}

// appendField appends ,"name": or "name": where it is the object's first.
func appendField(b []byte, name string) []byte {
	if b[len(b)-1] != '{' {
		b = append(b, ',')
	}
	return append(append(append(b, '"'), name...), '"', ':')
}

// AppendUint appends a member with a whole number to an object under way.
func AppendUint(b []byte, name string, n uint64) []byte {
	return strconv.AppendUint(appendField(b, name), n, 10)
}

// AppendText appends a member with a string to an object under way.
func AppendText(b []byte, name, s string) []byte {
	return AppendString(appendField(b, name), s)
}

// AppendRaw appends a member whose value is JSON already to an object under way.
func AppendRaw(b []byte, name string, value []byte) []byte {
	return append(appendField(b, name), value...)
}

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
	b, err := B64.DecodeString(s)
	if err != nil || len(b) != len(h) || len(s) != B64.EncodedLen(len(h)) {
		return Hash{}, fmt.Errorf("%q is not a hash", s)
	}
	return Hash(b), nil
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
