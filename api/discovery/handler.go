package discovery

import (
	"context"
	"net/http"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/api/registration"
	"github.com/roster-mesh/roster/api/request"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/kinds"
	"github.com/roster-mesh/roster/directory/strictjson"
	ranking "github.com/roster-mesh/roster/discovery"
)

// levelD2 is the conformance level of this surface.
const levelD2 = "D2"

// defaultLifetime is the lifetime in seconds of metadata that ask for none: the draft has
// no refresh.
const defaultLifetime = 604800

// A Finder finds registrations by what they can do: a *ranking.Finder. It searches what is
// in the View when it is called. Its errors are the context's, and
// *ranking.UnsupportedError.
type Finder interface {
	Find(context.Context, ranking.Query) (*ranking.Result, error)
	// Explain returns the result of an entry of the View in a query. Its errors are
	// Find's, and ranking.ErrUnknown if the reader doesn't see the entry.
	Explain(context.Context, ranking.Query, *directory.Entry) (*ranking.Explanation, error)
	// About describes how it ranks.
	About() ranking.About
}

// A Handler answers the routes under /discovery.
type Handler struct {
	Domain spiffeid.TrustDomain
	Reader *registration.Reader
	Writer *registration.Writer
	Finder Finder
	// Strict takes every query as strict: a filter that can't be applied fails it (XU-012).
	Strict bool
}

// Get returns the handler of GET /discovery/agents/{id}.
func (h *Handler) Get() request.Handler { return h.Reader.Show(h.Reader.Render.Profile()) }

// Publish answers POST /discovery/agents: metadata are registered under their id, or
// replace what their owner registered there (xu 9).
func (h *Handler) Publish(w http.ResponseWriter, call *request.Call) error {
	proposal, err := h.parse(w, call)
	if err != nil {
		return err
	}

	return h.register(w, call, proposal)
}

// Replace answers PUT /discovery/agents/{id}: the metadata have the id that the path has (XU-038).
func (h *Handler) Replace(w http.ResponseWriter, call *request.Call) error {
	proposal, err := h.parse(w, call)
	if err != nil {
		return err
	}

	name, _, err := h.Writer.Replaced(call)
	if err != nil {
		return err
	}

	if proposal.Agent != name {
		return directory.Refuse(directory.BadDocument,
			"the document's id is %.100q, but the path names %.100q. An id can't be changed", proposal.Agent, name).
			At("/id")
	}

	return h.register(w, call, proposal)
}

func (h *Handler) parse(w http.ResponseWriter, call *request.Call) (directory.RegisterRequest, error) {
	return h.Writer.Parse(w, call, registration.Form{Lifetime: defaultLifetime, Read: h.readDocument})
}

func (h *Handler) register(w http.ResponseWriter, call *request.Call, proposal directory.RegisterRequest) error {
	outcome, err := h.Writer.Register(call, proposal)
	if err != nil {
		return err
	}

	return h.Writer.Answer(w, call, h.Reader.Render.Profile(), outcome)
}

// readDocument reads the metadata in the body, and the id in them.
func (h *Handler) readDocument(_ *request.Call, body []byte, proposal *directory.RegisterRequest) (err error) {
	if proposal.Document, err = h.parseDocument(body); err != nil {
		return err
	}

	proposal.Agent, err = kinds.DefaultName(proposal.Document)

	return err
}

// parseDocument reads metadata. If this surface showed them, their expires_at is the
// lease's, unless the registered document has one of its own. The lease's is the
// directory's member and not the registrant's, so it is dropped like all others.
func (h *Handler) parseDocument(body []byte) (directory.Document, error) {
	doc, err := directory.ParseDocument(directory.KindProfile, body)
	if err != nil {
		return doc, err
	}

	var shown struct {
		ID         string `json:"id"`
		ExpiresAt  string `json:"expires_at"`
		Provenance struct {
			Authority string `json:"origin_authority"`
			ExpiresAt string `json:"expires_at"`
		} `json:"provenance"`
	}
	if json.Unmarshal(body, &shown) != nil || shown.ExpiresAt == "" || shown.ExpiresAt != shown.Provenance.ExpiresAt ||
		shown.Provenance.Authority != h.Domain.Name() {
		return doc, nil // Project reports errors
	}

	// A document that had the member when it was registered keeps it.
	for _, e := range h.Reader.View.Own().Named(shown.ID) {
		if !kinds.DatesOf(e.Document).Expires.IsZero() {
			return doc, nil
		}
	}

	members := slices.DeleteFunc(doc.Members(), func(m strictjson.Member) bool { return m.Name == "expires_at" })

	return directory.NewDocument(directory.KindProfile, members)
}
