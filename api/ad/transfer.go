package ad

import (
	"net/http"
	"time"

	"github.com/roster-mesh/roster/api/access"
	"github.com/roster-mesh/roster/api/registration"
	"github.com/roster-mesh/roster/api/request"
	"github.com/roster-mesh/roster/api/response"
	"github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/index"
)

// Transfer answers POST /ad/r/{id}/transfer, which this directory adds to the draft. The owner
// offers a registration, and the identity to which it is offered accepts or declines. An
// operator moves it without an offer (TRUST-008, SEC-007).
func (h *Handler) Transfer(w http.ResponseWriter, call *request.Call) error {
	var in wire.Transfer
	if err := request.ReadObject(w, call, &in); err != nil {
		return err
	}

	transfer, err := parseTransfer(in)
	if err != nil {
		return err
	}

	cond, err := request.ParseCondition(call.Header)
	if err != nil {
		return err
	}

	transfer.IfMatch = cond.OfExisting()

	var entry *directory.Entry

	outcome, err := h.Writer.Propose(call, func() (outcome directory.Outcome, err error) {
		entry, outcome, err = h.transfer(call, transfer)
		return outcome, err
	})
	if err != nil {
		return err
	}

	h.Writer.SetOutcome(w, outcome)

	if transfer.Step != directory.TransferOffer {
		return response.NoContent(w)
	}

	offer := offerOf(directory.Offer{
		RID: entry.RID, Agent: entry.Agent, Owner: entry.Owner, To: transfer.To, Statement: entry.Statement,
		ExpiresAt: outcome.OfferUntil * 1000,
	})
	response.Private(w)
	response.Write(w, call.Request, http.StatusAccepted, "application/json", append(response.Encode(offer), '\n'))

	return nil
}

// parseTransfer returns the step that a body asks for.
func parseTransfer(in wire.Transfer) (transfer directory.TransferRequest, err error) {
	if in.Accept != nil {
		if in.Owner != "" || in.ExpiresIn != nil || in.Force {
			return transfer, directory.Refuse(directory.BadRequest,
				`the answer to an offer is {"accept": true} or {"accept": false} alone`)
		}

		transfer.Step = directory.TransferDecline
		if *in.Accept {
			transfer.Step = directory.TransferAccept
		}

		return transfer, nil
	}

	if transfer.To, err = directory.ParseIdentity(in.Owner); err != nil {
		return transfer, directory.Refuse(directory.BadRequest,
			"owner must be a SPIFFE or WIMSE URI, or oauth:ISSUER#SUBJECT, got %.100q", in.Owner).At("/owner")
	}

	if in.Force {
		if in.ExpiresIn != nil {
			return transfer, directory.Refuse(directory.BadRequest,
				"expires_in is of an offer, and force moves the registration at once").At("/expires_in")
		}

		transfer.Step = directory.TransferForce

		return transfer, nil
	}

	transfer.Step, transfer.Lifetime = directory.TransferOffer, directory.DefaultOfferLifetime
	if in.ExpiresIn != nil {
		transfer.Lifetime = *in.ExpiresIn
	}

	if transfer.Lifetime == 0 || transfer.Lifetime > directory.MaxOfferLifetime {
		return transfer, directory.Refuse(directory.BadRequest, "expires_in must be 1 to %d seconds, got %d",
			directory.MaxOfferLifetime, transfer.Lifetime).At("/expires_in")
	}

	return transfer, nil
}

// transfer finds the registration, asks policy about its new owner, and proposes the step.
func (h *Handler) transfer(call *request.Call, transfer directory.TransferRequest) (*directory.Entry,
	directory.Outcome, error) {
	transfer.Caller = h.Reader.Guard.Requester(call)

	entry, found, err := h.transferable(call, transfer.Step)

	// This node may be a moment behind.
	if !found && err == nil {
		if err = h.Registry.Linearize(call.Context()); err == nil {
			entry, found, err = h.transferable(call, transfer.Step)
		}
	}

	switch {
	case err != nil:
		return nil, directory.Outcome{}, err
	case !found:
		return nil, directory.Outcome{}, registration.PathName(call).NotFound()
	}

	// The leader refuses the step if the registration has changed since policy was asked.
	transfer.RID, transfer.Statement = entry.RID, entry.Statement

	if err := h.authoriseTransfer(call, entry, transfer); err != nil {
		return nil, directory.Outcome{}, err
	}

	outcome, err := h.Registry.TransferOwner(call.Context(), transfer)

	return entry, outcome, err
}

// authoriseTransfer asks policy whether the new owner may register the agent. An offer
// changes nothing yet, so only the domain of its recipient is checked.
func (h *Handler) authoriseTransfer(call *request.Call, entry *directory.Entry,
	transfer directory.TransferRequest) error {
	owner := transfer.To

	switch transfer.Step {
	case directory.TransferOffer:
		return h.Reader.Guard.CheckOwner(owner)
	case directory.TransferAccept:
		owner = call.Identity
	case directory.TransferForce:
	default:
		return nil
	}

	operator := call.Decided // the policies that let an operator do this
	claims := access.Claims{
		Owner: owner, Agent: entry.Agent, Projection: entry.Projection(), Visibility: entry.Visibility,
	}
	err := h.Reader.Guard.AuthoriseClaims(call, claims, "the new owner %s may not register %q", owner, entry.Agent)
	call.Decided = append(operator, call.Decided...)

	return err
}

// transferable returns the first registration with the path's name whose transfer the caller may take to a step, or the
// refusal. found is false if the caller sees no registration with that name.
func (h *Handler) transferable(call *request.Call, step directory.TransferStep) (entry *directory.Entry, found bool,
	err error) {
	for _, entry := range h.Reader.View.Find(call.Vars["id"]) {
		own := h.Reader.Guard.IsOwn(entry)
		if own && h.mayTransfer(call, entry, step) {
			return entry, true, nil
		}

		switch {
		case own && step == directory.TransferOffer && h.operates(call, directory.ActionTransfer):
			return nil, false, directory.Refuse(directory.Forbidden,
				"you are not the owner: use force to give this registration to another identity as an operator")
		case !h.Reader.Guard.MayRead(call, entry):
		case !own:
			return nil, false, h.Writer.Foreign(entry)
		case step == directory.TransferForce:
			return nil, false, directory.Refuse(directory.Forbidden,
				"only an operator with a client certificate may use force. Its owner may offer this registration")
		case step == directory.TransferOffer || step == directory.TransferWithdraw:
			return nil, false, directory.Refuse(directory.Forbidden,
				"you are not the owner of this registration. Only its owner may offer it or withdraw its offer")
		default:
			return nil, false, noOffer(call)
		}
	}

	return nil, false, nil
}

// mayTransfer tells whether the caller may make a step of a transfer of an own registration.
func (h *Handler) mayTransfer(call *request.Call, entry *directory.Entry, step directory.TransferStep) bool {
	switch step {
	case directory.TransferOffer, directory.TransferWithdraw:
		return entry.Owner == call.Identity
	case directory.TransferForce:
		return h.operates(call, directory.ActionTransfer)
	}

	offer, open := h.Registry.Offer(entry.RID)

	return open && offer.To == call.Identity
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

// Withdraw answers DELETE /ad/r/{id}/transfer: the owner withdraws its offer.
func (h *Handler) Withdraw(w http.ResponseWriter, call *request.Call) error {
	cond, err := request.ParseCondition(call.Header)
	if err != nil {
		return err
	}

	withdrawal := directory.TransferRequest{Step: directory.TransferWithdraw, IfMatch: cond.OfExisting()}

	outcome, err := h.Writer.Propose(call, func() (directory.Outcome, error) {
		_, outcome, err := h.transfer(call, withdrawal)
		return outcome, err
	})
	if err != nil {
		return err
	}

	h.Writer.SetOutcome(w, outcome)

	return response.NoContent(w)
}

// Offer answers GET /ad/r/{id}/transfer: the open offer of a registration, for its owner, the
// identity to which it is offered, and operators.
func (h *Handler) Offer(w http.ResponseWriter, call *request.Call) error {
	if call.Anonymous() {
		return h.Reader.Guard.Unauthenticated("", nil)
	}

	for _, entry := range h.Reader.View.Find(call.Vars["id"]) {
		if !h.Reader.Guard.IsOwn(entry) {
			continue
		}

		offer, open := h.Registry.Offer(entry.RID)
		if open && (call.Identity == offer.Owner || call.Identity == offer.To ||
			h.operates(call, directory.ActionTransfer)) {
			return sendOffers(w, call, offerOf(offer))
		}
	}

	return noOffer(call)
}

func noOffer(call *request.Call) error {
	return directory.Refuse(directory.NotFound,
		"no open offer of a registration %.100q was found, or you may not see it", call.Vars["id"])
}

// offersOnPage bounds the offers of one answer.
const offersOnPage = 100

// offersParams are the parameters of GET /ad/transfers.
var offersParams = []string{"after", "consistency"}

// Offers answers GET /ad/transfers: the open offers that the caller makes and is made, in the
// order of their rids.
func (h *Handler) Offers(w http.ResponseWriter, call *request.Call) error {
	if call.Anonymous() {
		return h.Reader.Guard.Unauthenticated("", nil)
	}

	after, err := call.Params.Cursor()
	if err != nil {
		return err
	}

	// One offer more shows whether there is another page.
	open := h.Registry.Offers(call.Identity, after.RID, offersOnPage+1)
	if len(open) > offersOnPage {
		open = open[:offersOnPage]
		next := index.Cursor{RID: open[offersOnPage-1].RID}
		w.Header().Set("Link", call.Params.NextLink("/ad/transfers", offersParams, "", next))
	}

	out := wire.Offers{Transfers: []wire.Offer{}}
	for _, offer := range open {
		out.Transfers = append(out.Transfers, offerOf(offer))
	}

	return sendOffers(w, call, out)
}

// sendOffers answers a read with an offer or a list of offers.
func sendOffers(w http.ResponseWriter, call *request.Call, offers any) error {
	body := append(response.Encode(offers), '\n')

	return response.Send(w, call, "application/json", response.WeakTagOf(body), body)
}

// offerOf returns the JSON of an offer.
func offerOf(offer directory.Offer) wire.Offer {
	return wire.Offer{
		RID: offer.RID.String(), Agent: offer.Agent, Owner: offer.Owner.String(), To: offer.To.String(),
		Statement: offer.Statement, ExpiresAt: time.UnixMilli(offer.ExpiresAt).UTC(), Changed: offer.Changed,
	}
}
