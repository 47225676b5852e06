package analysis

import (
	"hash/maphash"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/blevesearch/snowballstem"
	"github.com/blevesearch/snowballstem/english"
	"golang.org/x/text/unicode/norm"
)

// Bounds on the text that is read.
const (
	maxToken = 64      // bytes of one token; a longer token is no word
	maxStems = 1 << 15 // words whose terms an analyser of queries remembers
)

// A Token is a term and where in the text it was read, in bytes. The parts of a
// word in camelCase lie within the token of the whole word.
type Token struct {
	Term
	Start, End int
	Part       bool // of a word that is a token as well
}

// A Term is a search key: the stem of a word, or a pair of characters.
type Term struct {
	Text string // "" if a registration is read (newReader)
	Hash uint64 // 0 of a function word, and of a term outside of only
	Asks bool   // people ask by it (requestWords)
}

// An Analyser makes terms of texts. It is for one goroutine at a time.
type Analyser struct {
	Seed   maphash.Seed
	known  map[string]Term // of words
	cache  *termCache      // instead of known, where registrations are read
	env    *snowballstem.Env
	fold   []byte
	tokens []Token
	// Dropped counts the function words that were left out, since the analyser is.
	Dropped int
	// only is the question whose words alone are wanted; nil for all words.
	only *Question
	// passages are the texts that reread remembers; nil before its first call.
	passages *passages
}

// Restrict makes read return terms without a hash for words that are surely none of
// a question's, which saves most of the work. nil makes it return all.
func (a *Analyser) Restrict(q *Question) { a.only = q }

// New returns an analyser that hashes by a seed.
func New(seed maphash.Seed) *Analyser {
	return &Analyser{Seed: seed, known: map[string]Term{}, env: snowballstem.NewEnv("")}
}

// Read reads a text. The result is valid until the next call.
//
// A run of letters and digits is a word; camelCase is read as its parts and as a
// whole, so that GitHub is found by github and by hub. Scripts that put no
// spaces between words are read by pairs of characters. English function words
// are left out, others are stemmed.
func (a *Analyser) Read(text string) []Token {
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
	return r >= 0x0e00 && unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai, unicode.Lao,
		unicode.Khmer, unicode.Myanmar)
}

// pairs reads a run of an unspaced script at i and returns where it ends.
func (a *Analyser) pairs(text string, i int) int {
	first := i
	last := i

	n := 0
	for i < len(text) {
		r, size := utf8.DecodeRuneInString(text[i:])
		if !unspaced(r) {
			break
		}

		if n++; n > 1 {
			a.tokens = append(a.tokens, Token{Term: a.make(text[last : i+size]), Start: last, End: i + size})
		}

		last, i = i, i+size
	}

	// A single character has no pair, so it is a term by itself.
	if n == 1 {
		a.tokens = append(a.tokens, Token{Term: a.make(text[first:i]), Start: first, End: i})
	}

	return i
}

// The classes of bytes.
const (
	inLower = 1 << iota
	inUpper
	inDigit
)

var classOf = func() (c [256]uint8) {
	for i := range 26 {
		c['a'+i], c['A'+i] = inLower, inUpper
	}

	for i := range 10 {
		c['0'+i] = inDigit
	}

	return c
}()

// word reads a word at i and returns where it ends.
func (a *Analyser) word(text string, i int) int {
	j, inner := i, uint8(0)
	for ; j < len(text); j++ {
		class := classOf[text[j]]
		if class == 0 {
			break
		}

		if j > i {
			inner |= class
		}
	}

	switch {
	case j < len(text) && text[j] >= utf8.RuneSelf:
		// The word goes on beyond ASCII, so it is read anew by its runes.
		return a.wideWord(text, i)
	case inner&inUpper != 0:
		a.parts(text[:j], i)
	}

	a.add(text, i, j, false)

	if j < len(text) && text[j] == '\'' {
		return a.ending(text, j)
	}

	return j
}

// parts reads the parts of a word in camelCase.
func (a *Analyser) parts(text string, i int) {
	from := i
	for j := i + 1; j < len(text); j++ {
		cut := 0
		switch class, before := classOf[text[j]], classOf[text[j-1]]; {
		case class == inUpper && before == inLower:
			cut = j
		case class == inLower && before == inUpper && j >= i+2 && classOf[text[j-2]] == inUpper:
			cut = j - 1 // before the last letter of ABc
		}

		if cut > from {
			a.add(text, from, cut, true)
			from = cut
		}
	}

	if from > i {
		a.add(text, from, len(text), true)
	}
}

// wideWord reads a word that has other letters than ASCII's.
func (a *Analyser) wideWord(text string, i int) int {
	start := i
	for i < len(text) {
		r, n := utf8.DecodeRuneInString(text[i:])
		if !isWordRune(r) || unspaced(r) {
			break
		}

		i += n
	}

	a.addAny(text, start, i, false)

	return a.ending(text, i)
}

// ending steps over 's, 't, 'll and their like.
func (a *Analyser) ending(text string, i int) int {
	r, n := utf8.DecodeRuneInString(text[i:])
	if r != '\'' && r != '’' {
		return i
	}

	j := i + n
	for j < len(text) && (text[j]|0x20 >= 'a' && text[j]|0x20 <= 'z') {
		j++
	}

	// More letters behind an apostrophe are a word of their own.
	if j-i-n <= 2 {
		return j
	}

	return i
}

// add is addAny for a word of ASCII letters and digits.
func (a *Analyser) add(text string, from, to int, part bool) {
	if word := text[from:to]; a.only != nil && len(word) <= maxToken && a.only.excludes(word) {
		a.tokens = append(a.tokens, Token{Term{Text: word}, from, to, part})
		return
	}

	a.addAny(text, from, to, part)
}

// addAny appends the token of a word, or of a part of one, unless it says nothing.
func (a *Analyser) addAny(text string, from, to int, part bool) {
	if to-from > maxToken {
		return
	}

	if t := a.term(text[from:to]); t.Hash != 0 {
		a.tokens = append(a.tokens, Token{t, from, to, part})
	} else {
		a.Dropped++
	}
}

// make returns the term of that text; the zero term where nothing is left of a word.
func (a *Analyser) make(text string) Term {
	if text == "" {
		return Term{}
	}

	return Term{text, maphash.String(a.Seed, text) | 1, requestWords[text]}
}

// term returns the term of a word, the zero term of a function word. Numbers are not
// worth remembering.
func (a *Analyser) term(word string) Term {
	if word[0] <= '9' {
		return a.derive(word)
	}

	if a.cache != nil {
		return a.recall(word)
	}

	if t, ok := a.known[word]; ok {
		return t
	}

	if len(a.known) >= maxStems {
		clear(a.known)
	}

	// The word is a part of a whole text, which the map would keep in memory.
	word = strings.Clone(word)
	t := a.derive(word)
	a.known[word] = t

	return t
}

// derive is term, from the word alone.
func (a *Analyser) derive(word string) Term {
	switch {
	case !a.lower(word):
		return a.make(a.foldWide(word))
	case functionWords[string(a.fold)]:
		return Term{}
	}

	return a.make(a.stem())
}

// lower puts a word into fold in lower case, and reports whether it is ASCII.
func (a *Analyser) lower(word string) bool {
	a.fold = a.fold[:0]
	for i := range len(word) {
		c := word[i]
		switch {
		case c >= utf8.RuneSelf:
			return false
		case c >= 'A' && c <= 'Z':
			c |= 0x20
		}

		a.fold = append(a.fold, c)
	}

	return true
}

// foldWide returns the term of a word with other letters than ASCII's. Where only
// accents were, it is that of the word without them: Réserve is found by reserve.
func (a *Analyser) foldWide(word string) string {
	folded := foldUnicode(word)
	if !a.lower(folded) {
		return folded
	}

	return a.stem()
}

// stem returns the stem of the ASCII word that is in fold.
func (a *Analyser) stem() string {
	low := string(a.fold)
	if len(low) < 3 || low[0] <= '9' {
		return low
	}

	a.env.SetCurrent(low)
	english.Stem(a.env)

	return strings.Clone(a.env.Current())
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
