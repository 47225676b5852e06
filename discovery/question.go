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
	term string
	text string // as the query has it, where it has it first
	idf  float64
}

// A question is what a query's text asks for.
type question struct {
	words  []word
	number map[string]int  // of words, by term
	beside map[[2]int]bool // words of which the second follows the first
	total  float64         // of all idf
}

// newQuestion reads a query. Words by which people ask count only where there are
// no others.
func newQuestion(a *analyser, text string) *question {
	q := &question{number: map[string]int{}, beside: map[[2]int]bool{}}
	tokens := slices.Clone(a.read(text))
	asks := func(t token) bool { return requestWords[t.term] }
	if !slices.ContainsFunc(tokens, func(t token) bool { return !asks(t) }) {
		asks = func(token) bool { return false }
	}
	before := -1
	for _, t := range tokens {
		n, had := q.number[t.term]
		if !had && !asks(t) {
			n, had = len(q.words), true
			q.number[t.term] = n
			q.words = append(q.words, word{term: t.term, text: strings.ToValidUTF8(text[t.start:t.end], "")})
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

// weigh gives each word its idf among what the reader sees, and returns the
// terms to gather candidates by: those that tell most.
func (q *question) weigh(x *index, s *seen) []lead {
	leads := make([]lead, 0, len(q.words))
	q.total = 0
	all := s.all(x)
	for i := range q.words {
		w := &q.words[i]
		l, ok := x.lead(w.term, s.slots, all, s.count)
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
