package registration

import (
	"context"
	"net/http"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"golang.org/x/text/unicode/norm"

	"github.com/roster-mesh/roster/api/admission"
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
	// IsPeer tells whether another domain is an active peer.
	IsPeer func(spiffeid.TrustDomain) bool
}

// A Form is how a surface has registrations in requests.
type Form struct {
	Lifetime uint32 // in seconds, of a registration that asks for none
	// Read reads the name and the document into a proposal whose other parts are parsed.
	Read func(call *request.Call, body []byte, proposal *directory.RegisterRequest) error
}

// Parse reads a proposal to register from a request: the owner of the registration, for how
// long, who may see it, which state it requires, and the parts that form reads.
func (w *Writer) Parse(
	rw http.ResponseWriter, call *request.Call, form Form,
) (directory.RegisterRequest, error) {
	return span.Get(call.Context(), span.Parse, func() (proposal directory.RegisterRequest, err error) {
		body, err := request.ReadBody(rw, call)
		if err != nil {
			return proposal, err
		}

		if proposal.Lifetime, err = w.parse(call, form.Lifetime); err != nil {
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

		// Without the parameter, a registration that is replaced keeps its visibility.
		proposal.KeepVisibility = visibility == ""
		if visibility != "" {
			if proposal.Visibility, err = directory.ParseVisibility(visibility); err != nil {
				return proposal, err
			}
		}

		cond, err := request.ParseCondition(call.Header)
		if err != nil {
			return proposal, err
		}

		proposal.IfMatch = cond.Revisions
		proposal.Present = cond.Present
		proposal.Absent = cond.Absent

		return proposal, form.Read(call, body, &proposal)
	})
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

// Lifetimes bounds how long registrations are granted to callers.
type Lifetimes struct {
	// Min is the shortest lifetime that may be asked for, in seconds.
	Min uint32
	// Credentials is how many lifetimes of its registrant's credential a registration is
	// granted at most (jimenez 8.2); 0 is any number.
	Credentials uint32
	// Callers returns bounds of some callers in place of Min; nil means no other bounds.
	Callers func() []admission.CallerLimits
}

// parse reads lt; standard seconds if it is absent. A lifetime under the caller's minimum
// is refused: with a longer one, the registration would outlive the time that its agent asked for.
func (l *Lifetimes) parse(call *request.Call, standard uint32) (uint32, error) {
	shortest := l.shortest(call)
	if standard != 0 {
		standard = max(standard, shortest)
	}

	lt, err := call.Params.Lifetime(standard)
	if err == nil {
		err = l.CheckMin(call, lt)
	}

	return lt, err
}

// shortest is the shortest lifetime that the caller may ask for, in seconds.
func (l *Lifetimes) shortest(c *request.Call) uint32 {
	own := l.of(c.Caller(), func(limits *admission.CallerLimits) bool { return limits.MinLifetime > 0 })
	if own != nil {
		return own.MinLifetime
	}

	return l.Min
}

// of returns the first bounds for a caller with a bound; nil if there are none.
func (l *Lifetimes) of(caller admission.Caller, has func(*admission.CallerLimits) bool) *admission.CallerLimits {
	if l.Callers == nil {
		return nil
	}

	callers := l.Callers()
	for i := range callers {
		if has(&callers[i]) && callers[i].Covers(caller) {
			return &callers[i]
		}
	}

	return nil
}

// CheckMin refuses a lifetime that is under the caller's minimum; 0 asks for no lifetime.
func (l *Lifetimes) CheckMin(c *request.Call, lt uint32) error {
	if shortest := l.shortest(c); lt != 0 && lt < shortest {
		return directory.Refuse(directory.BadLifetime, "lt must be at least %d seconds for you, got %d", shortest, lt)
	}

	return nil
}

// Register registers a document under its name, or replaces the one that its owner registered
// there, of whatever kind that is. Once that is done, the answer names the domains in its
// visibility that are no active peers: they have no effect yet. A caller that may not register
// learns nothing of the peerings.
func (w *Writer) Register(
	call *request.Call, proposal directory.RegisterRequest,
) (outcome directory.Outcome, err error) {
	if proposal.Projection, err = Validate(call, proposal.Agent, proposal.Document); err != nil {
		return outcome, err
	}

	outcome, err = w.Propose(call, func() (directory.Outcome, error) {
		attempt, err := w.authorise(call, proposal)
		if err != nil {
			return directory.Outcome{}, err
		}

		return w.Registry.Register(call.Context(), attempt)
	})
	if err != nil || proposal.KeepVisibility {
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
	return span.Get(call.Context(), span.Project, func() (*directory.Projection, error) {
		projection, misspellings, err := kinds.Check(agent, document)
		for _, m := range misspellings {
			call.Ignore(wire.Ignored{Name: m.Pointer, Near: m.Near})
		}

		return projection, err
	})
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

		// The next proposal is an event of its own.
		call.Audited = false
		if err := w.Registry.Linearize(call.Context()); err != nil {
			return directory.Outcome{}, err
		}
	}
}

// authorise asks policy about a proposal. It returns it with the parts that may differ the next
// time that it is made: the caller with the version of its policy, the granted lifetime, and
// the visibility of the registration that it replaces.
func (w *Writer) authorise(
	call *request.Call, proposal directory.RegisterRequest,
) (directory.RegisterRequest, error) {
	return span.Get(call.Context(), span.Authorise, func() (directory.RegisterRequest, error) {
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

		return proposal, w.Reader.Guard.Authorise(call, proposal)
	})
}

// Cap returns the lifetime that this caller is granted of the one that it asks for, with
// this credential (AD-070), in seconds.
func (l *Lifetimes) Cap(call *request.Call, lifetime uint32) uint32 {
	own := l.of(call.Caller(), func(limits *admission.CallerLimits) bool { return limits.MaxLifetime > 0 })
	if own != nil {
		lifetime = min(lifetime, own.MaxLifetime)
	}

	if l.Credentials == 0 || call.Credential.Life <= 0 {
		return lifetime
	}

	longest := max(directory.MinLifetime, float64(l.Credentials)*call.Credential.Life.Seconds())

	return uint32(min(float64(lifetime), longest))
}

// CapRefresh is Cap of a refresh: without a lifetime, of the one that e was granted. e is
// nil if this node doesn't have the registration.
func (l *Lifetimes) CapRefresh(call *request.Call, lifetime uint32, entry *directory.Entry) uint32 {
	if lifetime != 0 || entry == nil {
		return l.Cap(call, lifetime)
	}

	if longest := l.Cap(call, entry.Lifetime); longest < entry.Lifetime {
		return longest
	}

	return 0
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

// StatusOf is 201 if a registration was made, and 200 if one was replaced.
func StatusOf(outcome directory.Outcome) int {
	if outcome.Created {
		return http.StatusCreated
	}

	return http.StatusOK
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

// Replaced returns the name of the registration that a PUT would replace, if its caller may.
// exists is false if the path has a given id that no registration has: PUT registers that.
func (w *Writer) Replaced(call *request.Call) (name string, exists bool, err error) {
	target, err := w.Targets(call).Find(PathName(call))
	_, notRID := directory.ParseRID(call.Vars["id"])

	switch {
	case notRID != nil && directory.ProblemOf(err) == directory.NotFound:
		return norm.NFC.String(call.Vars["id"]), false, nil
	case err != nil:
		return "", false, err
	case target.Entry == nil:
		return "", false, w.AskLeader(call)
	}

	return target.Entry.Agent, true, nil
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

// AskLeader refuses a change of a registration that this node doesn't have, as the leader
// sees it: the leader is asked for a refresh that can't succeed, because no registration
// has NoRevision.
func (w *Writer) AskLeader(call *request.Call) error {
	name := PathName(call)

	rid, err := directory.ParseRID(name.ID)
	if err != nil {
		return name.NotFound()
	}

	_, err = w.Registry.Refresh(call.Context(), directory.RefreshRequest{
		Caller: w.Reader.Guard.Owner(call), RID: rid, IfMatch: []uint64{request.NoRevision},
	})
	if directory.ProblemOf(err) == directory.PreconditionFailed {
		return directory.Refuse(directory.Unavailable,
			"this node doesn't have the registration yet. Nothing was changed; try again")
	}

	return Target{ID: name.ID}.Hide(err)
}

// Remove answers DELETE on a registration (jimenez 4.5).
func (w *Writer) Remove(rw http.ResponseWriter, call *request.Call) error {
	cond, err := request.ParseCondition(call.Header)
	if err != nil {
		return err
	}

	outcome, err := w.Propose(call, func() (directory.Outcome, error) {
		caller := w.Reader.Guard.Owner(call)

		target, err := w.Targets(call).Find(PathName(call))
		if err != nil {
			return directory.Outcome{}, err
		}

		outcome, err := w.Registry.Remove(call.Context(),
			directory.RemoveRequest{Caller: caller, RID: target.RID, IfMatch: cond.OfExisting()})

		return outcome, target.Hide(err)
	})
	if err != nil {
		return err
	}

	w.SetOutcome(rw, outcome)

	return response.NoContent(rw)
}
