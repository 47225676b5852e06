package api

import (
	"errors"
	"slices"
	"strings"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/discovery"
)

// Evidence says why a candidate is one (draft-xu 8).
type Evidence = discovery.Evidence

// An Explanation says what became of one registration in a query, the member
// explanation of a response to a request with explain (ours, XU-045).
type Explanation struct {
	ID              string                     `json:"id"`
	Href            string                     `json:"href"`
	Why             string                     `json:"why"`  // found, behind, no_match, flagged, duplicate, per_owner, or a filter's name
	Rank            int                        `json:"rank"` // from 1 on; 0 where it has none
	Score           float64                    `json:"score"`
	Needed          float64                    `json:"needed_score"` // by a full answer; 0 where there is room
	Components      discovery.Components       `json:"score_components"`
	MatchedTags     []string                   `json:"matched_tags"`
	MatchedExamples []discovery.MatchedExample `json:"matched_examples"`
	Evidence        Evidence                   `json:"evidence"`
	Excluded        map[string]int             `json:"excluded"` // how many each filter left out, of those that the caller may see
}

// explain answers a request's member explain; nil where it has none. What the
// caller may not see is not there.
func (s *Server) explain(c *call, r *discovery.Request) (*Explanation, error) {
	if r.Explain == "" {
		return nil, nil
	}
	e, err := s.meant(c, r.Explain)
	if err != nil {
		return nil, err
	}
	x, err := s.cfg.Finder.Explain(c.Context(), s.question(c, r), e)
	if errors.Is(err, discovery.ErrUnknown) {
		return nil, notFoundAs(r.Explain)
	}
	if err != nil {
		return nil, err
	}
	d := &x.Candidate
	return &Explanation{
		publicID(e), s.href(e), x.Why, x.Rank, d.Score, x.Needed, d.Components, append([]string{}, d.MatchedTags...), d.MatchedExamples, *d.Evidence, x.Excluded,
	}, nil
}

// meant returns the one registration that explain names: a rid, a name, or
// ORIGIN/RID.
func (s *Server) meant(c *call, id string) (*directory.Entry, error) {
	seen := func(e *directory.Entry) bool { return s.mayRead(c, e) }
	readable := s.cfg.View.FindVisible(id, seen)
	if origin, rid, ok := strings.Cut(id, "/"); ok && len(readable) == 0 {
		readable = slices.DeleteFunc(s.mirrored(origin, rid), func(e *directory.Entry) bool { return !seen(e) })
	}
	switch len(readable) {
	case 0:
		return nil, notFoundAs(id)
	case 1:
		return readable[0], nil
	}
	return nil, directory.Refuse(directory.BadRequest, "Several domains have a registration %.100q: give ORIGIN/RID.", id).At("/explain")
}
