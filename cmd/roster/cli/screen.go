package cli

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/roster-mesh/roster/directory"
)

// Printable returns text in a form that is safe on a terminal: control characters,
// characters that change the direction of writing, invisible characters and bytes that are
// not UTF-8 become escapes. Text of registrants, and errors that may quote it, is printed
// only through Printable (AD-072).
func Printable(text string) string {
	var (
		out  strings.Builder
		safe escaper
	)
	safe.escape(&out, text, escapeText)

	return out.String()
}

// escapeText writes a character as Go and YAML escape it.
func escapeText(out *strings.Builder, r rune) {
	switch {
	case r < 0x100:
		fmt.Fprintf(out, `\x%02x`, r)
	case r < 0x10000:
		fmt.Fprintf(out, `\u%04x`, r)
	default:
		fmt.Fprintf(out, `\U%08x`, r)
	}
}

// escapeJSON writes a character as JSON escapes it.
func escapeJSON(out *strings.Builder, r rune) {
	if high, low := utf16.EncodeRune(r); high != unicode.ReplacementChar {
		fmt.Fprintf(out, `\u%04x\u%04x`, high, low)
		return
	}

	fmt.Fprintf(out, `\u%04x`, r)
}

// An escaper replaces the characters on which a terminal would act instead of showing them.
// It remembers the last one, so that a text may come in pieces.
type escaper struct{ last rune }

// escape writes text with each unsafe character replaced by write. A byte that is not UTF-8
// counts as the character of its value: a terminal may read it as such.
func (e *escaper) escape(out *strings.Builder, text string, write func(*strings.Builder, rune)) {
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)

		invalid := r == utf8.RuneError && size == 1
		if invalid {
			r = rune(text[0])
		}

		switch {
		case invalid, directory.IsUnseen(r) && !e.needsJoiner(r) && !e.presents(r):
			write(out, r)

			e.last = 0
		default:
			out.WriteString(text[:size])

			e.last = r
		}

		text = text[size:]
	}
}

// needsJoiner reports whether r is one of the two joiners after a character of a script, or
// after a symbol, that is written with them. Anywhere else a joiner only hides.
func (e *escaper) needsJoiner(r rune) bool {
	const nonJoiner = '\u200c'

	if r != nonJoiner && r != joiner {
		return false
	}

	if unicode.In(e.last, unicode.Latin, unicode.Greek, unicode.Cyrillic) {
		return false
	}

	return e.last > unicode.MaxLatin1 && unicode.In(e.last, unicode.L, unicode.M, unicode.S)
}

// presents reports whether r says that the symbol before it is drawn as text, or as an emoji.
func (e *escaper) presents(r rune) bool {
	return (r == textPresentation || r == emojiPresentation) && unicode.Is(unicode.S, e.last)
}

// A screen is a terminal that shows text from outside. All that commands print passes it,
// in whatever format, so that no command can forget to escape. JSON stays JSON.
type screen struct {
	terminal io.Writer
	escaper  escaper
	partial  string // the first bytes of a character whose rest is to come
}

// Write writes text without the characters on which the terminal would act. Line breaks and
// tabs stay.
func (s *screen) Write(text []byte) (int, error) {
	all := s.partial + string(text)
	whole := len(all) - len(partialRune(all))
	s.partial = all[whole:]

	var out strings.Builder
	s.escaper.escape(&out, all[:whole], escapeOnScreen)

	if _, err := io.WriteString(s.terminal, out.String()); err != nil {
		return 0, err
	}

	// All bytes were taken, though the terminal got others.
	return len(text), nil
}

func escapeOnScreen(out *strings.Builder, r rune) {
	switch r {
	case '\n', '\t':
		out.WriteRune(r)
	case '\r':
		// Between JSON values it is white space, but a terminal would overwrite the line.
		out.WriteByte(' ')
	default:
		escapeJSON(out, r)
	}
}

// partialRune returns the end of text that can be the beginning of a character.
func partialRune(text string) string {
	for size := 1; size < utf8.UTFMax && size <= len(text); size++ {
		tail := text[len(text)-size:]
		if utf8.RuneStart(tail[0]) {
			if utf8.FullRuneInString(tail) {
				return ""
			}

			return tail
		}
	}

	return ""
}
