package ad

import (
	"net/http"

	"github.com/roster-mesh/roster/api/registration"
	"github.com/roster-mesh/roster/api/request"
	"github.com/roster-mesh/roster/api/response"
	"github.com/roster-mesh/roster/api/view"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/span"
)

// Register answers POST /ad/r (jimenez 4.1, 4.2): it registers a document under its name,
// or replaces the one that its owner registered there.
func (h *Handler) Register(w http.ResponseWriter, call *request.Call) error {
	// Parse.
	_, step := span.Start(call.Context(), span.Parse)
	proposal, err := h.parseProposal(w, call)
	step.Done(err)

	if err != nil {
		return err
	}

	// Project the document to the members that all kinds share; this validates it too.
	proposal.Projection, err = registration.Validate(call, proposal.Agent, proposal.Document)
	if err != nil {
		return err
	}

	// Authorise and propose; again if policy changes before the leader decides.
	outcome, err := h.Writer.Register(call, proposal, h.Writer.Reader.Guard.Authorise)
	if err != nil {
		return err
	}

	_, step = span.Start(call.Context(), span.Answer)
	defer step.End()

	// Answer. There is a body only if less was granted than asked for.
	w.Header().Set("Location", view.PathOf(outcome.RID))
	h.Writer.SetOutcome(w, outcome)

	status := registration.StatusOf(outcome)
	if outcome.Granted < proposal.Lifetime {
		response.Write(w, call.Request, status, "application/json", registration.AppendGranted(nil, outcome))
		return nil
	}

	return response.Empty(w, status)
}

// parseProposal reads a registration: the document in the body, its name and kind, and
// the parts that all surfaces have in common.
func (h *Handler) parseProposal(w http.ResponseWriter, call *request.Call) (proposal directory.RegisterRequest,
	err error) {
	body, err := request.ReadBody(w, call)
	if err != nil {
		return proposal, err
	}

	if proposal, err = h.Writer.ParseProposal(call, directory.DefaultLifetime); err != nil {
		return proposal, err
	}

	name, err := call.Params.One("agent")
	if err != nil {
		return proposal, err
	}

	if proposal.Agent, err = directory.ParseName(name); err != nil {
		return proposal, err
	}

	text, err := call.Params.One("kind")
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
