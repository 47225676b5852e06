package agents

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/api/admission"
	"github.com/roster-mesh/roster/api/request"
	"github.com/roster-mesh/roster/api/response"
	"github.com/roster-mesh/roster/api/view"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/index"
	"github.com/roster-mesh/roster/directory/span"
	"github.com/roster-mesh/roster/directory/strictjson"
	"github.com/roster-mesh/roster/discovery"
	"github.com/roster-mesh/roster/discovery/content"
)

// A search is the body of POST /agents/search (cui 4.3).
type search struct {
	query  string // "" if there is nothing to rank by
	need   index.Requirements
	status []string // nil for any
	origin spiffeid.TrustDomain
	owner  directory.Identity
	plain  bool // in the order of scores, without diversity
	top    int
}

// Search answers POST /agents/search: without a query, the agents that meet the filters,
// in the order of lookups; with one, the best first.
func (h *Handler) Search(w http.ResponseWriter, call *request.Call) error {
	ask, err := span.Get(call.Context(), span.Parse, func() (search, error) { return readSearch(w, call) })
	if err != nil {
		return err
	}

	response.NoStore(w)
	opt := view.Options{Registrant: !call.Anonymous()}
	language := len(ask.need.Languages) > 0

	if ask.query == "" || h.Finder == nil { // "simply ignore the query text" (cui 4.3)
		query := index.Query{Requirements: ask.need, Status: ask.status, Origin: ask.origin, Count: ask.top}

		page, err := h.Reader.Lookup(call, admission.Queries, query, ask.ofOwner(h.Reader.Guard.Viewer(call)))
		if err != nil {
			return err
		}

		return span.Do(call.Context(), span.Render, func(step span.Span) error {
			step.Items(len(page.Entries))
			return response.Answer(w, call, "application/json", h.summaries(page.Entries, opt, language))
		})
	}

	if call.Anonymous() {
		return h.Reader.Guard.Unauthenticated("Anonymous callers can't rank agents.", nil) // AI-039
	}

	result, err := h.Reader.Guard.Rank(call, h.Finder.Find, h.ranking(call, &ask))
	if err != nil {
		return err
	}

	return span.Do(call.Context(), span.Render, func(step span.Span) error {
		step.Items(len(result.Candidates))
		setWarnings(w, result.Warnings)

		data := make([]byte, 0, 16+view.ItemSize*len(result.Candidates))
		data = strictjson.AppendList(data, result.Candidates, func(b []byte, x discovery.Candidate) []byte {
			match := view.Match{Score: x.Score, Ranked: true, Language: language}
			return h.Reader.Render.AppendSummary(b, h.Reader.Guard.Mark(call, x.Entry), opt, match)
		})

		return response.Answer(w, call, "application/json", append(data, '\n'))
	})
}

// readSearch reads and parses the body of a search.
func readSearch(w http.ResponseWriter, call *request.Call) (search, error) {
	body, err := request.ReadBody(w, call)
	if err != nil {
		return search{}, err
	}

	return parseSearch(body)
}

func parseSearch(body []byte) (ask search, err error) {
	form, err := parseForm(body)
	if err != nil {
		return ask, err
	}

	ask.query = parseQuestion(form, "query")
	ask.top = parseTop(form)
	ask.plain = !form.flag("diversity", true)

	filters := form.object("filters")

	ask.need = index.Requirements{
		Capabilities: filters.texts("capabilities"), Tags: filters.texts("tags"), Languages: parseLanguages(filters),
	}
	if status := filters.text("status"); status != "" {
		ask.status = []string{status}
	}

	ask.status = statuses(ask.status)
	if origin := filters.text("origin"); origin != "" {
		if ask.origin, err = spiffeid.TrustDomainFromString(origin); err != nil || ask.origin.Name() != origin {
			filters.refuse("origin", "origin must be a trust domain, got %.100q.", origin)
		}
	}

	if owner := filters.text("owner"); owner != "" {
		if ask.owner, err = directory.ParseIdentity(owner); err != nil {
			filters.refuse("owner", "owner must be an identity such as spiffe://DOMAIN/PATH, got %.100q.", owner)
		}
	}

	if unknown := filters.unknown(); len(unknown) > 0 {
		filters.refuse(unknown[0], "There is no filter %.100q. The filters are capabilities, tags, "+
			"supported_languages, status, origin and owner.", unknown[0])
	}

	form.refuseMisplaced(filters)

	return ask, form.err()
}

// ofOwner shows only agents of the owner that is asked for. A caller who may not see
// the owner of an agent doesn't find it so.
func (ask *search) ofOwner(show index.Viewer) index.Viewer {
	if ask.owner.IsZero() {
		return show
	}

	return func(e *directory.Entry) *directory.Entry {
		if shown := show(e); shown != nil && shown.Owner == ask.owner {
			return shown
		}

		return nil
	}
}

// setWarnings puts the warnings of a ranked answer that is a bare array into
// Roster-Warnings, a list of strings (RFC 9651). Other answers have a member warnings.
func setWarnings(w http.ResponseWriter, warnings []string) {
	if len(warnings) == 0 {
		return
	}

	quoted := make([]string, len(warnings))
	for i, text := range warnings {
		quoted[i] = strconv.Quote(text)
	}

	w.Header().Set("Roster-Warnings", strings.Join(quoted, ", "))
}

// parseQuestion reads a text to rank by.
func parseQuestion(form form, name string) string {
	text := strings.TrimSpace(form.text(name))
	if len(text) > discovery.MaxQuery {
		form.refuse(name, "%s has %d bytes; at most %d are allowed.", name, len(text), discovery.MaxQuery)
	}

	return text
}

// parseTop reads the most results that are wanted (AI-030).
func parseTop(f form) int {
	return int(min(f.number("top", 1, discovery.DefaultLimit), discovery.MaxLimit))
}

// parseLanguages reads the languages by any of the names that the draft has for them
// (AI-005).
func parseLanguages(f form) (all []string) {
	for _, name := range []string{"supported_languages", "supported_language", "language"} {
		all = response.Union(all, f.texts(name))
	}

	return all
}

// ranking is the search as a ranked query: tags narrow down the candidates, and the need
// decides.
func (h *Handler) ranking(call *request.Call, ask *search) discovery.Query {
	ranked := &discovery.Request{
		Query:        ask.query,
		Limit:        ask.top,
		Detail:       discovery.DetailSummary,
		Constraints:  discovery.Constraints{MaxAge: -1},
		RequiredTags: asTags(response.Union(ask.need.Capabilities, ask.need.Tags)),
		Plain:        ask.plain,
	}
	if !ask.owner.IsZero() {
		ranked.Constraints.Owners = []string{ask.owner.String()}
	}

	if !ask.origin.IsZero() {
		ranked.Constraints.Origins = []string{ask.origin.Name()}
	}

	query := h.Reader.Guard.Question(call, ranked)
	query.AnyStatus = !slices.Equal(ask.status, statuses(nil))
	query.Where = func(entry *directory.Entry) string {
		if ask.status != nil && !slices.Contains(ask.status, view.Projection(entry).Status) {
			return "status"
		}

		return ask.need.Unmet(entry)
	}

	return query
}

// asTags returns those texts that can be tags of a request.
func asTags(texts []string) []string {
	return slices.DeleteFunc(slices.Clone(texts), func(text string) bool {
		return len(text) > directory.MaxTag || content.NormalTag(text) == ""
	})
}
