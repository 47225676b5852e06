package discovery

import (
	"errors"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/api/request"
	"github.com/roster-mesh/roster/api/response"
	"github.com/roster-mesh/roster/api/view"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/kinds"
	"github.com/roster-mesh/roster/directory/problem"
	"github.com/roster-mesh/roster/directory/strictjson"
	ranking "github.com/roster-mesh/roster/discovery"
)

// Query answers POST /discovery/query (xu 5, 6). Queries are not stored (XU-031). An
// anonymous caller gets an answer if policy lets it read, as public discovery endpoints
// give (cui 7); the ranking routes of draft-cui need an identity in any case (AI-039).
func (h *Handler) Query(w http.ResponseWriter, c *request.Call) error {
	response.NoStore(w)
	body, err := request.ReadBody(w, c)
	if err != nil {
		return err
	}
	ask, err := ranking.ParseRequest(body)
	if err != nil {
		return err
	}

	result, err := h.find(c, ask)
	if err != nil {
		return err
	}
	explanation, err := h.explain(c, ask)
	if err != nil {
		return err
	}

	return response.Answer(w, c, "application/json", h.appendResponse(nil, c, ask, result, explanation))
}

// find answers a request with candidates that the caller may see.
func (h *Handler) find(c *request.Call, ask *ranking.Request) (*ranking.Result, error) {
	ask.Strict = ask.Strict || h.Strict
	result, err := h.Finder.Find(c.Context(), h.Reader.Guard.Question(c, ask))

	var unsupported *ranking.UnsupportedError
	if errors.As(err, &unsupported) {
		names := response.AppendStrings(nil, unsupported.Names)
		return nil, &problem.Refusal{
			Err:     directory.Refuse(problem.UnsupportedFilter, "%v", unsupported),
			Members: []strictjson.Member{{Name: "unsupported_filters", Value: names}},
		}
	}

	return result, err
}

// appendResponse appends a Discovery Response (xu 6.1).
func (h *Handler) appendResponse(
	b []byte, c *request.Call, ask *ranking.Request, result *ranking.Result, explanation *Explanation,
) []byte {
	opt := view.Options{Registrant: !c.Anonymous()}
	b = strictjson.AppendText(append(b, '{'), "level", levelD2)
	b = strictjson.AppendText(b, "request_id", c.RequestID)
	b = response.AppendTime(b, "generated_at", time.Now().UnixMilli())

	b = append(strictjson.AppendRaw(b, "applied_filters", nil), '{')
	for _, name := range slices.Sorted(maps.Keys(result.Applied)) {
		b = strictjson.AppendRaw(b, name, result.Applied[name])
	}
	b = append(b, '}')

	b = response.AppendStrings(strictjson.AppendRaw(b, "unsupported_filters", nil), result.Unsupported)
	b = response.AppendStrings(strictjson.AppendRaw(b, "warnings", nil), h.warnings(result))
	b = response.AppendList(strictjson.AppendRaw(b, "candidates", nil), result.Candidates,
		func(b []byte, x ranking.Candidate) []byte { return h.Reader.Render.AppendCandidate(b, &x, ask, opt) })
	if result.Semantic != nil {
		b = strictjson.AppendRaw(b, "semantic", response.Encode(result.Semantic))
	}
	if explanation != nil {
		b = strictjson.AppendRaw(b, "explanation", response.Encode(explanation))
	}

	return append(b, '}', '\n')
}

// warnings are the result's, and those about its registrations: members are withheld of
// some (XU-020), or a language of some is invalid (XU-041).
func (h *Handler) warnings(result *ranking.Result) []string {
	all := slices.Clone(result.Warnings)
	for i := range result.Candidates {
		e := result.Candidates[i].Entry
		if e.Redacted {
			all = response.Union(all, []string{"fields withheld by " + h.withholder(e).Name()})
		}
		if at := kinds.IgnoredLanguage(e.Document); at != "" {
			all = append(all, at+" of "+view.PublicID(e)+" is no language tag (BCP 47) and is ignored")
		}
	}

	return all
}

// withholder is the domain whose policy redacted e: its origin's if this node doesn't
// have all of it either.
func (h *Handler) withholder(e *directory.Entry) spiffeid.TrustDomain {
	if held, ok := h.Reader.View.Get(e.Origin, e.RID); ok && !held.Redacted {
		return h.Domain
	}

	return e.Origin
}
