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
	"github.com/roster-mesh/roster/directory/span"
	"github.com/roster-mesh/roster/directory/strictjson"
	ranking "github.com/roster-mesh/roster/discovery"
)

// Query answers POST /discovery/query (xu 5, 6). Queries are not stored (XU-031). An
// anonymous caller gets an answer if policy lets it read, as public discovery endpoints
// give (cui 7); the ranking routes of draft-cui need an identity in any case (AI-039).
func (h *Handler) Query(w http.ResponseWriter, call *request.Call) error {
	response.NoStore(w)

	ask, err := span.Get(call.Context(), span.Parse, func() (*ranking.Request, error) { return parseQuery(w, call) })
	if err != nil {
		return err
	}

	result, err := h.find(call, ask)
	if err != nil {
		return err
	}

	explanation, err := h.explain(call, ask)
	if err != nil {
		return err
	}

	return span.Do(call.Context(), span.Render, func(step span.Span) error {
		step.Items(len(result.Candidates))
		return response.Answer(w, call, "application/json", h.appendResponse(nil, call, ask, result, explanation))
	})
}

// parseQuery reads the body of a query.
func parseQuery(w http.ResponseWriter, call *request.Call) (*ranking.Request, error) {
	body, err := request.ReadBody(w, call)
	if err != nil {
		return nil, err
	}

	return ranking.ParseRequest(body)
}

// find answers a request with candidates that the caller may see.
func (h *Handler) find(c *request.Call, ask *ranking.Request) (*ranking.Result, error) {
	ask.Strict = ask.Strict || h.Strict
	result, err := h.Reader.Guard.Rank(c, h.Finder.Find, h.Reader.Guard.Question(c, ask))

	if unsupported, ok := errors.AsType[*ranking.UnsupportedError](err); ok {
		names := strictjson.AppendStrings(nil, unsupported.Names)

		return nil, &problem.Refusal{
			Err:     directory.Refuse(problem.UnsupportedFilter, "%v", unsupported),
			Members: []strictjson.Member{{Name: "unsupported_filters", Value: names}},
		}
	}

	return result, err
}

// appendResponse appends a Discovery Response (xu 6.1).
func (h *Handler) appendResponse(
	data []byte, call *request.Call, ask *ranking.Request, result *ranking.Result, explanation *Explanation,
) []byte {
	opt := view.Options{Registrant: !call.Anonymous()}
	data = strictjson.AppendText(append(data, '{'), "level", levelD2)
	data = strictjson.AppendText(data, "request_id", call.RequestID)
	data = response.AppendTime(data, "generated_at", time.Now().UnixMilli())

	data = append(strictjson.AppendRaw(data, "applied_filters", nil), '{')
	for _, name := range slices.Sorted(maps.Keys(result.Applied)) {
		data = strictjson.AppendRaw(data, name, result.Applied[name])
	}

	data = append(data, '}')

	data = strictjson.AppendStrings(strictjson.AppendRaw(data, "unsupported_filters", nil), result.Unsupported)
	data = strictjson.AppendStrings(strictjson.AppendRaw(data, "warnings", nil), h.warnings(result))

	data = strictjson.AppendList(strictjson.AppendRaw(data, "candidates", nil), result.Candidates,
		func(b []byte, x ranking.Candidate) []byte {
			x.Entry = h.Reader.Guard.Mark(call, x.Entry)
			return h.Reader.Render.AppendCandidate(b, &x, ask, opt)
		})
	if result.Semantic != nil {
		data = strictjson.AppendRaw(data, "semantic", response.Encode(result.Semantic))
	}

	if explanation != nil {
		data = strictjson.AppendRaw(data, "explanation", response.Encode(explanation))
	}

	return append(data, '}', '\n')
}

// warnings are the result's, and those about its registrations: members are withheld of
// some (XU-020), or a language of some is invalid (XU-041).
func (h *Handler) warnings(result *ranking.Result) []string {
	all := slices.Clone(result.Warnings)
	for i := range result.Candidates {
		entry := result.Candidates[i].Entry
		if entry.Redacted {
			all = response.Union(all, []string{"fields withheld by " + h.withholder(entry).Name()})
		}

		if at := kinds.IgnoredLanguage(entry.Document); at != "" {
			all = append(all, at+" of "+view.PublicID(entry)+" is no language tag (BCP 47) and is ignored")
		}
	}

	return all
}

// withholder is the domain whose policy redacted e: its origin's if this node doesn't
// have all of it either.
func (h *Handler) withholder(entry *directory.Entry) spiffeid.TrustDomain {
	if held, ok := h.Reader.View.Get(entry.Origin, entry.RID); ok && !held.Redacted {
		return h.Domain
	}

	return entry.Origin
}
