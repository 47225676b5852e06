package api

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/index"
	"github.com/roster-mesh/roster/discovery"
)

// A search is the body of POST /agents/search (cui 4.3).
type search struct {
	query  string // "" where nothing is to be ranked
	need   index.Requirements
	status []string // nil for any
	origin spiffeid.TrustDomain
	owner  directory.Identity
	plain  bool // the order of scores alone
	top    int
}

// searchAgents answers POST /agents/search: filters alone, in the order of
// lookups, or with a query, the best first.
func (s *Server) searchAgents(w http.ResponseWriter, c *call) error {
	body, err := readBody(w, c)
	if err != nil {
		return err
	}
	ask, err := parseSearch(body)
	if err != nil {
		return err
	}
	w.Header().Set("Cache-Control", "no-store")
	l := look{registrant: !c.id.IsZero()}
	if ask.query == "" || s.cfg.Finder == nil { // "simply ignore the query text" (cui 4.3)
		q := index.Query{Requirements: ask.need, Status: ask.status, Origin: ask.origin, Count: ask.top}
		page, err := s.lookUp(c, Queries, q, ask.show(s.showTo(c)))
		if err != nil {
			return err
		}
		return answer(w, c, "application/json", s.summaries(page.Entries, l, len(ask.need.Languages) > 0))
	}
	if c.id.IsZero() {
		return s.challenge("To have agents ranked is not for everybody. ", nil) // AI-039
	}
	result, err := s.cfg.Finder.Find(c.Context(), ask.ranking(s, c))
	if err != nil {
		return err
	}
	tellWarnings(w, result.Warnings)
	b := list(make([]byte, 0, 16+itemSize*len(result.Candidates)), result.Candidates, func(b []byte, x discovery.Candidate) []byte {
		return s.appendSummary(b, x.Entry, l, hit{score: x.Score, ranked: true, language: len(ask.need.Languages) > 0})
	})
	return answer(w, c, "application/json", append(b, '\n'))
}

func parseSearch(body []byte) (ask search, err error) {
	f, err := parseForm(body)
	if err != nil {
		return ask, err
	}
	ask.query, ask.top = parseQuestion(f, "query"), parseTop(f)
	ask.plain = !f.flagOr("diversity", true)
	in := f.object("filters")
	ask.need = index.Requirements{Capabilities: in.texts("capabilities"), Tags: in.texts("tags"), Languages: parseLanguages(in)}
	if status := in.text("status"); status != "" {
		ask.status = []string{status}
	}
	ask.status = statusesOf(ask.status)
	if origin := in.text("origin"); origin != "" {
		if ask.origin, err = spiffeid.TrustDomainFromString(origin); err != nil || ask.origin.Name() != origin {
			in.refuse("origin", "origin is %.100q, which is not a domain", origin)
		}
	}
	if owner := in.text("owner"); owner != "" {
		if ask.owner, err = directory.ParseIdentity(owner); err != nil {
			in.refuse("owner", "owner is %.100q, which is not an identity such as spiffe://DOMAIN/PATH", owner)
		}
	}
	if unknown := in.unknown(); len(unknown) > 0 {
		in.refuse(unknown[0], "there is no filter %.100q; the filters are capabilities, tags, supported_languages, status, origin and owner", unknown[0])
	}
	f.misplaced(in)
	return ask, f.err()
}

// show narrows down what is shown to the owner that is asked for. Who isn't told who
// owns an agent doesn't find it so.
func (ask *search) show(show index.Viewer) index.Viewer {
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

// tellWarnings tells of a ranked answer that is a bare array what others have in their
// member warnings: Roster-Warnings is a list of strings (RFC 9651).
func tellWarnings(w http.ResponseWriter, warnings []string) {
	if len(warnings) == 0 {
		return
	}
	quoted := make([]string, len(warnings))
	for i, text := range warnings {
		quoted[i] = strconv.Quote(text)
	}
	w.Header().Set("Roster-Warnings", strings.Join(quoted, ", "))
}

// parseQuestion reads what is asked for in words.
func parseQuestion(f form, name string) string {
	text := strings.TrimSpace(f.text(name))
	if len(text) > discovery.MaxQuery {
		f.refuse(name, "%s has %d bytes; at most %d are allowed", name, len(text), discovery.MaxQuery)
	}
	return text
}

// parseTop reads how many results are wanted at most (AI-030).
func parseTop(f form) int {
	return int(min(f.number("top", 1, discovery.DefaultLimit), discovery.MaxLimit))
}

// parseLanguages reads the languages by any of the names that the draft has for
// them (AI-005).
func parseLanguages(f form) (all []string) {
	for _, name := range []string{"supported_languages", "supported_language", "language"} {
		all = union(all, f.texts(name))
	}
	return all
}

// ranking is the search as the finder does it: the tags narrow down what is
// looked at, and the need decides.
func (ask *search) ranking(s *Server, c *call) discovery.Query {
	request := &discovery.Request{
		Query: ask.query, Limit: ask.top, Detail: discovery.DetailSummary, Constraints: discovery.Constraints{MaxAge: -1},
		RequiredTags: asTags(union(ask.need.Capabilities, ask.need.Tags)), Plain: ask.plain,
	}
	if !ask.owner.IsZero() {
		request.Constraints.Owners = []string{ask.owner.String()}
	}
	if !ask.origin.IsZero() {
		request.Constraints.Origins = []string{ask.origin.Name()}
	}
	q := s.question(c, request)
	q.AnyStatus = !slices.Equal(ask.status, statusesOf(nil))
	q.Where = func(e *directory.Entry) string {
		if ask.status != nil && !slices.Contains(ask.status, projection(e).Status) {
			return "status"
		}
		return ask.need.Unmet(e)
	}
	return q
}

// asTags returns those texts that can be tags of a request.
func asTags(texts []string) []string {
	return slices.DeleteFunc(slices.Clone(texts), func(t string) bool {
		return len(t) > directory.MaxTag || discovery.NormalTag(t) == ""
	})
}
