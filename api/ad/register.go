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
	proposal, err := h.Writer.Parse(w, call, registration.Form{Lifetime: directory.DefaultLifetime, Read: readDocument})
	if err != nil {
		return err
	}

	outcome, err := h.Writer.Register(call, proposal)
	if err != nil {
		return err
	}

	return span.Do(call.Context(), span.Answer, func(span.Span) error {
		w.Header().Set("Location", view.PathOf(outcome.RID))
		h.Writer.SetOutcome(w, outcome)

		// There is a body only if less was granted than asked for.
		status := registration.StatusOf(outcome)
		if outcome.Granted < proposal.Lifetime {
			response.Write(w, call.Request, status, "application/json", registration.AppendGranted(nil, outcome))
			return nil
		}

		return response.Empty(w, status)
	})
}

// readDocument reads the document in the body, with the name and the kind that the query has.
func readDocument(call *request.Call, body []byte, proposal *directory.RegisterRequest) error {
	name, err := call.Params.One("agent")
	if err != nil {
		return err
	}

	if proposal.Agent, err = directory.ParseName(name); err != nil {
		return err
	}

	text, err := call.Params.One("kind")
	if err != nil {
		return err
	}

	kind, err := directory.ParseKind(text)
	if err != nil {
		return err
	}

	proposal.Document, err = directory.ParseDocument(kind, body)

	return err
}
