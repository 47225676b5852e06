package ad

import (
	"net/http"

	"github.com/roster-mesh/roster/api/registration"
	"github.com/roster-mesh/roster/api/request"
	"github.com/roster-mesh/roster/api/response"
	"github.com/roster-mesh/roster/api/view"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/kinds"
)

// Register answers POST /ad/r (jimenez 4.1, 4.2): it registers a document under its name,
// or replaces the one that its owner registered there.
func (h *Handler) Register(w http.ResponseWriter, c *request.Call) error {
	// Parse.
	proposal, err := h.parseProposal(w, c)
	if err != nil {
		return err
	}

	// Project the document to what all kinds have in common; this validates it too.
	proposal.Projection, err = kinds.Project(proposal.Agent, proposal.Document)
	if err != nil {
		return err
	}

	// Authorise and propose; again if policy changes before the leader decides.
	outcome, err := h.Writer.Propose(c, func() (directory.Outcome, error) {
		attempt := h.Writer.Complete(c, proposal)
		if err := h.Writer.Reader.Guard.Authorise(c, attempt); err != nil {
			return directory.Outcome{}, err
		}

		return h.Registry.Register(c.Context(), attempt)
	})
	if err != nil {
		return err
	}

	// Answer. There is a body only if less was granted than asked for.
	w.Header().Set("Location", view.PathOf(outcome.RID))
	h.Writer.SetOutcome(w, outcome)
	status := registration.StatusOf(outcome)
	if outcome.Granted < proposal.Lifetime {
		response.Write(w, c.Request, status, "application/json", registration.AppendGranted(nil, outcome))
		return nil
	}

	return response.Empty(w, status)
}

// parseProposal reads a registration: the document in the body, its name and kind, and
// the parts that all surfaces have in common.
func (h *Handler) parseProposal(w http.ResponseWriter, c *request.Call) (proposal directory.RegisterRequest, err error) {
	body, err := request.ReadBody(w, c)
	if err != nil {
		return proposal, err
	}

	if proposal, err = h.Writer.ParseProposal(c, directory.DefaultLifetime); err != nil {
		return proposal, err
	}

	name, err := c.Params.One("agent")
	if err != nil {
		return proposal, err
	}
	if proposal.Agent, err = directory.ParseName(name); err != nil {
		return proposal, err
	}

	text, err := c.Params.One("kind")
	if err != nil {
		return proposal, err
	}
	kind, err := directory.ParseKind(text)
	if err != nil {
		return proposal, err
	}
	proposal.Document, err = directory.ParseDocument(kind, body)

	return proposal, err
}
