package directory

import (
	"bytes"
	"slices"
	"strings"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// PeerRules are what a domain lets through of one direction of a peering
// (federation.md, "Peering"). The zero value lets everything through. The first
// three are for both directions, the others for what comes in.
type PeerRules struct {
	// Names are of agents, and one that ends in * is a prefix; none lets all through.
	Names []string `json:"names,omitempty" cbor:"1,keyasint,omitempty"`
	// Capabilities are names likewise, of which an agent has at least one.
	Capabilities []string `json:"capabilities,omitempty" cbor:"2,keyasint,omitempty"`
	Kinds        []Kind   `json:"kinds,omitempty" cbor:"3,keyasint,omitempty"`
	// Records is how many registrations are held at most, and Bytes how large their
	// records may be together on disk; 0 is for what the node allows every peer.
	Records uint64 `json:"records,omitzero" cbor:"4,keyasint,omitempty"`
	Bytes   uint64 `json:"bytes,omitzero" cbor:"5,keyasint,omitempty"`
	// MaxLifetime clips deadlines, in seconds after they were set; 0 doesn't.
	MaxLifetime uint32 `json:"max_lifetime,omitzero" cbor:"6,keyasint,omitempty"`
	// OnStale is what becomes of what was had when the peer hasn't been heard for
	// long: OnStaleHide, or it is served to its deadlines.
	OnStale string `json:"on_stale,omitzero" cbor:"7,keyasint,omitempty"`
	// OwnerShare is which part of Records and Bytes the registrations of one owner may
	// take, one in so many: 1 is all, 0 one in 16. Those whose owner is withheld are one
	// owner's.
	OwnerShare uint32 `json:"owner_share,omitzero" cbor:"8,keyasint,omitempty"`
}

// What may be done with the registrations of a peer that isn't heard.
const (
	OnStaleServe = "serve" // as nothing
	OnStaleHide  = "hide"
)

// Bounds of rules.
const (
	maxRuleItems = 100
	maxRuleItem  = 256 // bytes
)

// CheckImport and CheckExport say what is wrong with rules for that direction.
func (r PeerRules) CheckImport() error {
	if r.OnStale != "" && r.OnStale != OnStaleServe && r.OnStale != OnStaleHide {
		return Refuse(BadRequest, "on_stale must be serve or hide, got %.40q", r.OnStale).At("/import/on_stale")
	}

	return r.check("/import")
}

// CheckExport is CheckImport for the other direction.
func (r PeerRules) CheckExport() error {
	if r.Records != 0 || r.Bytes != 0 || r.OwnerShare != 0 || r.MaxLifetime != 0 || r.OnStale != "" {
		return Refuse(BadRequest, "quotas, max_lifetime and on_stale apply to imports only").At("/export")
	}

	return r.check("/export")
}

func (r PeerRules) check(at string) error {
	for name, list := range map[string][]string{"/names": r.Names, "/capabilities": r.Capabilities} {
		if len(list) > maxRuleItems {
			return Refuse(BadRequest, "there are %d items; at most %d are allowed", len(list), maxRuleItems).
				At(at + name)
		}

		for _, s := range list {
			if s == "" || len(s) > maxRuleItem || strings.Contains(strings.TrimSuffix(s, "*"), "*") {
				return Refuse(BadRequest, "%.100q must be a name, or a prefix of names with * at its end", s).
					At(at + name)
			}
		}
	}

	if len(r.Kinds) > maxRuleItems {
		return Refuse(BadRequest, "there are %d kinds; at most %d are allowed", len(r.Kinds), maxRuleItems).
			At(at + "/kinds")
	}

	for _, k := range r.Kinds {
		if _, err := ParseKind(string(k)); err != nil {
			return Refuse(BadRequest, "%.40q is not a kind", k).At(at + "/kinds")
		}
	}

	return nil
}

// Admits reports whether rules let an agent's registration through. proj is called
// where capabilities matter; it may return nil.
func (r *PeerRules) Admits(agent string, kind Kind, proj func() *Projection) bool {
	if len(r.Names) > 0 && !matchesAny(r.Names, agent) || len(r.Kinds) > 0 && !slices.Contains(r.Kinds, kind) {
		return false
	}

	if len(r.Capabilities) == 0 {
		return true
	}

	p := proj()

	return p != nil && slices.ContainsFunc(p.Capabilities, func(c Capability) bool {
		return matchesAny(r.Capabilities, c.Name)
	})
}

func matchesAny(patterns []string, s string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		prefix, open := strings.CutSuffix(p, "*")
		return s == p || open && strings.HasPrefix(s, prefix)
	})
}

// Equal reports whether two say the same.
func (r PeerRules) Equal(o PeerRules) bool {
	return slices.Equal(r.Names, o.Names) && slices.Equal(r.Capabilities, o.Capabilities) &&
		slices.Equal(r.Kinds, o.Kinds) &&
		r.Records == o.Records && r.Bytes == o.Bytes && r.OwnerShare == o.OwnerShare &&
		r.MaxLifetime == o.MaxLifetime && r.OnStale == o.OnStale
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
func (p Peering) Equal(peering Peering) bool {
	return p.Domain == peering.Domain && p.State == peering.State && p.Mesh == peering.Mesh &&
		p.Secret == peering.Secret && p.Until == peering.Until && p.ByPeer == peering.ByPeer &&
		p.Endpoint == peering.Endpoint && p.Export.Equal(peering.Export) && p.Import.Equal(peering.Import) &&
		bytes.Equal(p.Bundle, peering.Bundle) &&
		slices.Equal(p.Addresses, peering.Addresses) && slices.Equal(p.Gossip, peering.Gossip)
}
