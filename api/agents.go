package api

import (
	"net/http"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"golang.org/x/text/unicode/norm"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/index"
	"github.com/roster-mesh/roster/directory/strictjson"
)

// The AIDIP registry (draft-cui-ai-agent-discovery-invocation, 4): the same
// registrations, by the ids and in the shape of that draft.

// publishedFor is how many seconds a registration holds that says nothing of it,
// on surfaces whose drafts know no refresh (http.md).
const publishedFor = 604800

func (s *Server) agentSurface() surface { return surface{agentHref, s.appendAgent} }

// agent answers GET /agents/{id}.
func (s *Server) agent(w http.ResponseWriter, c *call) error { return s.show(w, c, s.agentSurface()) }

// publishAgent answers POST /agents (cui 4.2).
func (s *Server) publishAgent(w http.ResponseWriter, c *call) error {
	ask, err := s.parsePublishing(w, c)
	if err != nil {
		return err
	}
	ask.Agent, ask.Present = s.givenID(c, ask)
	out, err := s.upsert(c, ask)
	if err != nil {
		return err
	}
	return s.stored(w, c, s.agentSurface(), out)
}

func (s *Server) parsePublishing(w http.ResponseWriter, c *call) (ask directory.Registering, err error) {
	body, err := readBody(w, c)
	if err != nil {
		return ask, err
	}
	if ask, err = s.asking(c, publishedFor); err != nil {
		return ask, err
	}
	ask.Document, err = directory.ParseDocument(directory.KindAIDIP, body)
	return ask, err
}

// givenID returns the id that a document gives itself; "" where that is left to
// the directory, or is no good, which is for the document's judge to say. A rid is
// an id of the registration that has it by that name, and of no other: then there
// must be one (AI-021; spec/views.md, 2).
func (s *Server) givenID(c *call, ask directory.Registering) (id string, present bool) {
	if given, ok := strictjson.FindMember(ask.Document.Members(), "id"); ok && json.Unmarshal(given, &id) != nil {
		return "", ask.Present
	}
	if rid, err := directory.ParseRID(id); err == nil {
		if e, ok := s.cfg.View.Get(s.cfg.Domain, rid); ok && e.Agent == id && s.mayWrite(c, e) {
			return id, true
		}
	}
	id, err := directory.ParseName(id)
	if err != nil {
		return "", ask.Present
	}
	return id, ask.Present
}

// replaceAgent answers PUT /agents/{id}: the whole of an agent's metadata anew,
// and never an agent that there was not (AI-027).
func (s *Server) replaceAgent(w http.ResponseWriter, c *call) error {
	ask, err := s.parsePublishing(w, c)
	if err != nil {
		return err
	}
	e, err := s.replacing(c)
	switch {
	case err != nil:
		return err
	case e == nil:
		return notFound(c)
	}
	unconditional := !ask.Present && !ask.Absent && ask.IfMatch == nil
	ask.Agent, ask.Present = e.Agent, true
	out, err := s.upsert(c, ask)
	if unconditional && directory.ProblemOf(err) == directory.PreconditionFailed {
		return notFound(c) // it has ended since
	}
	if err != nil {
		return err
	}
	return s.stored(w, c, s.agentSurface(), out)
}

// agentParams are the parameters that GET /agents knows, the draft's own first.
var agentParams = []string{
	"capabilities", "tags", "language", "page", "count", "origin", "scope", "status", "after", "brief", "consistency",
}

// agents answers GET /agents (cui 4.3).
func (s *Server) agents(w http.ResponseWriter, c *call) error {
	values, err := c.params.decode(agentParams)
	if err != nil {
		return err
	}
	values["status"] = statusesOf(values["status"])
	q, err := index.ParseQuery(values)
	if err != nil {
		return err
	}
	q.Language = nil // means another thing in a lookup
	if q.Requirements, err = parseNeed(values); err != nil {
		return err
	}
	l := look{registrant: !c.id.IsZero()}
	if l.brief, err = parseBrief(values["brief"]); err != nil {
		return err
	}
	page, err := s.lookUp(c, Reads, q, s.showTo(c))
	if err != nil {
		return err
	}
	if page.More {
		w.Header().Set("Link", nextLink("/agents", agentParams, c.params, q.Page, page.Next))
	}
	b := s.summaries(page.Entries, l, len(q.Requirements.Languages) > 0)
	return send(w, c, "application/json", `W/"`+hash8(b)+`"`, b)
}

// summaries is a bare array (AI-029).
func (s *Server) summaries(es []*directory.Entry, l look, language bool) []byte {
	b := list(make([]byte, 0, 16+itemSize*len(es)), es, func(b []byte, e *directory.Entry) []byte {
		return s.appendSummary(b, e, l, hit{language: language})
	})
	return append(b, '\n')
}

// statusesOf are the statuses to look for: active where nothing is said, and
// every one where it is any (AI-023).
func statusesOf(asked []string) []string {
	switch {
	case len(asked) == 0:
		return []string{active}
	case slices.Equal(asked, []string{"any"}):
		return nil
	}
	return asked
}

// parseNeed reads the filters, each of which may be repeated, and may have several
// values with commas between them.
func parseNeed(values map[string][]string) (need index.Requirements, err error) {
	split := func(name string) (all []string) {
		for _, v := range values[name] {
			for text := range strings.SplitSeq(v, ",") {
				if text = strings.TrimSpace(text); text == "" {
					err = directory.Refuse(directory.BadQuery, "%s has an empty value; leave it out if it doesn't matter", name)
				}
				all = append(all, norm.NFC.String(text))
			}
		}
		return all
	}
	need = index.Requirements{Capabilities: split("capabilities"), Tags: split("tags"), Languages: split("language")}
	if n := len(need.Capabilities) + len(need.Tags) + len(need.Languages); n > index.MaxFilters {
		err = directory.Refuse(directory.BadQuery, "there are %d filters; at most %d are allowed", n, index.MaxFilters)
	}
	return need, err
}
