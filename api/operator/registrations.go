package operator

import (
	"context"
	"net/http"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/api/registration"
	"github.com/roster-mesh/roster/api/request"
	"github.com/roster-mesh/roster/api/response"
	"github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/index"
	"github.com/roster-mesh/roster/discovery"
)

// maxFlagged bounds a list of flagged registrations.
const maxFlagged = 1000

// A Remover removes registrations of the domain. Its errors are *directory.Error.
type Remover interface {
	Remove(context.Context, directory.RemoveRequest) (directory.Outcome, error)
	// Linearize returns nil once this node's answers show everything that any node of the
	// domain had acknowledged before the call.
	Linearize(context.Context) error
}

// Orders are operators' changes that are no command of the domain's log.
type Orders interface {
	// Precede puts the order of the call in ctx into the log before its effect.
	Precede(ctx context.Context, action, target string) error
}

// A Finder knows which registrations are written for rankers.
type Finder interface {
	// Flagged lists flagged registrations: at most limit, by origin and rid.
	Flagged(limit int) []discovery.FlaggedEntry
}

// Registrations answers operators' routes of registrations: those of one owner, and those
// that are flagged as search spam.
type Registrations struct {
	Domain   spiffeid.TrustDomain
	Reader   *registration.Reader
	Registry Remover
	Orders   Orders
	Finder   Finder
}

// ListFlagged answers GET /v1/operator/flagged with flagged registrations of all domains.
func (h *Registrations) ListFlagged(w http.ResponseWriter, call *request.Call) error {
	all := []wire.Flagged{}
	for _, entry := range h.Finder.Flagged(maxFlagged) {
		if e, ok := h.Reader.View.Get(entry.Origin, entry.RID); ok {
			all = append(all, wire.Flagged{
				Agent: e.Agent, Origin: e.Origin.Name(), Href: h.Reader.Render.Href(e), Flags: entry.Flags.Names(),
			})
		}
	}

	return response.Status(w, call, wire.FlaggedList{Flagged: all})
}

// List answers GET /v1/operator/registrations?owner= with the registrations of an
// identity, whether others may see them or not.
func (h *Registrations) List(w http.ResponseWriter, call *request.Call) error {
	text, err := call.Params.One("owner")
	if err != nil {
		return err
	}

	owner, err := directory.ParseIdentity(text)
	if err != nil {
		return directory.Refuse(directory.BadQuery,
			"owner must be a SPIFFE or WIMSE URI, or oauth:ISSUER#SUBJECT, got %.100q", text)
	}

	after, err := call.Params.Cursor()
	if err != nil {
		return err
	}

	return sendOwned(w, call, h.ownedBy(owner, after))
}

func (h *Registrations) ownedBy(owner directory.Identity, after index.Cursor) index.Page {
	query := index.Query{Origin: h.Domain, Count: index.MaxCount, After: after}

	return h.Reader.View.Lookup(query, func(e *directory.Entry) *directory.Entry {
		if e.Owner == owner {
			return e
		}

		return nil
	})
}

func sendOwned(w http.ResponseWriter, call *request.Call, page index.Page) error {
	out := wire.Owned{Registrations: []wire.OwnedRegistration{}}
	for _, e := range page.Entries {
		out.Registrations = append(out.Registrations, wire.OwnedRegistration{
			RID: e.RID.String(), Agent: e.Agent, ExpiresAt: time.UnixMilli(e.ExpiresAt).UTC(),
		})
	}

	if page.More {
		next, err := page.Next.MarshalText()
		if err != nil {
			return err
		}

		out.Next = string(next)
	}

	return response.Status(w, call, out)
}

// Remove answers POST /v1/operator/registrations/end: it removes a page of the
// registrations of an identity, each by a change of its own, and lists them. Next says
// that there are more.
func (h *Registrations) Remove(w http.ResponseWriter, call *request.Call) error {
	var in struct {
		Owner directory.Identity `json:"owner"`
	}
	if err := request.ReadObject(w, call, &in); err != nil {
		return err
	}

	if in.Owner.IsZero() {
		return directory.Refuse(directory.BadRequest,
			"owner is missing: name the identity whose registrations are to be removed").At("/owner")
	}

	// The list must have each registration that the identity has made until now.
	if err := h.Registry.Linearize(call.Context()); err != nil {
		return err
	}

	if err := h.Orders.Precede(call.Context(), directory.ActionEndOwned, in.Owner.String()); err != nil {
		return err
	}

	page := h.ownedBy(in.Owner, index.Cursor{})

	// Policy was asked whether operators may do this; it isn't asked about each.
	caller := h.Reader.Guard.Requester(call)
	caller.Commissioning = true

	caller.PolicyVersion = nil
	for _, e := range page.Entries {
		_, err := h.Registry.Remove(call.Context(), directory.RemoveRequest{Caller: caller, RID: e.RID})

		// A registration may have ended since it was listed.
		if p := directory.ProblemOf(err); err != nil && p != directory.NotFound && p != directory.RegistrationExpired {
			return err
		}
	}

	return sendOwned(w, call, page)
}
