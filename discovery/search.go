package discovery

import (
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// A located is a candidate that the index knows of.
type located struct {
	slot   uint32
	origin spiffeid.TrustDomain
	key    candidateKey

	lengths lengths
	flags   Flags

	near     float64 // as Candidate
	compared bool
}

// find asks the index for the best want candidates by their words, and for those
// that have tags that are asked for, but for those of some owners. more says that
// there are others.
func (s *search) find(want int, without ownerSet) (found []located, more bool) {
	f := s.finder
	f.mu.RLock()
	defer f.mu.RUnlock()
	x := f.index
	if !f.whole {
		s.warn(WarnPartial)
	}
	if x.left > 0 {
		s.warn(WarnFull)
	}
	seen := f.readers.of(x, f.cfg.View, s.query.Reader)
	s.others = seen.sights()
	sieve := f.sieve(s.query, seen)
	defer sieve.close()
	if s.excluded == nil {
		s.excluded = sieve.excluded
	}
	sieve.withoutOwners(x, without)

	leads := s.rater.question.weigh(x, seen)
	had := map[uint32]bool{}
	worded := x.gather(leads, sieve.ok, want)
	for _, hits := range [][]hit{worded, s.tagged(x, seen, sieve.ok, want, len(worded) < want), s.dense(x, sieve.ok, want)} {
		more = more || len(hits) == want
		for _, h := range hits {
			if !had[h.slot] {
				had[h.slot] = true
				found = append(found, x.locate(h.slot))
			}
		}
	}
	for i := range found {
		s.nearnessOf(x, &found[i])
	}
	return found, more
}

// locate returns what the index knows of the registration in a slot.
func (x *termIndex) locate(n uint32) located {
	slot := x.slots.At(n)
	origin := x.origins[slot.origin]
	l := located{slot: n, origin: origin, key: candidateKey{origin.Name(), slot.rid}, flags: slot.flags}
	for f, c := range slot.lengths {
		l.lengths[f] = c.words()
	}
	return l
}

// tagged returns those of ok that have most of the tags that are asked for: a
// preferred tag makes a candidate of what no word of the query finds. All of ok have
// those that are required, which tell none from another: they count where words find few.
func (s *search) tagged(x *termIndex, seen *seen, ok bitset, most int, few bool) []hit {
	var leads []lead
	for _, w := range s.rater.wanted {
		if !w.preferred && !few {
			continue
		}
		terms := []string{markTag + w.asked}
		for _, n := range w.narrower {
			terms = append(terms, markTag+n.tag)
		}
		for _, t := range terms {
			if l, found := x.lead(x.hash(t), seen.slots, true, seen.count); found {
				l.idf, l.most = 1, maxWeight
				leads = append(leads, l)
			}
		}
	}
	if len(leads) == 0 {
		return nil
	}
	return x.gather(leads, ok, most)
}
