package analysis

import (
	"slices"
	"strings"
)

// requestWords are the stems of the words that make a request ("please find"). They carry no
// subject to search for.
var requestWords = setOf(`pleas help need want find know like look tell give show get use provid assist ask request
sure would new recommend suggest interest informat inform`)

// A Word is one term of a query.
type Word struct {
	Term
	Said string // as the query has it at its first place
	IDF  float64
}

// A Question is the parsed text of a query.
type Question struct {
	Words    []Word
	number   map[uint64]int  // of words, by hash
	Adjacent map[[2]int]bool // words of which the second follows the first
	Total    float64         // of all idf
	heads    [headSize]uint8 // by the hash of how a term begins: twoLetters, threeLetters
	letter   bool            // a term has but one
	short    bool            // a term has fewer than three, not counting an e at its end
}

// Find returns the number of a token's word.
func (q *Question) Find(t *Token) (int, bool) {
	if t.Hash == 0 {
		return 0, false
	}

	n, ok := q.number[t.Hash]

	return n, ok
}

// excludes reports whether a word of ASCII letters and digits is surely neither one of
// the question's nor a function word.
func (q *Question) excludes(word string) bool {
	three := head3(word)
	if functionHeads[three] {
		return false
	}

	if len(word) > shortWord && !q.short && q.heads[three]&threeLetters == 0 {
		return true
	}

	if q.letter || q.heads[head(word, 2)]&twoLetters != 0 {
		for i := range q.Words {
			if begins(word, q.Words[i].Text) {
				return false
			}
		}
	}

	return true
}

// begins reports whether a word begins as its stem does, if that is its stem: it has
// all but the last three letters, and three or of a short word two in any case, but
// for an e at the stem's end. A y may be an i.
func begins(word, stem string) bool {
	least := 3
	if len(word) <= shortWord {
		least = 2
	}

	n := max(len(stem)-3, min(least, len(strings.TrimSuffix(stem, "e"))))
	if n > len(word) {
		return false
	}

	for i := range n {
		if c := word[i] | 0x20; c != stem[i] && (c != 'y' || stem[i] != 'i') {
			return false
		}
	}

	return true
}

// shortWord is how long a word is at most whose third letter may change: dying.
const shortWord = 5

// head3 is head of three letters.
func head3(word string) int {
	if len(word) < 3 {
		return head(word, 3)
	}

	h := 3*31 + int(folded[word[0]])
	h = h*31 + int(folded[word[1]])

	return (h*31 + int(folded[word[2]])) & (headSize - 1)
}

// folded are letters in lower case; y is i.
var folded = func() (f [256]uint8) {
	for i := range f {
		f[i] = uint8(i) | 0x20
	}

	f['y'], f['Y'] = 'i', 'i'

	return f
}()

// head returns the hash of the first n letters of an ASCII word, in lower case.
func head(word string, n int) int {
	h := n
	for i := range min(n, len(word)) {
		h = h*31 + int(folded[word[i]])
	}

	return h & (headSize - 1)
}

const headSize = 1 << 12

// How a term of the question begins.
const (
	twoLetters = 1 << iota
	threeLetters
)

// NewQuestion reads a query. Words by which people ask count only where there are
// no others.
func NewQuestion(analyser *Analyser, text string) *Question {
	question := &Question{number: map[uint64]int{}, Adjacent: map[[2]int]bool{}}
	analyser.Restrict(nil)
	tokens := slices.Clone(analyser.Read(text))

	asks := func(t Token) bool { return t.Asks }
	if !slices.ContainsFunc(tokens, func(t Token) bool { return !asks(t) }) {
		asks = func(Token) bool { return false }
	}

	before := -1
	for _, t := range tokens {
		n, had := question.number[t.Hash]
		if !had && !asks(t) {
			n, had = len(question.Words), true
			question.number[t.Hash] = n
			question.note(t.Term, strings.ToValidUTF8(text[t.Start:t.End], ""))
		}

		if !had {
			// A word that is left out separates its neighbours.
			before = -1
			continue
		}

		if before >= 0 && before != n {
			question.Adjacent[[2]int{before, n}] = true
		}

		before = n
	}

	return question
}

// note adds a word, which is said so.
func (q *Question) note(t Term, said string) {
	q.Words = append(q.Words, Word{Term: t, Said: said})

	q.heads[head(t.Text, 2)] |= twoLetters
	if len(strings.TrimSuffix(t.Text, "e")) < 3 {
		q.short = true
	}

	q.heads[head(t.Text, 3)] |= threeLetters
	q.letter = q.letter || len(t.Text) < 2
}
