package discovery

import (
	"context"
	"maps"
	"slices"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
)

// A selection is the work on the answer to one query: it has the indexes searched that
// the reader is answered from, and picks the answer from all that they have rated.
type selection struct {
	finder   *Finder
	query    *Query
	searches []*search // the first is of the finder's own index
	alone    bool      // no other index is searched
	warnings []string

	rated  []*Candidate // by all searches, the best first
	words  map[*Candidate][]uint64
	picked ranking
}

// An ownerSet is a set of owners.
type ownerSet map[owner]bool

type owner struct {
	origin spiffeid.TrustDomain
	id     directory.Identity
}

func ownerOf(e *directory.Entry) owner { return owner{e.Origin, e.Owner} }

// Bounds on how often the indexes are asked again without the owners that crowd an
// answer, and from how many candidates on an owner does.
const (
	crowdRounds = 8
	crowdLeast  = 12
)

// Find answers a query. Errors are ctx's, and UnsupportedError.
func (f *Finder) Find(ctx context.Context, query Query) (*Result, error) {
	selection, err := f.newSelection(ctx, &query)
	if err != nil {
		return nil, err
	}
	defer selection.close()

	if err := selection.collect(ctx, ratedFirst+2*query.Request.Limit); err != nil {
		return nil, err
	}

	return selection.result(), nil
}

// newSelection begins the work on a query. It must be closed.
func (f *Finder) newSelection(ctx context.Context, query *Query) (*selection, error) {
	first, err := f.search(ctx, query)
	if err != nil {
		return nil, err
	}

	return &selection{finder: f, query: query, searches: []*search{first}, words: map[*Candidate][]uint64{}}, nil
}

func (s *selection) close() {
	for _, search := range s.searches {
		search.close()
	}
}

func (s *selection) warn(text string) {
	if !slices.Contains(s.warnings, text) {
		s.warnings = append(s.warnings, text)
	}
}

// collect gathers candidates until the answer is full, beginning with the best want
// of each index. Owners of many registrations would hide those of others there: where
// such an owner has more of the answer than its share, or the answer isn't full, the
// indexes are asked once more without it.
func (s *selection) collect(ctx context.Context, want int) error {
	need := s.query.Request.Limit + 1 // one more, to know that there is more
	more := false
	rounds := 0

	without := ownerSet{}
	for {
		want = min(want, ratedMost)

		left, err := s.gather(ctx, want, without)
		if err != nil {
			return err
		}

		// A round without some owners leaves candidates out on purpose, so it doesn't show whether there are more.
		if len(without) == 0 {
			more = left
		}

		s.pick(need)
		full := len(s.picked.all) >= need

		crowds := s.crowds(without)
		switch {
		case left && rounds < crowdRounds && len(crowds) > 0 && (s.picked.beyond || !full):
			rounds++
			maps.Copy(without, crowds)
		case full || !more:
			return nil
		case want == ratedMost:
			s.warn(s.whyShort())
			return nil
		default:
			// With more candidates of each index, other owners may crowd the answer.
			want *= 4
			without = ownerSet{}
		}
	}
}

// gather searches all indexes and sorts the rated candidates. It reports whether there may be
// more.
func (s *selection) gather(ctx context.Context, want int, without ownerSet) (bool, error) {
	more := false
	for i := 0; i < len(s.searches); i++ { //nolint:intrange // searchParts adds searches
		if err := ctx.Err(); err != nil {
			return false, err
		}

		search := s.searches[i]
		left := search.gather(want, without)
		more = more || left

		// The reader's other redactions are known only after the first search.
		if i == 0 && len(s.searches) == 1 {
			if err := s.searchParts(ctx, search.others); err != nil {
				return false, err
			}
		}
	}

	s.arrange()

	return more, nil
}

// arrange sorts the rated candidates of all searches.
func (s *selection) arrange() {
	s.rated = s.rated[:0]
	for _, search := range s.searches {
		s.rated = append(s.rated, search.rated...)
	}

	slices.SortFunc(s.rated, s.searches[0].rater.compare)
}

// searchParts starts the searches of registrations that the reader sees in part.
func (s *selection) searchParts(ctx context.Context, sights []directory.Redaction) error {
	if s.alone {
		return nil
	}

	for _, sight := range sights {
		part := s.finder.as(sight)
		if part == nil {
			s.warn(WarnParts)
			continue
		}

		search, err := part.search(ctx, s.query)
		if err != nil {
			return err
		}

		s.searches = append(s.searches, search)
	}

	return nil
}

// result makes the answer.
func (s *selection) result() *Result {
	r := s.query.Request
	own := s.searches[0]
	page := s.picked.all[:min(len(s.picked.all), r.Limit)]

	res := &Result{
		Candidates:  make([]Candidate, len(page)),
		Applied:     s.query.applied(),
		Unsupported: r.Constraints.Unsupported,
		Excluded:    map[string]int{},
		More:        len(s.picked.all) > r.Limit,
		Semantic:    own.semantic,
	}
	for i, c := range page {
		res.Candidates[i] = s.finished(c)
		if i > 0 && c.Score > page[i-1].Score {
			s.warn(WarnDiversified)
		}
	}

	for _, search := range s.searches {
		for _, text := range search.warnings {
			s.warn(text)
		}

		for why, n := range search.excluded {
			res.Excluded[why] += n
		}
	}

	// WarnRepeated says that there may be more, and this one that there is no more.
	if len(page) < r.Limit && s.picked.copies > 0 && !slices.Contains(s.warnings, WarnRepeated) {
		s.warn(WarnCollapsed)
	}

	res.Warnings = s.warnings

	return res
}

// finished returns a candidate as answers have it.
func (s *selection) finished(candidate *Candidate) Candidate {
	done := *candidate

	done.Freshness = freshness(candidate.Entry, candidate.rater.now)
	if s.query.Request.IncludeEvidence {
		candidate.rater.explain(&done)
	}

	done.rater = nil

	return done
}
