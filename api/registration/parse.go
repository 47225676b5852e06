package registration

import (
	"github.com/roster-mesh/roster/api/request"
	"github.com/roster-mesh/roster/directory"
)

// ParseProposal reads from the query and the header the owner of a registration, for how
// long (standard seconds by default), who may see it, and which state it requires.
func (w *Writer) ParseProposal(call *request.Call, standard uint32) (proposal directory.RegisterRequest, err error) {
	if proposal.Lifetime, err = w.parse(call, standard); err != nil {
		return proposal, err
	}

	if proposal.Owner, err = parseOwner(call); err != nil {
		return proposal, err
	}

	visibility, err := call.Params.One("visibility")
	if err != nil {
		return proposal, err
	}

	proposal.Visibility = w.DefaultVisibility()

	proposal.KeepVisibility = visibility == ""
	if visibility != "" {
		if proposal.Visibility, err = directory.ParseVisibility(visibility); err != nil {
			return proposal, err
		}
	}

	cond, err := request.ParseCondition(call.Header)
	proposal.IfMatch = cond.Revisions
	proposal.Present = cond.Present
	proposal.Absent = cond.Absent

	return proposal, err
}

// parseOwner reads the owner that a commissioning tool names (jimenez 2); the zero
// identity is the caller.
func parseOwner(call *request.Call) (owner directory.Identity, err error) {
	text, err := call.Params.One("owner")
	if err != nil || text == "" {
		return owner, err
	}

	if owner, err = directory.ParseIdentity(text); err != nil {
		return owner, directory.Refuse(directory.BadRequest,
			"owner must be a SPIFFE or WIMSE URI, or oauth:ISSUER#SUBJECT, got %.100q", text)
	}

	if owner == call.Identity {
		return directory.Identity{}, nil
	}

	return owner, nil
}

// ParseRefresh reads lt, 0 if it is absent, and the condition of a refresh.
func (w *Writer) ParseRefresh(call *request.Call) (refresh directory.RefreshRequest, err error) {
	if refresh.Lifetime, err = w.parse(call, 0); err != nil {
		return refresh, err
	}

	cond, err := request.ParseCondition(call.Header)
	refresh.IfMatch = cond.OfExisting()

	return refresh, err
}
