package agents

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"golang.org/x/text/unicode/norm"

	"github.com/roster-mesh/roster/api/admission"
	"github.com/roster-mesh/roster/api/registration"
	"github.com/roster-mesh/roster/api/request"
	"github.com/roster-mesh/roster/api/response"
	"github.com/roster-mesh/roster/api/view"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/index"
	"github.com/roster-mesh/roster/directory/strictjson"
	"github.com/roster-mesh/roster/discovery"
)

// DefaultLifetime is the lifetime in seconds of a registration that asks for none, on
// surfaces whose drafts have no refresh.
const DefaultLifetime = 604800

// A Finder answers ranked queries. Its errors are the context's, and
// *discovery.UnsupportedError.
type Finder interface {
	Find(context.Context, discovery.Query) (*discovery.Result, error)
}

// A Handler answers the routes under /agents, except for invocations.
type Handler struct {
	Domain spiffeid.TrustDomain
	Reader *registration.Reader
	Writer *registration.Writer
	Finder Finder // may be nil
	// Frozen returns the domains whose agents are no candidates of a resolution.
	Frozen func() []spiffeid.TrustDomain
}

// Get returns the handler of GET /agents/{id}.
func (h *Handler) Get() request.Handler { return h.Reader.Show(h.Reader.Render.AIDIP()) }

// Publish answers POST /agents (cui 4.2).
func (h *Handler) Publish(w http.ResponseWriter, call *request.Call) error {
	proposal, err := h.parse(w, call)
	if err != nil {
		return err
	}

	proposal.Agent, proposal.Present = h.givenID(call, proposal)

	outcome, err := h.Writer.Register(call, proposal)
	if err != nil {
		return err
	}

	return h.Writer.Answer(w, call, h.Reader.Render.AIDIP(), outcome)
}

func (h *Handler) parse(w http.ResponseWriter, call *request.Call) (directory.RegisterRequest, error) {
	return h.Writer.Parse(w, call, registration.Form{Lifetime: DefaultLifetime, Read: readDocument})
}

// readDocument reads the document in the body. Its name depends on the method.
func readDocument(_ *request.Call, body []byte, proposal *directory.RegisterRequest) (err error) {
	if proposal.Document, err = directory.ParseDocument(directory.KindAIDIP, body); err != nil {
		return err
	}

	if id, ok := strictjson.TextMember(proposal.Document.Members(), "id"); ok && id == "" {
		return directory.Refuse(directory.BadRequest,
			"id must have 1 to 255 bytes. Leave it out, and the directory makes one").At("/id")
	}

	return nil
}

// givenID returns the id that a document gives itself; "" if the directory is to make
// one, or if the id is invalid, which the document's validation reports. A rid is an id
// of the registration whose name it is, and of no other: then there must be one (AI-021).
func (h *Handler) givenID(call *request.Call, proposal directory.RegisterRequest) (id string, present bool) {
	given, ok := strictjson.FindMember(proposal.Document.Members(), "id")
	if ok && json.Unmarshal(given, &id) != nil {
		return "", proposal.Present
	}

	if rid, err := directory.ParseRID(id); err == nil {
		e, ok := h.Reader.View.Get(h.Domain, rid)
		if ok && e.Agent == id && h.Reader.Guard.MayWrite(call, e) {
			return id, true
		}
	}

	id, err := directory.ParseName(id)
	if err != nil {
		return "", proposal.Present
	}

	return id, proposal.Present
}

// Replace answers PUT /agents/{id}: it replaces the whole of an agent's metadata. The
// agent must exist (AI-027).
func (h *Handler) Replace(w http.ResponseWriter, call *request.Call) error {
	proposal, err := h.parse(w, call)
	if err != nil {
		return err
	}

	name, exists, err := h.Writer.Replaced(call)
	switch {
	case err != nil:
		return err
	case !exists:
		return registration.PathName(call).NotFound()
	}

	// Present has the leader refuse an agent that ended meanwhile. Without a condition of the caller's, that is a 404.
	unconditional := !proposal.Present && !proposal.Absent && proposal.IfMatch == nil
	proposal.Agent = name
	proposal.Present = true

	outcome, err := h.Writer.Register(call, proposal)
	if unconditional && directory.ProblemOf(err) == directory.PreconditionFailed {
		// The registration ended meanwhile.
		return registration.PathName(call).NotFound()
	}

	if err != nil {
		return err
	}

	return h.Writer.Answer(w, call, h.Reader.Render.AIDIP(), outcome)
}

// ListParams are the parameters of GET /agents, the draft's own first.
var ListParams = []string{
	"capabilities", "tags", "language", "page", "count", "origin", "scope", "status", "after", "brief", "consistency",
}

// List answers GET /agents (cui 4.3).
func (h *Handler) List(w http.ResponseWriter, call *request.Call) error {
	values, err := call.Params.Decode(ListParams)
	if err != nil {
		return err
	}

	values["status"] = statuses(values["status"])

	query, err := index.ParseQuery(values)
	if err != nil {
		return err
	}

	// In a lookup, language means something else.
	query.Language = nil
	if query.Requirements, err = parseNeed(values); err != nil {
		return err
	}

	opt := view.Options{Registrant: !call.Anonymous()}
	if opt.Brief, err = request.Brief(values["brief"]); err != nil {
		return err
	}

	page, err := h.Reader.Lookup(call, admission.Reads, query, h.Reader.Guard.Viewer(call))
	if err != nil {
		return err
	}

	if page.More {
		w.Header().Set("Link", call.Params.NextLink("/agents", ListParams, strconv.Itoa(query.Page+1), page.Next))
	}

	b := h.summaries(page.Entries, opt, len(query.Requirements.Languages) > 0)

	return response.Send(w, call, "application/json", response.WeakTagOf(b), b)
}

func (h *Handler) summaries(entries []*directory.Entry, opt view.Options, language bool) []byte {
	b := make([]byte, 0, 16+view.ItemSize*len(entries))
	return append(h.Reader.Render.AppendSummaries(b, entries, opt, view.Match{Language: language}), '\n')
}

// statuses are the statuses to look for: active by default, and nil for any (AI-023).
func statuses(asked []string) []string {
	switch {
	case len(asked) == 0:
		return []string{view.Active}
	case slices.Equal(asked, []string{"any"}):
		return nil
	}

	return asked
}

// parseNeed reads the filters. Each may be repeated, and may have several values with
// commas between them.
func parseNeed(values map[string][]string) (need index.Requirements, err error) {
	split := func(name string) (all []string) {
		for _, v := range values[name] {
			for text := range strings.SplitSeq(v, ",") {
				if text = strings.TrimSpace(text); text == "" {
					err = directory.Refuse(directory.BadQuery, "%s has an empty value; leave it out instead", name)
				}

				all = append(all, norm.NFC.String(text))
			}
		}

		return all
	}

	need = index.Requirements{Capabilities: split("capabilities"), Tags: split("tags"), Languages: split("language")}
	if n := len(need.Capabilities) + len(need.Tags) + len(need.Languages); n > index.MaxFilters {
		err = directory.Refuse(directory.BadQuery, "at most %d filters are allowed, got %d", index.MaxFilters, n)
	}

	return need, err
}
