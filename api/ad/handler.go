package ad

import (
	"context"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/api/admission"
	"github.com/roster-mesh/roster/api/registration"
	"github.com/roster-mesh/roster/api/request"
	"github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/directory"
)

// A Registry takes changes for the domain. Its errors are *directory.Error.
type Registry interface {
	registration.Registry
	// RefreshMany is Refresh of many registrations, each with an outcome of its own.
	RefreshMany(context.Context, directory.RefreshBatch) (directory.Outcome, error)
	TransferOwner(context.Context, directory.TransferRequest) (directory.Outcome, error)
	Offers
}

// Offers returns open offers of ownership, as far as this node knows.
type Offers interface {
	// Offer returns the open offer of a registration of the domain.
	Offer(directory.RID) (directory.Offer, bool)
	// Offers returns up to limit offers that an identity makes or is made, in the order of
	// their rids, from the first behind after.
	Offers(party directory.Identity, after directory.RID, limit int) []directory.Offer
}

// Records returns the signed evidence of a registration of any domain.
type Records interface {
	// Record is the registration's signed record, an SD-JWT in compact form with the
	// disclosures that this domain has.
	Record(ctx context.Context, origin spiffeid.TrustDomain, rid directory.RID) (string, error)
	// Proof is the registration's proof file, JSON that roster verify reads.
	Proof(ctx context.Context, origin spiffeid.TrustDomain, rid directory.RID) ([]byte, error)
	// Staple is a small proof file whose page is signed now, for the agent to carry. Only the
	// registration's own domain can make it.
	Staple(origin spiffeid.TrustDomain, rid directory.RID) ([]byte, error)
}

// A Handler answers the routes under /ad, except for the watch.
type Handler struct {
	Domain   spiffeid.TrustDomain
	Reader   *registration.Reader
	Writer   *registration.Writer
	Registry Registry
	Records  Records
	Limiter  *admission.Limiter
	// Operate decides whether an identity may do an operator's action.
	Operate func(id directory.Identity, action string) directory.Decision
	// Past returns the history of a registration of any domain; the error is directory.NotFound or
	// Unavailable.
	Past func(origin spiffeid.TrustDomain, rid directory.RID, before directory.Position) (*directory.Past, error)
	// Recipients returns the peers to which a registration of the domain is sent, or not.
	Recipients func(*directory.Entry) []wire.Recipient
}

// Get returns the handler of GET /ad/r/{id} and its mirror /ad/r/{origin}/{id}
// (jimenez 4.3).
func (h *Handler) Get() request.Handler { return h.Reader.Show(h.Reader.Render.AD()) }
