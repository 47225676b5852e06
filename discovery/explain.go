package discovery

import (
	"context"
	"errors"
	"slices"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/kinds"
	"github.com/roster-mesh/roster/discovery/postings"
)

// An Explanation is the outcome of one registration in a query, with the counts of the others.
type Explanation struct {
	Candidate Candidate // with evidence, and rated whether it is found or not
	Why       string
	Rank      int // from 1 on; 0 if it is neither found nor behind
	// Needed is the score of the last candidate of an answer that is full; 0 where
	// there is room.
	Needed   float64
	Excluded map[string]int // as in Result
}

// ErrUnknown says that there is no such registration, or that the reader does not
// see it.
var ErrUnknown = errors.New("discovery: no such registration")

var errManyParts = directory.Refuse(directory.Unavailable, "policy shows parts of registrations in too many ways, so "+
	"this one can't be ranked now; retry in a few minutes")

// Explain explains why an entry of the view is found by a query, or why not. Its errors are
// Find's, and ErrUnknown. An entry that the reader sees in part is ranked among the entries
// with the same redaction.
func (f *Finder) Explain(ctx context.Context, query Query, entry *directory.Entry) (*Explanation, error) {
	if query.Reader.Sees != nil {
		sight, ok := query.Reader.Sees(entry)
		if !ok {
			return nil, ErrUnknown
		}

		if sight != f.cfg.redaction {
			if f = f.as(sight); f == nil {
				return nil, errManyParts
			}
		}
	}

	selection, err := f.newSelection(ctx, &query)
	if err != nil {
		return nil, err
	}
	defer selection.close()

	// The rank is among the entries with the same redaction, so no other index is searched.
	selection.alone = true
	if err := selection.collect(ctx, ratedMost); err != nil {
		return nil, err
	}

	own := selection.searches[0]

	// The entry need not be among the rated candidates, so it is rated for its explanation.
	candidate, why, ok := own.look(entry)
	if !ok {
		return nil, ErrUnknown
	}

	selection.arrange()
	selection.pick(len(selection.rated))

	explanation := &Explanation{Why: why, Excluded: own.excluded}
	if why == "" {
		explanation.Rank = slices.Index(selection.picked.all, candidate) + 1
		explanation.Why = selection.became(candidate, explanation.Rank)
	}

	limit := query.Request.Limit
	if len(selection.picked.all) >= limit {
		explanation.Needed = selection.picked.all[limit-1].Score
	}

	explanation.Candidate = *candidate
	explanation.Candidate.Freshness = freshness(candidate.Entry, own.rater.now)
	own.rater.explain(&explanation.Candidate)

	// The rater's analyser goes back to its pool, so the answer must not refer to it.
	explanation.Candidate.rater = nil

	return explanation, nil
}

// became returns the outcome of a candidate with that rank that no filter has left out.
func (s *selection) became(candidate *Candidate, rank int) string {
	limit := s.query.Request.Limit
	switch {
	case rank == 0:
		return s.picked.turned[candidate]
	case rank <= limit:
		return WhyFound
	}

	// A worse candidate before this one stands there because of the owners' shares.
	worse := func(other *Candidate) bool { return s.searches[0].rater.compare(candidate, other) < 0 }
	if slices.ContainsFunc(s.picked.all[:limit], worse) {
		return WhyPerOwner
	}

	return WhyBehind
}

// look rates an entry and puts it among those that are rated, unless a filter
// leaves it out or nothing of it matches, which why says. It is false where the
// reader doesn't see it.
func (s *search) look(entry *directory.Entry) (candidate *Candidate, why string, ok bool) {
	indexed, why, ok := s.sift(entry)
	sight := s.finder.cfg.redaction

	v := kinds.Redact(entry, sight)
	if !ok || v.Packed.IsZero() {
		return nil, "", false
	}

	// A rated candidate has passed all filters.
	for _, c := range s.rated {
		if c.Entry.Origin == entry.Origin && c.Entry.RID == entry.RID {
			return c, "", true
		}
	}

	projection := v.Projection()
	candidate = s.rater.rate(v, projection, indexed)
	candidate.owner, candidate.rater = ownerOf(entry), s.rater
	s.rater.blend(candidate)

	if why == "" {
		why = s.finder.late(s.query, entry, projection.Status, s.rater.now)
	}

	if k := candidate.Components; why == "" && k.Context == 0 && k.Tag == 0 && len(candidate.MatchedTags) == 0 {
		why = WhyNoMatch
	}

	if why == "" {
		s.rated = append(s.rated, candidate)
	}

	return candidate, why, true
}

// sift returns the index's data of an entry, and the filter that leaves it out.
func (s *search) sift(entry *directory.Entry) (l indexed, why string, ok bool) {
	s.finder.read(func(terms *termIndex, _ bool) {
		n, held := terms.find(entry.Origin, entry.RID)
		if !held || !s.finder.readers.of(terms, s.finder.cfg.View, s.query.Reader).slots.Has(n) {
			return
		}

		// The filters are applied to a set of this slot alone, which shows the one that leaves it out.
		var one postings.Bitset
		one.Set(n)

		sieve := s.finder.sieve(s.query, &visibleSet{slots: one, count: 1})
		defer sieve.close()

		for reason := range sieve.excluded {
			why = reason
		}

		l, ok = terms.locate(n), true
		s.nearnessOf(terms, &l)
	})

	return l, why, ok
}
