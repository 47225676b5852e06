package discovery

import (
	"math"
	"slices"

	"github.com/roster-mesh/roster/discovery/analysis"
	"github.com/roster-mesh/roster/discovery/postings"
)

// maxQueryTerms bounds the different terms of a query that are searched: those
// that tell most.
const maxQueryTerms = 64

// idfUnits is the resolution of an inverse document frequency while candidates are gathered.
// All sums are of whole numbers, so that registrations with the same text have the same score,
// in any order of terms.
const idfUnits = 256

// idf returns the information of a term that n of total registrations have.
func idf(n, total int) float64 {
	return math.Log(1 + (float64(total-n)+.5)/(float64(n)+.5))
}

// gather returns the best of the slots in ok by the leads, at most most, the best first.
func (x *termIndex) gather(leads []postings.Lead, ok postings.Bitset, most int) []postings.Hit {
	return postings.Gather(leads, ok, most, x.before)
}

// before reports whether slot a comes before slot b where scores are the same: by
// origin, then by rid.
func (x *termIndex) before(a, b uint32) bool {
	slot, t := x.slots.At(a), x.slots.At(b)
	if slot.origin != t.origin {
		return x.origins[slot.origin].Name() < x.origins[t.origin].Name()
	}

	return slot.rid.Compare(t.rid) < 0
}

// lead returns a term of a query, whose document frequency is counted among the
// slots in seen; false where none of them has it. all says that seen has every
// slot.
func (x *termIndex) lead(h uint64, seen postings.Bitset, all bool, total int) (postings.Lead, bool) {
	list, ok := x.terms.Get(h)
	if !ok {
		return postings.Lead{}, false
	}

	n := 0
	switch {
	case all:
		n = x.living(list)
	case total > 0:
		n = list.CountIn(seen)
	}

	if n == 0 {
		return postings.Lead{}, false
	}

	units := uint32(math.Round(idf(n, total) * idfUnits))
	units = max(units, 1)

	return postings.Lead{List: list, Count: n, IDF: units, Max: units * uint32(list.Max)}, true
}

// weighQuestion gives each word of a question its idf among the registrations that the reader
// sees. It returns the terms to gather candidates by: those with the most information.
func weighQuestion(question *analysis.Question, terms *termIndex, visibleSet *visibleSet) []postings.Lead {
	leads := make([]postings.Lead, 0, len(question.Words))
	question.Total = 0

	all := visibleSet.all(terms)
	for i := range question.Words {
		w := &question.Words[i]
		lead, ok := terms.lead(w.Hash, visibleSet.slots, all, visibleSet.count)

		// A word that no visible registration has counts in the total, so that it lowers all scores.
		w.IDF = idf(lead.Count, visibleSet.count)
		if ok {
			leads = append(leads, lead)
		}

		question.Total += w.IDF
	}

	if len(leads) > maxQueryTerms {
		slices.SortStableFunc(leads, func(a, b postings.Lead) int { return int(b.IDF) - int(a.IDF) })
		leads = leads[:maxQueryTerms]
	}

	return leads
}
