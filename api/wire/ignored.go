package wire

import (
	"fmt"
	"net/url"
	"strings"
	"unicode/utf8"
)

// HeaderIgnored names the parts of a request that have no effect: a list of items (RFC 9651),
// each a token, a string or a display string.
const HeaderIgnored = "Roster-Ignored"

// Bounds of HeaderIgnored.
const (
	MaxIgnored     = 8  // items
	MaxIgnoredName = 64 // bytes of a name
)

// An Ignored is a part of a request that has no effect.
type Ignored struct {
	// Name is a query parameter, the JSON pointer to a member of the body, or peers:DOMAIN of
	// a domain that is no peer.
	Name string `json:"name"`
	// Near is the known name that Name may have been meant to be; empty if there is none.
	Near string `json:"near,omitempty"`
}

// AppendIgnored appends an item to the value of HeaderIgnored; longer names are cut, and more
// items left out.
func AppendIgnored(header string, item Ignored) string {
	if strings.Count(header, separator) >= MaxIgnored-1 {
		return header
	}

	if header != "" {
		header += separator
	}

	header += quote(item.Name)
	if item.Near != "" {
		header += ";near=" + quote(item.Near)
	}

	return header
}

// separator is between two items, and in no quoted name.
const separator = ", "

// quote returns a name as a token, string or display string.
func quote(name string) string {
	// A long name is cut between characters, so that it stays valid UTF-8.
	for len(name) > MaxIgnoredName || !utf8.ValidString(name) {
		_, size := utf8.DecodeLastRuneInString(name)
		name = name[:len(name)-size]
	}

	switch {
	case isToken(name):
		return name
	case isPrintable(name) && !strings.Contains(name, separator):
		return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(name) + `"`
	}

	var quoted strings.Builder
	for i := range len(name) {
		if c := name[i]; c > ' ' && c < 0x7f && c != '%' && c != '"' {
			quoted.WriteByte(c)
		} else {
			fmt.Fprintf(&quoted, "%%%02x", c)
		}
	}

	return `%"` + quoted.String() + `"`
}

// isToken reports whether a name is a token (RFC 9651, 3.3.4).
func isToken(name string) bool {
	return name != "" && (isLetter(name[0]) || name[0] == '*') && !strings.ContainsFunc(name, func(r rune) bool {
		return !(r < 0x80 && isLetter(byte(r)) || r >= '0' && r <= '9' || strings.ContainsRune("!#$%&'*+-.^_`|~:/", r))
	})
}

func isLetter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }

// isPrintable reports whether a name has only characters that a string may have.
func isPrintable(name string) bool {
	return !strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r > '~' })
}

// ParseIgnored returns the items of HeaderIgnored, which may be several fields. It skips what
// it can't read.
func ParseIgnored(fields []string) (items []Ignored) {
	for item := range strings.SplitSeq(strings.Join(fields, separator), separator) {
		name, rest, ok := unquote(item)
		if !ok {
			continue
		}

		parsed := Ignored{Name: name}
		if text, is := strings.CutPrefix(rest, ";near="); is {
			parsed.Near, _, _ = unquote(text)
		}

		items = append(items, parsed)
	}

	return items
}

// unquote reads the token, string or display string at the beginning of a text.
func unquote(text string) (name, rest string, ok bool) {
	display := strings.HasPrefix(text, `%"`)
	if !display && !strings.HasPrefix(text, `"`) {
		end := strings.IndexByte(text+";", ';')
		return text[:end], text[end:], isToken(text[:end])
	}

	text = strings.TrimPrefix(text, "%")[1:]

	var plain strings.Builder

	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			name = plain.String()
			if display {
				unescaped, err := url.PathUnescape(name)
				return unescaped, text[i+1:], err == nil && utf8.ValidString(unescaped)
			}

			return name, text[i+1:], true
		case c == '\\' && !display && i+1 < len(text):
			i++
			plain.WriteByte(text[i])
		default:
			plain.WriteByte(c)
		}
	}

	return "", "", false
}
