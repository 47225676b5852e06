package discovery

import (
	"context"
	"errors"
	"slices"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/kinds"
	"github.com/roster-mesh/roster/discovery/postings"
)

// What became of a registration in a query: one of these, or the name of the
// filter that has left it out, as in Result.Excluded.
const (
	WhyFound     = "found"     // it is in the answer
	WhyBehind    = "behind"    // others are better, and the limit is reached
	WhyNoMatch   = "no_match"  // nothing that is asked for is in it
	WhyFlagged   = "flagged"   // its texts are written for rankers, and it is no good match
	WhyDuplicate = "duplicate" // says nearly what a better one of its owner says
	WhyPerOwner  = "per_owner" // its owner has its share of the answer, and others that match about as well go before it
)

// An Explanation says what became of one registration in a query, and what of the
// others.
type Explanation struct {
	Candidate Candidate // with evidence, and rated whether it is found or not
	Why       string
	Rank      int // from 1 on; 0 where it is neither found nor behind
	// Needed is the score of the last candidate of an answer that is full; 0 where
	// there is room.
	Needed   float64
	Excluded map[string]int // as in Result
}

// ErrUnknown says that there is no such registration, or that the reader does not
// see it.
var ErrUnknown = errors.New("discovery: no such registration")

// Explain answers why an entry of the view is found by a query, or why not. Its
// errors are Find's, and ErrUnknown. Of an entry that the reader sees a part of, it
// tells how it stands among those of which the reader sees the same.
func (f *Finder) Explain(ctx context.Context, q Query, e *directory.Entry) (*Explanation, error) {
	if q.Reader.Sees != nil {
		sight, ok := q.Reader.Sees(e)
		if ok && sight != f.cfg.sight {
			f = f.as(sight)
		}
		if !ok || f == nil {
			return nil, ErrUnknown
		}
	}
	s, err := f.newSelection(ctx, &q)
	if err != nil {
		return nil, err
	}
	defer s.close()
	s.alone = true
	if err := s.collect(ctx, ratedMost); err != nil {
		return nil, err
	}
	own := s.searches[0]
	c, why, ok := own.look(e)
	if !ok {
		return nil, ErrUnknown
	}
	s.arrange()
	s.pick(len(s.rated))

	x := &Explanation{Why: why, Excluded: own.excluded}
	if why == "" {
		x.Rank = slices.Index(s.picked.all, c) + 1
		x.Why = s.became(c, x.Rank)
	}
	limit := q.Request.Limit
	if len(s.picked.all) >= limit {
		x.Needed = s.picked.all[limit-1].Score
	}
	x.Candidate = *c
	x.Candidate.Freshness = freshness(c.Entry, own.rater.now)
	own.rater.explain(&x.Candidate)
	x.Candidate.rater = nil
	return x, nil
}

// became says what became of a candidate that no filter has left out, of that rank.
func (s *selection) became(c *Candidate, rank int) string {
	limit := s.query.Request.Limit
	switch {
	case rank == 0:
		return s.picked.turned[c]
	case rank <= limit:
		return WhyFound
	}
	worse := func(other *Candidate) bool { return s.searches[0].rater.compare(c, other) < 0 }
	if slices.ContainsFunc(s.picked.all[:limit], worse) {
		return WhyPerOwner
	}
	return WhyBehind
}

// look rates an entry and puts it among those that are rated, unless a filter
// leaves it out or nothing of it matches, which why says. It is false where the
// reader doesn't see it.
func (s *search) look(e *directory.Entry) (c *Candidate, why string, ok bool) {
	l, why, ok := s.sift(e)
	sight := s.finder.cfg.sight
	v := kinds.Redact(e, sight)
	if !s.query.Reader.sees(e, sight) || !ok || v.Packed.IsZero() {
		return nil, "", false
	}
	for _, c := range s.rated {
		if c.Entry.Origin == e.Origin && c.Entry.RID == e.RID {
			return c, "", true
		}
	}
	p := v.Projection()
	c = s.rater.rate(v, p, l)
	c.owner, c.rater = ownerOf(e), s.rater
	s.rater.blend(c)
	if why == "" {
		why = s.finder.late(s.query, e, p.Status, s.rater.now)
	}
	if k := c.Components; why == "" && k.Context == 0 && k.Tag == 0 && len(c.MatchedTags) == 0 {
		why = WhyNoMatch
	}
	if why == "" {
		s.rated = append(s.rated, c)
	}
	return c, why, true
}

// sift returns what the index knows of an entry, and the filter that leaves it
// out.
func (s *search) sift(e *directory.Entry) (l indexed, why string, ok bool) {
	f := s.finder
	f.mu.RLock()
	defer f.mu.RUnlock()
	n, ok := f.index.find(e.Origin, e.RID)
	if !ok || !f.readers.of(f.index, f.cfg.View, s.query.Reader).slots.Has(n) {
		return indexed{}, "", false
	}
	var one postings.Bitset
	one.Set(n)
	sieve := f.sieve(s.query, &visibleSet{slots: one, count: 1})
	for reason := range sieve.excluded {
		why = reason
	}
	sieve.close()
	l = f.index.locate(n)
	s.nearnessOf(f.index, &l)
	return l, why, true
}
