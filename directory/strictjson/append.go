package strictjson

import (
	"strconv"
)

// AppendString appends s as a JSON string, escaped only where JSON demands it:
// the quotation mark, the backslash and U+0000 to U+001F, as \u00XX in lower case.
func AppendString(data []byte, s string) []byte {
	const hex = "0123456789abcdef"

	data = append(data, '"')
	for {
		n := PlainPrefix(s)

		data = append(data, s[:n]...)
		if n == len(s) {
			return append(data, '"')
		}

		if c := s[n]; c < 0x20 {
			data = append(data, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		} else {
			data = append(data, '\\', c)
		}

		s = s[n+1:]
	}
}

// PlainPrefix returns how many bytes s begins with that JSON writes as they are. It
// looks at eight at once: answers consist mostly of such.
func PlainPrefix(s string) (n int) {
	const low, high = 0x0101010101010101, 0x8080808080808080
	// below is not 0 if a byte of v is under limit, which is at most 128. (It may name a byte
	// behind such a one as well, but is 0 if there isn't any.)
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
func AppendObject(data []byte, members []Member) []byte {
	data = append(data, '{')
	for i, member := range members {
		if i > 0 {
			data = append(data, ',')
		}

		data = AppendString(data, member.Name)
		data = append(data, ':')
		data = append(data, member.Value...)
	}

	return append(data, '}')
}

// AppendName appends ,"name": or "name": where it is the object's first.
func AppendName(data []byte, name string) []byte {
	if data[len(data)-1] != '{' {
		data = append(data, ',')
	}

	return append(append(append(data, '"'), name...), '"', ':')
}

// AppendUint appends a member with a whole number to an object under way.
func AppendUint(b []byte, name string, n uint64) []byte {
	return strconv.AppendUint(AppendName(b, name), n, 10)
}

// AppendText appends a member with a string to an object under way.
func AppendText(b []byte, name, s string) []byte {
	return AppendString(AppendName(b, name), s)
}

// AppendRaw appends a member whose value is JSON already to an object under way.
func AppendRaw(b []byte, name string, value []byte) []byte {
	return append(AppendName(b, name), value...)
}

// AppendList appends a JSON array of the elements that each appends.
func AppendList[T any](data []byte, items []T, each func([]byte, T) []byte) []byte {
	data = append(data, '[')
	for i, item := range items {
		if i > 0 {
			data = append(data, ',')
		}

		data = each(data, item)
	}

	return append(data, ']')
}

// AppendStrings appends a JSON array of strings.
func AppendStrings(data []byte, texts []string) []byte { return AppendList(data, texts, AppendString) }
