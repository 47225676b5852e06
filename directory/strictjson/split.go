package strictjson

import (
	"bytes"
	"github.com/go-json-experiment/json/jsontext"
	"strings"
	"unsafe"
)

// The following functions read JSON that was parsed strictly before, without validating it
// again and without copying: the results share the document's bytes. For other bytes the result
// is meaningless, but they never fail.

// SplitObject returns the members of an object.
func SplitObject(raw []byte) []Member {
	if len(raw) <= len("{}") {
		return nil
	}

	members := make([]Member, 0, 8)
	for i := 1; ; {
		name, after := element(raw, i)

		value, end := element(raw, after)
		if value == nil {
			return members
		}

		members = append(members, Member{Unquote(name), value})
		i = end
	}
}

// SplitArray returns the elements of an array.
func SplitArray(raw []byte) [][]byte {
	var parts [][]byte
	for i := 1; i < len(raw); {
		part, end := element(raw, i)
		if part == nil {
			break
		}

		parts, i = append(parts, part), end
	}

	return parts
}

// element returns the next value at or behind i, and its end, or nil.
func element(raw []byte, i int) ([]byte, int) {
	for ; i < len(raw); i++ {
		switch raw[i] {
		case ' ', '\t', '\r', '\n', ',', ':', ']', '}':
		default:
			end := endOf(raw, i)
			return raw[i:end:end], end
		}
	}

	return nil, i
}

// endOf returns where the value that begins at i ends.
func endOf(raw []byte, i int) int {
	switch raw[i] {
	case '"':
		return endOfString(raw, i)
	case '{', '[':
		for open := 0; i < len(raw); i++ {
			switch raw[i] {
			case '"':
				// Brackets in strings don't count.
				i = endOfString(raw, i) - 1
			case '{', '[':
				open++
			case '}', ']':
				if open--; open == 0 {
					return i + 1
				}
			}
		}

		return len(raw)
	}

	if n := bytes.IndexAny(raw[i:], " \t\r\n,]}"); n > 0 {
		return i + n
	}

	return len(raw)
}

func endOfString(raw []byte, i int) int {
	for i++; i < len(raw); i++ {
		switch raw[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}

	return len(raw)
}

// Unquote returns the text of a JSON string; "" for nil. Without escapes, the text is raw's own
// bytes, which are never modified: a projection would otherwise hold a second copy, for a
// million documents.
func Unquote(raw []byte) string {
	if len(raw) <= len(`""`) {
		return ""
	}

	if bytes.IndexByte(raw, '\\') < 0 {
		return unsafe.String(&raw[1], len(raw)-len(`""`))
	}

	b, _ := jsontext.AppendUnquote(nil, raw)

	return string(b)
}

// inPointer escapes the characters that have a meaning in JSON pointers.
var inPointer = strings.NewReplacer("~", "~0", "/", "~1")

// Pointer returns the JSON pointer (RFC 6901) of a member of the value at another pointer.
func Pointer(at, name string) string { return at + "/" + inPointer.Replace(name) }

// BytesOf returns the bytes of s, which must not be modified.
func BytesOf(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }

// TextOf returns b, which must not be modified any more.
func TextOf(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
