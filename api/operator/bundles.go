package operator

import (
	"net/http"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/api/request"
	"github.com/roster-mesh/roster/api/response"
	"github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/directory"
)

// TrustBundles are the bundles that a node holds: its own domain's and those of peers.
type TrustBundles interface {
	// Publish returns a domain's SPIFFE bundle; a NotFound error if the node holds none.
	Publish(domain spiffeid.TrustDomain) ([]byte, error)
	// List returns the domains with their fingerprints, sorted by name.
	List() []wire.TrustBundle
}

// Bundles answers the routes of trust bundles, by which operators compare the bundles that
// the nodes of two domains hold.
type Bundles struct{ Held TrustBundles }

// Get answers GET /bundles/{domain}, to anyone: a bundle is public.
func (b *Bundles) Get(w http.ResponseWriter, call *request.Call) error {
	name := call.Vars["domain"]

	domain, err := spiffeid.TrustDomainFromString(name)
	if err != nil || domain.Name() != name {
		return directory.Refuse(directory.NotFound, "there is no bundle of %.64q, which is not a trust domain", name)
	}

	bundle, err := b.Held.Publish(domain)
	if err != nil {
		return err
	}

	return response.SendPublic(w, call, "application/json", bundle)
}

// List answers GET /bundles, to operators and auditors: the list names the domain's peers.
func (b *Bundles) List(w http.ResponseWriter, call *request.Call) error {
	return response.Status(w, call, wire.TrustBundles{Bundles: b.Held.List()})
}
