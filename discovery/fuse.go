package discovery

import (
	"math"
	"slices"

	"github.com/roster-mesh/roster/discovery/content"
	"github.com/roster-mesh/roster/discovery/postings"
)

// How words and vectors are fused. The dense part is the nearness of a candidate's
// vector to the query's, above that of the average of those that the filters leave:
// models differ in how near strangers are. It is a part of the component context:
//
//	context = (1 - weight) × words + weight × dense
//
// A candidate without a vector keeps its score by words. Merging two rankings with fixed
// weights degrades queries that words answer well. So the weight falls with the length of the
// query and with the share of it that the best match by words covers.
const (
	denseMost   = .8  // the weight of a short query that no word finds
	denseLength = 10. // words of a query that halve it
	denseFloor  = .2  // candidates by vectors alone are this near at least …
	denseLeast  = .03 // … and has so much of context by it
)

// maxScan bounds the vectors that a query is compared with. Above it, the query is compared
// with the registrations that words and tags find, and the average is of a sample.
const maxScan = 1 << 14

// dense compares the query with the registrations that pass the filters. It returns the nearest
// that are near, at most most.
func (s *search) dense(terms *termIndex, ok postings.Bitset, most int) []postings.Hit {
	s.spaceMean = 0
	if s.meant.vector.q == nil {
		return nil
	}

	if !terms.space.fits(&s.meant) {
		terms.space.rouse() // it may be of another model by now
		s.warn(WarnVectors)

		return nil
	}

	count := ok.Count()
	step, near := max(1, (count+maxScan-1)/maxScan), []postings.Hit{}

	var (
		sum               float64
		have, nth, looked int
	)
	postings.Each(ok, func(n uint32) {
		if nth++; nth%step != 0 {
			return
		}

		vector, has := terms.space.of(n)

		// Flagged registrations get no vector, so they are not missing one.
		if has || terms.slots.At(n).flags&content.SpamFlags == 0 {
			looked++
		}

		if !has {
			return
		}

		cos := vector.cosine(&s.meant.vector)
		sum += cos
		have++

		// The nearest of a sample are not the nearest, so then words and tags alone find candidates.
		if step == 1 {
			near = append(near, postings.Hit{Slot: n, Score: uint32(max(0, math.Round(cos*(1<<20))))})
		}
	})

	if have < looked {
		s.warn(WarnVectors)
	}

	if have == 0 {
		return nil
	}

	s.semantic.Source = SourceEmbeddings
	s.spaceMean = sum / float64(have)

	// Nearness is relative to the mean, which is known only after the loop.
	near = slices.DeleteFunc(near, func(h postings.Hit) bool {
		return s.nearness(float64(h.Score)/(1<<20)) < denseFloor
	})
	slices.SortFunc(near, func(hit, b postings.Hit) int {
		switch {
		case hit.Score != b.Score:
			return int(b.Score) - int(hit.Score)
		case terms.before(hit.Slot, b.Slot):
			return -1
		}

		return 1
	})

	return near[:min(len(near), most)]
}

// nearness returns the dense part of a candidate, within 0 and 1.
func (s *search) nearness(cos float64) float64 {
	return min(1, max(0, (cos-s.spaceMean)/(1-min(s.spaceMean, .999))))
}

// nearnessOf gives a located registration its dense part.
func (s *search) nearnessOf(terms *termIndex, indexed *indexed) {
	if s.semantic == nil || s.semantic.Source == SourceNone {
		return
	}

	if v, has := terms.space.of(indexed.slot); has && terms.space.fits(&s.meant) {
		indexed.near = s.nearness(v.cosine(&s.meant.vector))
		indexed.compared = true
	}
}

// fuse gives all candidates their contexts, once it is known how well words do.
func (s *search) fuse() {
	if s.semantic == nil || s.semantic.Source == SourceNone {
		return
	}

	var covered float64
	for _, c := range s.rated {
		// A text that is written for rankers covers every query.
		if c.Flags&content.SpamFlags == 0 {
			covered = max(covered, c.covers)
		}
	}

	s.rater.dense = denseMost * (1 - covered) * denseLength / (denseLength + float64(len(s.rater.question.Words)))

	s.semantic.Weight = s.rater.dense
	for _, c := range s.rated {
		s.rater.blend(c)
	}
}

// blend makes a candidate's context of its two parts.
func (t *rater) blend(candidate *Candidate) {
	candidate.Components.Context = candidate.lexical
	if share := t.share(candidate); share > 0 {
		candidate.Components.Context = (1-share)*candidate.lexical + share*candidate.near
	}

	candidate.Score = t.finder.cfg.Weights.Score(candidate.Components)
}

// share is how much of a candidate's context is its dense part.
func (t *rater) share(c *Candidate) float64 {
	if !c.compared {
		return 0
	}

	return t.dense
}

// faint reports whether vectors alone have found a candidate, and hardly so.
func (t *rater) faint(c *Candidate) bool {
	return c.compared && c.lexical == 0 && c.Components.Tag == 0 && len(c.MatchedTags) == 0 &&
		t.dense*c.near < denseLeast
}
