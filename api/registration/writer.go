package registration

import (
	"context"
	"net/http"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"golang.org/x/text/unicode/norm"

	"github.com/roster-mesh/roster/api/request"
	"github.com/roster-mesh/roster/api/response"
	"github.com/roster-mesh/roster/api/view"
	"github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/kinds"
	"github.com/roster-mesh/roster/directory/span"
	"github.com/roster-mesh/roster/directory/strictjson"
)

// A Registry takes changes for the domain. Its errors are *directory.Error.
type Registry interface {
	Register(context.Context, directory.RegisterRequest) (directory.Outcome, error)
	Refresh(context.Context, directory.RefreshRequest) (directory.Outcome, error)
	Remove(context.Context, directory.RemoveRequest) (directory.Outcome, error)
	// Linearize returns nil once this node's answers show everything that any node of the
	// domain had acknowledged before the call.
	Linearize(context.Context) error
}

// A Writer changes registrations of its domain for callers. It is safe for concurrent
// use.
type Writer struct {
	Domain   spiffeid.TrustDomain
	Reader   *Reader
	Registry Registry
	Lifetimes
	DefaultVisibility func() directory.Visibility
	// IsPeer tells whether another domain is an active peer; nil is yes.
	IsPeer func(spiffeid.TrustDomain) bool
}

// maxProposals bounds how often policy is asked about one change.
const maxProposals = 4

// Propose makes a change that policy is asked about. It proposes the change again if
// policy, or the registration, changed before the leader decided: this node may be behind
// the leader.
func (w *Writer) Propose(
	call *request.Call, propose func() (directory.Outcome, error),
) (directory.Outcome, error) {
	for tries := 1; ; tries++ {
		outcome, err := propose()
		if directory.ProblemOf(err) != directory.Overtaken || tries == maxProposals {
			return outcome, err
		}

		call.Audited = false // the next proposal is an event of its own
		if err := w.Registry.Linearize(call.Context()); err != nil {
			return directory.Outcome{}, err
		}
	}
}

// complete returns a proposal to register with the parts that may differ the next time
// that it is made: the caller with the version of its policy, the granted lifetime, and
// the visibility of the registration that it replaces.
func (w *Writer) complete(call *request.Call, proposal directory.RegisterRequest) directory.RegisterRequest {
	proposal.Caller = w.Reader.Guard.Requester(call)
	proposal.Lifetime = w.Cap(call, proposal.Lifetime)

	// Policy is asked about the visibility that the registration will have.
	if proposal.KeepVisibility {
		for _, e := range w.Reader.View.Find(proposal.Agent) {
			if w.Reader.Guard.MayWrite(call, e) {
				proposal.Visibility = e.Visibility
			}
		}
	}

	return proposal
}

// Register proposes a registration to the domain, each time that authorise permits it. Once it
// is accepted, the answer names the domains in its visibility that are no active peers: they
// have no effect yet. A caller that may not register learns nothing of the peerings.
func (w *Writer) Register(
	call *request.Call, proposal directory.RegisterRequest,
	authorise func(*request.Call, directory.RegisterRequest) error,
) (directory.Outcome, error) {
	outcome, err := w.Propose(call, func() (directory.Outcome, error) {
		_, step := span.Start(call.Context(), span.Authorise)
		attempt := w.complete(call, proposal)
		err := authorise(call, attempt)
		step.Done(err)

		if err != nil {
			return directory.Outcome{}, err
		}

		return w.Registry.Register(call.Context(), attempt)
	})
	if err != nil || proposal.KeepVisibility || w.IsPeer == nil {
		return outcome, err
	}

	for _, td := range proposal.Visibility.Peers {
		if !w.IsPeer(td) {
			call.Ignore(wire.Ignored{Name: "peers:" + td.Name()})
		}
	}

	return outcome, nil
}

// Validate projects a document that a call brings, and names its members that are probably
// misspelt in the answer.
func Validate(call *request.Call, agent string, document directory.Document) (*directory.Projection, error) {
	_, step := span.Start(call.Context(), span.Project)
	projection, misspellings, err := kinds.Check(agent, document)
	step.Done(err)

	for _, m := range misspellings {
		call.Ignore(wire.Ignored{Name: m.Pointer, Near: m.Near})
	}

	return projection, err
}

// Upsert registers a document under its name, or replaces the one that its owner
// registered there, of whatever kind that is.
func (w *Writer) Upsert(call *request.Call, proposal directory.RegisterRequest) (outcome directory.Outcome, err error) {
	proposal.Projection, err = Validate(call, proposal.Agent, proposal.Document)
	if err != nil {
		return outcome, err
	}

	return w.Register(call, proposal, w.Reader.Guard.Authorise)
}

// Replace is Upsert for PUT: the document has the id that its path has (XU-038).
func (w *Writer) Replace(call *request.Call, proposal directory.RegisterRequest) (directory.Outcome, error) {
	entry, err := w.Replaced(call)
	if err != nil {
		return directory.Outcome{}, err
	}

	id := norm.NFC.String(call.Vars["id"])
	if entry != nil {
		id = entry.Agent
	}

	if proposal.Agent != id {
		return directory.Outcome{}, directory.Refuse(directory.BadDocument,
			"the document's id is %.100q, but the path names %.100q. An id can't be changed", proposal.Agent, id).
			At("/id")
	}

	return w.Upsert(call, proposal)
}

// Replaced returns the registration that a PUT would replace, if its caller may. It is
// nil if the path has a given id that no registration has: PUT registers that.
func (w *Writer) Replaced(call *request.Call) (*directory.Entry, error) {
	entry, _, err := w.Target(call)
	_, notRID := directory.ParseRID(call.Vars["id"])

	switch {
	case notRID != nil && directory.ProblemOf(err) == directory.NotFound:
		return nil, nil
	case entry == nil && err == nil:
		return nil, w.AskLeader(call)
	}

	return entry, err
}

// AskLeader refuses a change of a registration that this node doesn't have, as the leader
// sees it: the leader is asked for a refresh that can't succeed, because no registration
// has NoRevision.
func (w *Writer) AskLeader(call *request.Call) error {
	rid, err := directory.ParseRID(call.Vars["id"])
	if err != nil {
		return NotFound(call)
	}

	_, err = w.Registry.Refresh(call.Context(), directory.RefreshRequest{
		Caller: w.Reader.Guard.Owner(call), RID: rid, IfMatch: []uint64{request.NoRevision},
	})
	if directory.ProblemOf(err) == directory.PreconditionFailed {
		return directory.Refuse(directory.Unavailable,
			"this node doesn't have the registration yet. Nothing was changed; try again")
	}

	return Hide(call.Vars["id"], nil, err)
}

// Remove answers DELETE on a registration (jimenez 4.5).
func (w *Writer) Remove(rw http.ResponseWriter, call *request.Call) error {
	cond, err := request.ParseCondition(call.Header)
	if err != nil {
		return err
	}

	outcome, err := w.Propose(call, func() (directory.Outcome, error) {
		caller := w.Reader.Guard.Owner(call)

		entry, rid, err := w.Target(call)
		if err != nil {
			return directory.Outcome{}, err
		}

		outcome, err := w.Registry.Remove(call.Context(),
			directory.RemoveRequest{Caller: caller, RID: rid, IfMatch: cond.OfExisting()})

		return outcome, Hide(call.Vars["id"], entry, err)
	})
	if err != nil {
		return err
	}

	w.SetOutcome(rw, outcome)

	return response.NoContent(rw)
}

// SetOutcome sets in the header the position of a change in the domain's history, and the
// registration's deadline and visibility.
func (w *Writer) SetOutcome(rw http.ResponseWriter, outcome directory.Outcome) {
	rw.Header().Set("Roster-Index", directory.FormatIndex(w.Domain, outcome.Position))

	if e, ok := w.Reader.View.Get(w.Domain, outcome.RID); ok {
		rw.Header().Set("Sunset", sunset(e))
		rw.Header().Set(wire.HeaderVisibility, e.Visibility.String())
	}
}

// AppendGranted appends the body that says that a shorter lifetime was granted than
// asked for (AD-011, AD-055).
func AppendGranted(b []byte, outcome directory.Outcome) []byte {
	return append(strictjson.AppendUint(append(b, '{'), "lt", uint64(outcome.Granted)), '}', '\n')
}

// Answer answers a write with the registration as it is now.
func (w *Writer) Answer(
	rw http.ResponseWriter, call *request.Call, surface view.Surface, outcome directory.Outcome,
) error {
	response.Private(rw)

	_, step := span.Start(call.Context(), span.Answer)
	defer step.End()

	entry, ok := w.Reader.View.Get(w.Domain, outcome.RID)
	if !ok { // it was removed meanwhile
		entry = &directory.Entry{Origin: w.Domain, RID: outcome.RID}
	}

	rw.Header().Set("Location", view.PathOf(outcome.RID)) // whatever the surface (AD-053)
	w.SetOutcome(rw, outcome)

	if !ok {
		rw.WriteHeader(StatusOf(outcome))
		return nil
	}

	rw.Header().Set("Content-Location", surface.Href(entry))
	body := append(surface.Append(nil, w.Reader.Guard.Mark(call, entry), view.Options{Registrant: true}), '\n')
	response.SetTag(rw, call, "application/json", response.StrongTag(entry.Revision, body), body)
	response.Write(rw, call.Request, StatusOf(outcome), "application/json", body)

	return nil
}

// StatusOf is 201 if a registration was made, and 200 if one was replaced.
func StatusOf(outcome directory.Outcome) int {
	if outcome.Created {
		return http.StatusCreated
	}

	return http.StatusOK
}
