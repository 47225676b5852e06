package discovery

import (
	"context"
	"slices"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/kinds"
	"github.com/roster-mesh/roster/discovery/analysis"
	"github.com/roster-mesh/roster/discovery/content"
	"github.com/roster-mesh/roster/discovery/postings"
)

// Bounds on the candidates that are rated (xu 7.2).
const (
	ratedFirst = 24   // and two for each that is asked for
	ratedMost  = 2048 // where filters leave too few
)

// A search is the work on one query in one index.
type search struct {
	finder *Finder
	query  *Query
	rater  *rater

	excluded map[string]int
	warnings []string
	others   []directory.Redaction // redactions of the reader that this search doesn't cover
	rated    []*Candidate
	semantic *Semantic   // nil without a source
	meant    queryVector // zero if the source is away
	// spaceMean is how near the query are, on average, those that the filters leave.
	spaceMean float64

	known map[candidateKey]bool
}

type candidateKey struct {
	origin string
	rid    directory.RID
}

// search begins the work on a query. It must be closed.
func (f *Finder) search(ctx context.Context, query *Query) (*search, error) {
	if r := query.Request; r.Strict && len(r.Constraints.Unsupported) > 0 {
		return nil, &UnsupportedError{r.Constraints.Unsupported}
	}

	if err := f.refresh(ctx); err != nil {
		return nil, err
	}

	s := &search{finder: f, query: query, known: map[candidateKey]bool{}}
	if err := s.embedOutside(ctx); err != nil {
		return nil, err
	}

	a := f.analysers.Get().(*content.Reader)
	s.rater = f.newRater(a, query, analysis.NewQuestion(a.Analyser, query.Request.Query), time.Now())

	return s, nil
}

func (s *search) close() { s.finder.analysers.Put(s.rater.analyser) }

func (s *search) warn(text string) {
	if !slices.Contains(s.warnings, text) {
		s.warnings = append(s.warnings, text)
	}
}

// gather rates the best candidates that the index knows, except those of some
// owners, at most want, and reports whether there may be more.
func (s *search) gather(want int, without ownerSet) bool {
	keys, more := s.find(want, without)
	for _, k := range keys {
		// Later rounds, which leave owners out, find the same candidates again.
		if s.known[k.key] {
			continue
		}

		s.known[k.key] = true

		entry, ok := s.finder.cfg.View.Get(k.origin, k.key.rid)
		if !ok {
			continue // it has expired or was removed since
		}

		v := kinds.Redact(entry, s.finder.cfg.redaction)
		if v.Packed.IsZero() {
			continue
		}

		projection := &s.rater.analyser.Projection
		v.Unpack(projection)

		if why := s.finder.late(s.query, entry, projection.Status, s.rater.now); why != "" {
			// A count of hidden registrations would disclose them.
			if why != hidden {
				s.excluded[why]++
			}

			continue
		}

		c := s.rater.rate(v, projection, k)
		c.owner = ownerOf(entry)

		// The next candidate is unpacked into the same projection.
		c.projection = nil
		c.rater = s.rater
		s.rated = append(s.rated, c)
	}

	s.fuse()

	return more
}

// A indexed is a candidate that the index knows of.
type indexed struct {
	slot   uint32
	origin spiffeid.TrustDomain
	key    candidateKey

	lengths content.Lengths
	flags   content.Flags

	near     float64 // as Candidate
	compared bool
}

// find asks the index for the best want candidates by their words, and for those
// that have requested tags, except those of some owners. more says that
// there are others.
func (s *search) find(want int, without ownerSet) (found []indexed, more bool) {
	s.finder.read(func(terms *termIndex, whole bool) {
		if !whole {
			s.warn(WarnPartial)
		}

		found, more = s.findIn(terms, want, without)
	})

	return found, more
}

func (s *search) findIn(terms *termIndex, want int, without ownerSet) (found []indexed, more bool) {
	if terms.left > 0 {
		s.warn(WarnFull)
	}

	seen := s.finder.readers.of(terms, s.finder.cfg.View, s.query.Reader)
	s.others = seen.redactions()
	sieve := s.finder.sieve(s.query, seen)
	defer sieve.close()

	// The filters are the same in each round, so the counts of the first round stay.
	if s.excluded == nil {
		s.excluded = sieve.excluded
	}

	sieve.withoutOwners(terms, without)

	leads := weighQuestion(s.rater.question, terms, seen)
	had := map[uint32]bool{}

	worded := terms.gather(leads, sieve.ok, want)
	for _, hits := range [][]postings.Hit{worded, s.tagged(terms, seen, sieve.ok, want, len(worded) < want),
		s.dense(terms, sieve.ok, want)} {
		more = more || len(hits) == want
		for _, hit := range hits {
			if !had[hit.Slot] {
				had[hit.Slot] = true
				found = append(found, terms.locate(hit.Slot))
			}
		}
	}

	for i := range found {
		s.nearnessOf(terms, &found[i])
	}

	return found, more
}

// locate returns the index's data of the registration in a slot.
func (x *termIndex) locate(n uint32) indexed {
	slot := x.slots.At(n)
	origin := x.origins[slot.origin]

	l := indexed{slot: n, origin: origin, key: candidateKey{origin.Name(), slot.rid}, flags: slot.flags}
	for f, c := range slot.lengths {
		l.lengths[f] = c.Words()
	}

	return l
}

// tagged returns those of ok that have most of the requested tags: a registration with a
// preferred tag is a candidate even if it has no word of the query. Required tags don't
// distinguish within ok, because all have them: they count if words find few.
func (s *search) tagged(x *termIndex, seen *visibleSet, ok postings.Bitset, most int, few bool) []postings.Hit {
	var leads []postings.Lead
	for _, w := range s.rater.wanted {
		if !w.preferred && !few {
			continue
		}

		terms := []string{content.MarkTag + w.asked}
		for _, n := range w.narrower {
			terms = append(terms, content.MarkTag+n.Tag)
		}

		for _, t := range terms {
			if l, found := x.lead(x.hash(t), seen.slots, true, seen.count); found {
				// Candidates are gathered by the number of tags; the rater weighs them.
				l.IDF, l.Max = 1, postings.MaxWeight
				leads = append(leads, l)
			}
		}
	}

	if len(leads) == 0 {
		return nil
	}

	return x.gather(leads, ok, most)
}
