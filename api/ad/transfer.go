package ad

import (
	"net/http"

	"github.com/go-json-experiment/json"

	"github.com/roster-mesh/roster/api/access"
	"github.com/roster-mesh/roster/api/registration"
	"github.com/roster-mesh/roster/api/request"
	"github.com/roster-mesh/roster/api/response"
	"github.com/roster-mesh/roster/directory"
)

// transferRequest is the body of a transfer.
type transferRequest struct {
	Owner directory.Identity `json:"owner"`
}

// Transfer answers POST /ad/r/{id}/transfer, which this directory adds to the draft: the
// owner, or an operator, transfers a registration to another identity (TRUST-008). Policy
// must let the new owner register it, and the new owner's quota must have room. The new
// owner is not asked, but may remove the registration.
func (h *Handler) Transfer(w http.ResponseWriter, call *request.Call) error {
	body, err := request.ReadBody(w, call)
	if err != nil {
		return err
	}

	if _, err := directory.ParseObject(body); err != nil {
		return err
	}

	var in transferRequest
	if err := json.Unmarshal(body, &in, json.RejectUnknownMembers(true)); err != nil || in.Owner.IsZero() {
		return directory.Refuse(directory.BadRequest, `The body must be {"owner": IDENTITY}: %w`, err).At("/owner")
	}

	cond, err := request.ParseCondition(call.Header)
	if err != nil {
		return err
	}

	transfer := directory.TransferRequest{To: in.Owner, IfMatch: cond.OfExisting()}

	outcome, err := h.Writer.Propose(call, func() (directory.Outcome, error) { return h.transfer(call, transfer) })
	if err != nil {
		return err
	}

	h.Writer.SetOutcome(w, outcome)

	return response.NoContent(w)
}

// transfer finds the registration, asks policy about its new owner, and proposes the
// change.
func (h *Handler) transfer(call *request.Call, transfer directory.TransferRequest) (directory.Outcome, error) {
	transfer.Caller = h.Reader.Guard.Requester(call)

	entry, err := h.transferable(call, h.Reader.View.Find(call.Vars["id"]))
	if entry == nil && err == nil { // this node may be a moment behind
		if err = h.Registry.Linearize(call.Context()); err == nil {
			entry, err = h.transferable(call, h.Reader.View.Find(call.Vars["id"]))
		}
	}

	switch {
	case err != nil:
		return directory.Outcome{}, err
	case entry == nil:
		return directory.Outcome{}, registration.NotFound(call)
	}

	transfer.RID = entry.RID
	transfer.Statement = entry.Statement
	transfer.Any = entry.Owner != call.Identity

	operator := call.Decided // the policies that let an operator do this
	claims := access.Claims{
		Owner: transfer.To, Agent: entry.Agent, Projection: entry.Projection(), Visibility: entry.Visibility,
	}
	err = h.Reader.Guard.AuthoriseClaims(call, claims,
		"the new owner %s may not register %q", transfer.To, entry.Agent)
	call.Decided = append(operator, call.Decided...)

	if err != nil {
		return directory.Outcome{}, err
	}

	return h.Registry.TransferOwner(call.Context(), transfer)
}

// transferable returns the first of some registrations that the caller may transfer, or
// why it may not; neither if it may see none of them.
func (h *Handler) transferable(call *request.Call, found []*directory.Entry) (*directory.Entry, error) {
	for _, entry := range found {
		own := h.Reader.Guard.IsOwn(entry)
		switch {
		case own && (entry.Owner == call.Identity || h.operates(call, "registration.transfer")):
			return entry, nil
		case !h.Reader.Guard.MayRead(call, entry):
		case own:
			return nil, directory.Refuse(directory.Forbidden,
				"You don't own this registration. Only its owner, or an operator with a client certificate, may "+
					"transfer it.")
		default:
			return nil, h.Writer.Foreign(entry)
		}
	}

	return nil, nil
}

// operates tells whether the caller may do an operator's change, on a route that others
// may call too. The audit log gets the policies that decided.
func (h *Handler) operates(call *request.Call, action string) bool {
	if call.Credential.Token || call.Credential.ReadOnly {
		return false
	}

	decision := h.Operate(call.Identity, action)

	return decision.Allow && access.Require(call, decision, "") == nil
}
