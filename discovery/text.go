package discovery

import (
	"unicode"
	"unicode/utf8"

	"github.com/blevesearch/snowballstem"
	"github.com/blevesearch/snowballstem/english"
	"golang.org/x/text/unicode/norm"
)

// Bounds on what is read of a text.
const (
	maxToken = 64      // bytes of one token; what is longer is no word
	maxStems = 1 << 14 // words whose stems an analyser remembers
)

// A token is a term and where in the text it was read, in bytes. The parts of a
// word in camelCase lie within the token of the whole word.
type token struct {
	term       string
	start, end int
	part       bool // of a word that is a token as well
}

// An analyser makes terms of texts. It is for one goroutine at a time.
type analyser struct {
	stems  map[string]string
	env    *snowballstem.Env
	fold   []byte
	tokens []token
	// dropped counts the function words that were left out, since the analyser is.
	dropped int
}

func newAnalyser() *analyser {
	return &analyser{stems: map[string]string{}, env: snowballstem.NewEnv("")}
}

// tokens reads a text. What it returns is good until the next call.
//
// A run of letters and digits is a word; camelCase is read as its parts and as a
// whole, so that GitHub is found by github and by hub. Scripts that put no
// spaces between words are read by pairs of characters. English function words
// are left out, others are stemmed.
func (a *analyser) read(text string) []token {
	a.tokens = a.tokens[:0]
	for i := 0; i < len(text); {
		r, n := rune(text[i]), 1
		if r >= utf8.RuneSelf {
			r, n = utf8.DecodeRuneInString(text[i:])
		}
		switch {
		case unspaced(r):
			i = a.pairs(text, i)
		case isWordRune(r):
			i = a.word(text, i)
		default:
			i += n
		}
	}
	return a.tokens
}

func isWordRune(r rune) bool {
	if r < utf8.RuneSelf {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
	}
	return unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.Is(unicode.Mn, r)
}

// unspaced reports whether r is of a script that is written without spaces.
func unspaced(r rune) bool {
	return r >= 0x0e00 && unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar)
}

// pairs reads a run of an unspaced script at i and returns where it ends.
func (a *analyser) pairs(text string, i int) int {
	first, last, n := i, i, 0
	for i < len(text) {
		r, size := utf8.DecodeRuneInString(text[i:])
		if !unspaced(r) {
			break
		}
		if n++; n > 1 {
			a.tokens = append(a.tokens, token{term: text[last : i+size], start: last, end: i + size})
		}
		last, i = i, i+size
	}
	if n == 1 {
		a.tokens = append(a.tokens, token{term: text[first:i], start: first, end: i})
	}
	return i
}

// word reads a word at i and returns where it ends.
func (a *analyser) word(text string, i int) int {
	start, from, parts := i, i, 0
	var before, at rune
	for i < len(text) {
		r, n := rune(text[i]), 1
		if r >= utf8.RuneSelf {
			r, n = utf8.DecodeRuneInString(text[i:])
		}
		if (r == '\'' || r == '’') && i > start {
			if rest := text[i+n:]; len(rest) > 0 && isWordRune(rune(rest[0])) && rest[0] < utf8.RuneSelf {
				// An apostrophe within a word: what follows it is an ending.
				break
			}
		}
		if !isWordRune(r) || unspaced(r) {
			break
		}
		// Before the upper case letter of aB, and before the last one of ABc.
		if cut := a.boundary(before, at, r, i, text); cut > from {
			a.add(text, from, cut, true)
			from = cut
			parts++
		}
		before, at, i = at, r, i+n
	}
	if parts > 0 {
		a.add(text, from, i, true)
	}
	a.add(text, start, i, false)
	return a.ending(text, i)
}

// ending steps over 's, 't, 'll and their like.
func (a *analyser) ending(text string, i int) int {
	r, n := utf8.DecodeRuneInString(text[i:])
	if r != '\'' && r != '’' {
		return i
	}
	j := i + n
	for j < len(text) && (text[j]|0x20 >= 'a' && text[j]|0x20 <= 'z') {
		j++
	}
	if j-i-n <= 2 {
		return j
	}
	return i
}

// boundary returns where a part of a word in camelCase ends, or 0. r is at i,
// and at and before are the letters before it.
func (a *analyser) boundary(before, at, r rune, i int, text string) int {
	switch {
	case at == 0:
		return 0
	case unicode.IsUpper(r) && unicode.IsLower(at):
		return i
	case before != 0 && unicode.IsLower(r) && unicode.IsUpper(at) && unicode.IsUpper(before):
		return i - utf8.RuneLen(at)
	}
	return 0
}

// add appends the token of a word, or of a part of one, unless it says nothing.
func (a *analyser) add(text string, from, to int, part bool) {
	if to-from > maxToken {
		return
	}
	if t := a.term(text[from:to]); t != "" {
		a.tokens = append(a.tokens, token{t, from, to, part})
	} else {
		a.dropped++
	}
}

// term returns the term of a word; "" of a function word.
func (a *analyser) term(word string) string {
	if t, ok := a.stems[word]; ok {
		return t
	}
	t := a.stem(word)
	if len(a.stems) >= maxStems {
		clear(a.stems)
	}
	a.stems[string([]byte(word))] = t
	return t
}

func (a *analyser) stem(word string) string {
	ascii := true
	a.fold = a.fold[:0]
	for i := range len(word) {
		c := word[i]
		if c >= 'A' && c <= 'Z' {
			c |= 0x20
		}
		ascii = ascii && c < utf8.RuneSelf
		a.fold = append(a.fold, c)
	}
	if !ascii {
		return foldUnicode(word)
	}
	low := string(a.fold)
	if functionWords[low] {
		return ""
	}
	if len(low) < 3 || low[0] >= '0' && low[0] <= '9' {
		return low
	}
	a.env.SetCurrent(low)
	english.Stem(a.env)
	return string([]byte(a.env.Current()))
}

// foldUnicode returns a word in lower case and without its accents.
func foldUnicode(word string) string {
	var out []rune
	for _, r := range norm.NFKD.String(word) {
		if !unicode.Is(unicode.Mn, r) {
			out = append(out, unicode.ToLower(r))
		}
	}
	return norm.NFC.String(string(out))
}
