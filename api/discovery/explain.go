package discovery

import (
	"errors"
	"strings"

	"github.com/roster-mesh/roster/api/registration"
	"github.com/roster-mesh/roster/api/request"
	"github.com/roster-mesh/roster/api/view"
	"github.com/roster-mesh/roster/directory"
	ranking "github.com/roster-mesh/roster/discovery"
)

// An Explanation is the result of one registration in a query: the member explanation of
// a response to a request with explain, which this directory adds to the draft (XU-045).
type Explanation struct {
	ID   string `json:"id"`
	Href string `json:"href"`
	// Why is found, behind, no_match, flagged, duplicate, per_owner, or a filter's name.
	Why             string                   `json:"why"`
	Rank            int                      `json:"rank"` // from 1; 0 if it has none
	Score           float64                  `json:"score"`
	Needed          float64                  `json:"needed_score"` // to be in the answer; 0 if the answer isn't full
	Components      ranking.Components       `json:"score_components"`
	MatchedTags     []string                 `json:"matched_tags"`
	MatchedExamples []ranking.MatchedExample `json:"matched_examples"`
	Evidence        ranking.Evidence         `json:"evidence"`
	// Excluded is how many registrations each filter excluded, of those that the caller may
	// see.
	Excluded map[string]int `json:"excluded"`
}

// explain answers a request's member explain; nil if it has none. A registration that the
// caller may not see doesn't exist for it.
func (h *Handler) explain(call *request.Call, ask *ranking.Request) (*Explanation, error) {
	if ask.Explain == "" {
		return nil, nil
	}

	entry, err := h.named(call, ask.Explain)
	if err != nil {
		return nil, err
	}

	explanation, err := h.Finder.Explain(call.Context(), h.Reader.Guard.Question(call, ask), entry)
	if errors.Is(err, ranking.ErrUnknown) {
		return nil, registration.NotFoundID(ask.Explain)
	}

	if err != nil {
		return nil, err
	}

	candidate := &explanation.Candidate

	return &Explanation{
		ID:              view.PublicID(entry),
		Href:            h.Reader.Render.Href(entry),
		Why:             explanation.Why,
		Rank:            explanation.Rank,
		Score:           candidate.Score,
		Needed:          explanation.Needed,
		Components:      candidate.Components,
		MatchedTags:     append([]string{}, candidate.MatchedTags...),
		MatchedExamples: candidate.MatchedExamples,
		Evidence:        *candidate.Evidence,
		Excluded:        explanation.Excluded,
	}, nil
}

// named returns the one registration that explain names: a rid, a name, or ORIGIN/RID.
func (h *Handler) named(c *request.Call, id string) (*directory.Entry, error) {
	seen := func(e *directory.Entry) bool { return h.Reader.Guard.MayRead(c, e) }

	readable := h.Reader.Named(registration.Name{ID: id}, seen)
	if origin, rid, ok := strings.Cut(id, "/"); ok && origin != "" && len(readable) == 0 {
		readable = h.Reader.Named(registration.Name{Origin: origin, ID: rid}, seen)
	}

	switch len(readable) {
	case 0:
		return nil, registration.NotFoundID(id)
	case 1:
		return readable[0], nil
	}

	return nil, directory.Refuse(directory.BadRequest,
		"several domains have a registration %.100q. Name one of them as ORIGIN/RID", id).At("/explain")
}
