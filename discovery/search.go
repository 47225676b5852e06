package discovery

import (
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
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
// that have tags that are asked for. more says that there are others.
func (s *search) find(want int) (found []located, more bool) {
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
func (x *index) locate(n uint32) located {
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
func (s *search) tagged(x *index, seen *seen, ok bitset, most int, few bool) []hit {
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

// choose picks the best candidates, at most so many: near duplicates of one owner
// are left out, and so is what an owner has beyond its share (discovery.md 6). A
// request for one origin has no shares.
func (s *search) choose(most int) {
	s.chosen = s.chosen[:0]
	owners := map[owner][]*Candidate{}
	for _, c := range s.rated {
		if why := s.turnDown(c, owners); why != "" {
			if s.turned != nil {
				s.turned[c] = why
			}
			continue
		}
		if s.chosen = append(s.chosen, c); len(s.chosen) == most {
			return
		}
	}
}

// turnDown returns why a candidate is not chosen, or "" and counts it for its
// owner.
func (s *search) turnDown(c *Candidate, owners map[owner][]*Candidate) string {
	switch {
	case c.Score <= 0, s.rater.faint(c):
		return WhyNoMatch
	case c.Flags&flagsOfText != 0 && c.Score < flaggedFloor*s.rated[0].Score:
		return WhyFlagged // it matches a little of everything
	case len(s.query.Request.Constraints.Origins) == 1:
		return ""
	}
	others := owners[c.owner]
	switch {
	case len(others) >= s.finder.cfg.PerOwner:
		return WhyPerOwner
	case s.repeats(c, others):
		return WhyDuplicate
	}
	owners[c.owner] = append(others, c)
	return ""
}

// flaggedFloor is the share of the best candidate's score that a flagged one needs
// to be in an answer.
const flaggedFloor = .5

type owner struct {
	origin spiffeid.TrustDomain
	id     directory.Identity
}

func ownerOf(e *directory.Entry) owner { return owner{e.Origin, e.Owner} }

// Near duplicates have so large a share of their words in common, and so many of
// them at least.
const (
	duplicateShare = .9
	duplicateWords = 6
)

// repeats reports whether c says nearly the same as one of the others, and flags
// that one: what stands for several says so.
func (s *search) repeats(c *Candidate, others []*Candidate) bool {
	if len(others) == 0 {
		return false
	}
	mine := s.words(c)
	for _, o := range others {
		theirs := s.words(o)
		both := 0
		for w := range mine {
			if theirs[w] {
				both++
			}
		}
		if either := len(mine) + len(theirs) - both; either >= duplicateWords && float64(both) >= duplicateShare*float64(either) {
			o.Flags |= FlagDuplicate
			return true
		}
	}
	return false
}

// words returns the different words of a candidate.
func (s *search) words(c *Candidate) map[uint64]bool {
	words := map[uint64]bool{}
	a := s.rater.analyser
	a.listen(nil)
	a.sections = appendSections(a.sections[:0], c.shown())
	for i := range a.sections {
		for _, t := range a.read(a.sections[i].text) {
			words[t.hash] = true
		}
	}
	return words
}

// result makes the answer.
func (s *search) result() *Result {
	r := s.query.Request
	chosen := s.chosen[:min(len(s.chosen), r.Limit)]
	res := &Result{
		Candidates:  make([]Candidate, len(chosen)),
		Applied:     s.query.applied(),
		Unsupported: r.Constraints.Unsupported,
		Warnings:    s.warnings,
		Excluded:    s.excluded,
		More:        len(s.chosen) > r.Limit,
		Semantic:    s.semantic,
	}
	for i, c := range chosen {
		res.Candidates[i] = *c
		res.Candidates[i].Freshness = freshness(c.Entry, s.rater.now)
	}
	if r.IncludeEvidence {
		for i := range res.Candidates {
			s.rater.explain(&res.Candidates[i])
		}
	}
	return res
}
