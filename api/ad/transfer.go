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
func (h *Handler) Transfer(w http.ResponseWriter, c *request.Call) error {
	body, err := request.ReadBody(w, c)
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
	cond, err := request.ParseCondition(c.Header)
	if err != nil {
		return err
	}

	transfer := directory.TransferRequest{To: in.Owner, IfMatch: cond.OfExisting()}
	outcome, err := h.Writer.Propose(c, func() (directory.Outcome, error) { return h.transfer(c, transfer) })
	if err != nil {
		return err
	}

	h.Writer.SetOutcome(w, outcome)

	return response.NoContent(w)
}

// transfer finds the registration, asks policy about its new owner, and proposes the
// change.
func (h *Handler) transfer(c *request.Call, transfer directory.TransferRequest) (directory.Outcome, error) {
	transfer.Caller = h.Reader.Guard.Requester(c)

	e, err := h.transferable(c, h.Reader.View.Find(c.Vars["id"]))
	if e == nil && err == nil { // this node may be a moment behind
		if err = h.Registry.Linearize(c.Context()); err == nil {
			e, err = h.transferable(c, h.Reader.View.Find(c.Vars["id"]))
		}
	}
	switch {
	case err != nil:
		return directory.Outcome{}, err
	case e == nil:
		return directory.Outcome{}, registration.NotFound(c)
	}

	transfer.RID = e.RID
	transfer.Statement = e.Statement
	transfer.Any = e.Owner != c.Identity

	operator := c.Decided // the policies that let an operator do this
	err = h.Reader.Guard.AuthoriseClaims(c, transfer.To, e.Agent, e.Projection(), e.Visibility,
		"the new owner %s may not register %q", transfer.To, e.Agent)
	c.Decided = append(operator, c.Decided...)
	if err != nil {
		return directory.Outcome{}, err
	}

	return h.Registry.TransferOwner(c.Context(), transfer)
}

// transferable returns the first of some registrations that the caller may transfer, or
// why it may not; neither if it may see none of them.
func (h *Handler) transferable(c *request.Call, found []*directory.Entry) (*directory.Entry, error) {
	for _, e := range found {
		own := h.Reader.Guard.IsOwn(e)
		switch {
		case own && (e.Owner == c.Identity || h.operates(c, "registration.transfer")):
			return e, nil
		case !h.Reader.Guard.MayRead(c, e):
		case own:
			return nil, directory.Refuse(directory.Forbidden,
				"You don't own this registration. Only its owner, or an operator with a client certificate, may transfer it.")
		default:
			return nil, h.Writer.Foreign(e)
		}
	}

	return nil, nil
}

// operates tells whether the caller may do an operator's change, on a route that others
// may call too. The audit log gets the policies that decided.
func (h *Handler) operates(c *request.Call, action string) bool {
	if c.Credential.Token || c.Credential.ReadOnly {
		return false
	}

	decision := h.Operate(c.Identity, action)

	return decision.Allow && access.Require(c, decision, "") == nil
}
