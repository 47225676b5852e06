package discovery

import (
	"slices"
	"strings"
)

// requestWords are the stems of the words by which people ask. They say what is
// wanted of whom, and not what for.
var requestWords = setOf(`pleas help need want find know like look tell give show get use provid assist ask request
sure would new recommend suggest interest informat inform`)

// A word is one term of a query.
type word struct {
	term
	said string // as the query has it, where it has it first
	idf  float64
}

// A question is what a query's text asks for.
type question struct {
	words  []word
	number map[uint64]int  // of words, by hash
	beside map[[2]int]bool // words of which the second follows the first
	total  float64         // of all idf
	heads  [headSize]uint8 // by the hash of how a term begins: twoLetters, threeLetters
	letter bool            // a term has but one
	short  bool            // a term has fewer than three, but for an e
}

// find returns the number of a token's word.
func (q *question) find(t *token) (int, bool) {
	if t.hash == 0 {
		return 0, false
	}
	n, ok := q.number[t.hash]
	return n, ok
}

// strange reports whether a word of ASCII letters and digits is surely neither one of
// the question's nor a function word.
func (q *question) strange(word string) bool {
	three := head3(word)
	if functionHeads[three] {
		return false
	}
	if len(word) > shortWord && !q.short && q.heads[three]&threeLetters == 0 {
		return true
	}
	if q.letter || q.heads[head(word, 2)]&twoLetters != 0 {
		for i := range q.words {
			if begins(word, q.words[i].text) {
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

// newQuestion reads a query. Words by which people ask count only where there are
// no others.
func newQuestion(a *analyser, text string) *question {
	q := &question{number: map[uint64]int{}, beside: map[[2]int]bool{}}
	a.listen(nil)
	tokens := slices.Clone(a.read(text))
	asks := func(t token) bool { return t.asks }
	if !slices.ContainsFunc(tokens, func(t token) bool { return !asks(t) }) {
		asks = func(token) bool { return false }
	}
	before := -1
	for _, t := range tokens {
		n, had := q.number[t.hash]
		if !had && !asks(t) {
			n, had = len(q.words), true
			q.number[t.hash] = n
			q.note(t.term, strings.ToValidUTF8(text[t.start:t.end], ""))
		}
		if !had {
			before = -1
			continue
		}
		if before >= 0 && before != n {
			q.beside[[2]int{before, n}] = true
		}
		before = n
	}
	return q
}

// note adds a word, which is said so.
func (q *question) note(t term, said string) {
	q.words = append(q.words, word{term: t, said: said})
	q.heads[head(t.text, 2)] |= twoLetters
	if len(strings.TrimSuffix(t.text, "e")) < 3 {
		q.short = true
	}
	q.heads[head(t.text, 3)] |= threeLetters
	q.letter = q.letter || len(t.text) < 2
}

// weigh gives each word its idf among what the reader sees, and returns the
// terms to gather candidates by: those that tell most.
func (q *question) weigh(x *termIndex, s *seen) []lead {
	leads := make([]lead, 0, len(q.words))
	q.total = 0
	all := s.all(x)
	for i := range q.words {
		w := &q.words[i]
		l, ok := x.lead(w.hash, s.slots, all, s.count)
		w.idf = idf(l.count, s.count)
		if ok {
			leads = append(leads, l)
		}
		q.total += w.idf
	}
	if len(leads) > maxQueryTerms {
		slices.SortStableFunc(leads, func(a, b lead) int { return int(b.idf) - int(a.idf) })
		leads = leads[:maxQueryTerms]
	}
	return leads
}
