package cli

import (
	"iter"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/width"
)

// CellWidth returns the number of cells that printable text takes on a terminal: two for a
// character that is wide (Unicode Standard Annex 11) and for an emoji of several characters,
// 0 for a combining mark.
func CellWidth(text string) int {
	cells := 0
	for _, width := range clusters(text) {
		cells += width
	}

	return cells
}

// Shorten returns text cut to n cells; a text that was cut ends in an ellipsis. A character
// keeps its marks.
func Shorten(text string, n int) string {
	if CellWidth(text) <= n {
		return text
	}

	var (
		out  strings.Builder
		left = n - 1
	)
	for cluster, width := range clusters(text) {
		if left -= width; left < 0 {
			break
		}

		out.WriteString(cluster)
	}

	return out.String() + "…"
}

// clusters returns the characters of a text, each with its marks, and the number of cells that each takes.
func clusters(text string) iter.Seq2[string, int] {
	return func(yield func(string, int) bool) {
		for len(text) > 0 {
			size, cells := firstCluster(text)
			if !yield(text[:size], cells) {
				return
			}

			text = text[size:]
		}
	}
}

const (
	joiner            = '\u200d'
	textPresentation  = '\ufe0e'
	emojiPresentation = '\ufe0f'
)

// firstCluster returns the bytes and the cells of the first character with its marks.
func firstCluster(text string) (size, cells int) {
	base, size := utf8.DecodeRuneInString(text)

	cells = runeWidth(base)
	for last := base; size < len(text); {
		r, length := utf8.DecodeRuneInString(text[size:])

		switch {
		case r == emojiPresentation && unicode.Is(unicode.S, base):
			cells = 2

		// An emoji of several characters is drawn as one.
		case last == joiner && unicode.Is(unicode.So, r) && unicode.Is(unicode.S, base):
		case isSkinTone(r) && unicode.Is(unicode.So, base):
		case runeWidth(r) > 0:
			return size, cells
		}

		size += length
		last = r
	}

	return size, cells
}

// runeWidth returns the cells that one character takes.
func runeWidth(r rune) int {
	switch {
	case r < 0x7f:
		return 1
	case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf) || isTrailingJamo(r):
		return 0
	}

	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}

	return 1
}

// isTrailingJamo reports whether r is a vowel or final consonant that joins the Hangul
// syllable before it.
func isTrailingJamo(r rune) bool { return r >= 0x1160 && r <= 0x11ff || r >= 0xd7b0 && r <= 0xd7fb }

func isSkinTone(r rune) bool { return r >= 0x1f3fb && r <= 0x1f3ff }
