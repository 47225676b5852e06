package directory

import (
	"bytes"
	"slices"
	"strings"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// A Grant says which members of a registration one stream discloses. Policy
// writes it into the command; apply only reads it. A registration without a
// grant for a stream is not in that stream.
type Grant struct {
	Audience Audience
	All      bool     // every member of both objects
	Reg      []string // ours: agent, owner, kind; only where All is false
	Doc      []string // theirs: top-level members of the document
}

// GrantOf returns the grant of what a Sight shows of a document.
func GrantOf(to Audience, s Sight, d Document) Grant {
	if s.IsWhole() {
		return Grant{Audience: to, All: true}
	}
	kind := d.Kind()
	g := Grant{Audience: to, Doc: kind.required()}
	for _, name := range []string{"agent", "kind", "owner"} {
		if s.Allows(kind, "reg", name) {
			g.Reg = append(g.Reg, name)
		}
	}
	for _, m := range d.Members() {
		if s.shows(kind, m.Name) {
			g.Doc = append(g.Doc, m.Name)
		}
	}
	slices.Sort(g.Doc)
	g.Doc = slices.Compact(g.Doc)
	return g
}

// Allows reports whether g discloses the member name of the object reg or doc.
func (g Grant) Allows(object, name string) bool {
	if g.All {
		return true
	}
	if object == "reg" && isProvenance(name) {
		name = memberOwner
	}
	if object == "reg" {
		return slices.Contains(g.Reg, name)
	}
	return slices.Contains(g.Doc, name)
}

// Complete reports whether g holds what a grant must hold for a registration of
// this kind: agent, kind, and the members that the kind requires.
func (g Grant) Complete(k Kind) bool {
	if g.All {
		return true
	}
	for _, name := range k.required() {
		if !slices.Contains(g.Doc, name) {
			return false
		}
	}
	return slices.Contains(g.Reg, "agent") && slices.Contains(g.Reg, "kind")
}

// A PeeringState is how a domain stands to a peer.
type PeeringState string

// The states of a peering (federation.md, "Peering").
const (
	PeeringPending    PeeringState = "pending"
	PeeringActive     PeeringState = "active"
	PeeringFrozen     PeeringState = "frozen"
	PeeringTerminated PeeringState = "terminated"
)

// A Peering is what a domain has agreed with another: replicated state of the
// domain, made by an operator.
type Peering struct {
	Domain spiffeid.TrustDomain `json:"domain"`
	State  PeeringState         `json:"state"`
	// Bundle is the peer's SPIFFE trust bundle (a JWKS), whose X.509 authorities
	// decide who speaks for it.
	Bundle []byte `json:"bundle,omitempty"`
	// Addresses are base URLs of the peer's nodes (https://HOST:PORT).
	Addresses []string `json:"addresses"`
	// Gossip are host:port of the peer's gossip listeners.
	Gossip []string `json:"gossip,omitempty"`
	// Mesh is whether the peer may have our mesh stream.
	Mesh bool `json:"mesh"`
	// Secret is the hash of the invitation's secret; zero where the peer was not
	// invited. Whoever shows the secret of a pending peering makes it active, once.
	Secret Hash `json:"secret,omitzero"`
	// Until is when the invitation ends, Unix seconds of committed time.
	Until int64 `json:"until,omitempty"`
	// ByPeer is whether it was the peer that ended the peering.
	ByPeer bool `json:"by_peer,omitempty"`
	// Endpoint is where the peer's bundle is had anew; zero where an operator alone
	// changes it.
	Endpoint BundleEndpoint `json:"bundle_endpoint,omitzero"`
	// Export is what the peer may have of what policy lets it have, and Import what is
	// taken of what it lets us have.
	Export PeerRules `json:"export,omitzero"`
	Import PeerRules `json:"import,omitzero"`
}

// Equal reports whether two peerings say the same.
func (p Peering) Equal(o Peering) bool {
	return p.Domain == o.Domain && p.State == o.State && p.Mesh == o.Mesh &&
		p.Secret == o.Secret && p.Until == o.Until && p.ByPeer == o.ByPeer && p.Endpoint == o.Endpoint && p.Export.Equal(o.Export) && p.Import.Equal(o.Import) && bytes.Equal(p.Bundle, o.Bundle) &&
		slices.Equal(p.Addresses, o.Addresses) && slices.Equal(p.Gossip, o.Gossip)
}

func sortDomains(ds *[]spiffeid.TrustDomain) {
	slices.SortFunc(*ds, func(a, b spiffeid.TrustDomain) int { return strings.Compare(a.Name(), b.Name()) })
	*ds = slices.Compact(*ds)
}
