package directory

import (
	"bytes"

	"github.com/go-json-experiment/json/jsontext"
)

// What follows reads JSON that was parsed strictly before, without looking at it
// twice and without copying: the results share the document's bytes. Of other
// bytes it makes something of no use, but never fails.

// membersOf returns the members of an object.
func membersOf(raw []byte) []Member {
	var members []Member
	for parts := elementsOf(raw); len(parts) >= 2; parts = parts[2:] {
		members = append(members, Member{unquote(parts[0]), parts[1]})
	}
	return members
}

// elementsOf returns the elements of an array, or the names and values of an
// object by turns.
func elementsOf(raw []byte) [][]byte {
	var parts [][]byte
	for i := 1; i < len(raw); {
		switch raw[i] {
		case ' ', '\t', '\r', '\n', ',', ':', ']', '}':
			i++
		default:
			end := endOf(raw, i)
			parts = append(parts, raw[i:end:end])
			i = end
		}
	}
	return parts
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

// unquote returns what a JSON string says; "" for nil.
func unquote(raw []byte) string {
	if len(raw) < 2 {
		return ""
	}
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1])
	}
	b, _ := jsontext.AppendUnquote(nil, raw)
	return string(b)
}
