package ad

import (
	"cmp"
	"net/http"
	"net/url"

	"github.com/roster-mesh/roster/api/access"
	"github.com/roster-mesh/roster/api/registration"
	"github.com/roster-mesh/roster/api/request"
	"github.com/roster-mesh/roster/api/response"
	"github.com/roster-mesh/roster/api/view"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/problem"
)

// Update answers POST on a registration: a refresh, or new top-level members and a
// refresh (jimenez 4.4).
func (h *Handler) Update(w http.ResponseWriter, call *request.Call) error {
	body, err := request.ReadBody(w, call)
	if err != nil {
		return err
	}

	refresh, err := h.Writer.ParseRefresh(call)
	if err != nil {
		return err
	}

	if len(body) > 0 {
		refresh.Patch = body
	}

	asked := refresh.Lifetime

	outcome, err := h.Writer.Propose(call, func() (outcome directory.Outcome, err error) {
		var granted uint32
		outcome, granted, err = h.refresh(call, refresh)

		// Without lt, the granted lifetime is to be kept.
		asked = cmp.Or(refresh.Lifetime, granted)

		return outcome, err
	})
	if err != nil {
		return err
	}

	h.Writer.SetOutcome(w, outcome)

	if asked > outcome.Granted {
		response.Write(w, call.Request, http.StatusOK, "application/json", registration.AppendGranted(nil, outcome))
		return nil
	}

	return response.NoContent(w)
}

// refresh refreshes the registration that the path names, with a patch if there is one.
// granted is the lifetime that it had before, in seconds; 0 if this node doesn't know.
func (h *Handler) refresh(
	call *request.Call, refresh directory.RefreshRequest,
) (outcome directory.Outcome, granted uint32, err error) {
	refresh.Caller = h.Reader.Guard.Requester(call)

	target, err := h.target(call, refresh.Patch != nil)
	if err != nil {
		return outcome, 0, err
	}

	if target.Entry != nil {
		granted = target.Entry.Lifetime
	}

	refresh.RID = target.RID

	refresh.Lifetime = h.Writer.CapRefresh(call, refresh.Lifetime, target.Entry)
	if refresh.Patch != nil {
		if err := h.authorisePatch(call, target.Entry, refresh.Patch); err != nil {
			return outcome, 0, err
		}

		// The leader refuses the patch if the registration has changed since policy was asked.
		refresh.Statement = target.Entry.Statement
	}

	outcome, err = h.Registry.Refresh(call.Context(), refresh)

	return outcome, granted, target.Hide(err)
}

// target finds the registration that the path of a refresh names. About a patch policy is asked
// with the members that it leads to.
func (h *Handler) target(call *request.Call, patched bool) (registration.Target, error) {
	targets, name := h.Writer.Targets(call), registration.PathName(call)
	if patched {
		return targets.Find(name)
	}

	return targets.Renewable(name)
}

// authorisePatch refuses a body that can't be merged into e: it must have e's kind, the
// result must be a valid document, and policy must let the caller claim it. If e is nil,
// this node doesn't have the registration yet, and the leader is asked about it.
func (h *Handler) authorisePatch(call *request.Call, entry *directory.Entry, patch []byte) error {
	if entry == nil {
		return h.Writer.AskLeader(call)
	}

	if kind := entry.Document.Kind(); kind != directory.KindAD {
		return &problem.Refusal{
			Err: directory.Refuse(directory.WrongKind,
				"a document of kind %q can't be updated in part. Replace it as a whole, at the Link", kind),
			Header: http.Header{"Link": {"<" + editHref(entry) + `>; rel="edit"`}},
		}
	}

	merged, err := entry.Document.Merge(patch)
	if err != nil {
		return err
	}

	projection, err := registration.Validate(call, entry.Agent, merged)
	if err != nil {
		return err
	}

	claims := access.Claims{
		Owner: entry.Owner, Agent: entry.Agent, Projection: projection, Visibility: entry.Visibility,
	}

	return h.Reader.Guard.AuthoriseClaims(call, claims,
		"%s may not register this as %q", entry.Owner, entry.Agent)
}

// editHref is the path at which a registration's document is replaced as a whole, in the
// shape that it was written in.
func editHref(entry *directory.Entry) string {
	switch kind := entry.Document.Kind(); kind {
	case directory.KindAIDIP:
		return view.AgentHref(entry)
	case directory.KindProfile:
		return view.ProfileHref(entry)
	default:
		return "/ad/r?agent=" + url.QueryEscape(entry.Agent) + "&kind=" + string(kind)
	}
}
