package directory

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// PeerRules filter one direction of a peering (docs/spec/federation.md, "Peering"). The zero
// value lets everything through. Names, Capabilities and Kinds apply to both directions, the
// other members to imports.
type PeerRules struct {
	// Names are agent names; one that ends in * is a prefix. None lets all names through.
	Names []string `json:"names,omitempty" cbor:"1,keyasint,omitempty"`
	// Capabilities are names or prefixes likewise; an agent must have at least one of them.
	Capabilities []string `json:"capabilities,omitempty" cbor:"2,keyasint,omitempty"`
	Kinds        []Kind   `json:"kinds,omitempty" cbor:"3,keyasint,omitempty"`
	// Records bounds the number of registrations, and Bytes the size of their records on
	// disk; 0 is the node's limit for every peer.
	Records uint64 `json:"records,omitzero" cbor:"4,keyasint,omitempty"`
	Bytes   uint64 `json:"bytes,omitzero" cbor:"5,keyasint,omitempty"`
	// MaxLifetime limits deadlines to this number of seconds after a refresh; 0 is no limit.
	MaxLifetime uint32 `json:"max_lifetime,omitzero" cbor:"6,keyasint,omitempty"`
	// OnStale says how to treat the peer's registrations while it is unreachable:
	// OnStaleHide hides them, OnStaleServe and "" serve them until their deadlines.
	OnStale string `json:"on_stale,omitzero" cbor:"7,keyasint,omitempty"`
	// OwnerShare is the divisor of Records and Bytes for one owner: 1 allows all of them, 0
	// is 16. Registrations whose owner is withheld count as one owner's.
	OwnerShare uint32 `json:"owner_share,omitzero" cbor:"8,keyasint,omitempty"`
}

// The treatment of the registrations of an unreachable peer.
const (
	OnStaleServe = "serve"
	OnStaleHide  = "hide"
)

// Bounds of rules.
const (
	maxRuleItems = 100
	maxRuleItem  = 256 // bytes
)

// CheckImport refuses rules that are invalid for imports.
func (r PeerRules) CheckImport() error {
	if r.OnStale != "" && r.OnStale != OnStaleServe && r.OnStale != OnStaleHide {
		return Refuse(BadRequest, "on_stale must be serve or hide, got %.40q", r.OnStale).At("/import/on_stale")
	}

	return r.check("/import")
}

// CheckExport refuses rules that are invalid for exports.
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

// Admits reports whether the rules let an agent's registration through. proj is called only
// if capabilities matter; it may return nil.
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

// Equal reports whether two sets of rules are the same.
func (r PeerRules) Equal(o PeerRules) bool {
	return slices.Equal(r.Names, o.Names) && slices.Equal(r.Capabilities, o.Capabilities) &&
		slices.Equal(r.Kinds, o.Kinds) &&
		r.Records == o.Records && r.Bytes == o.Bytes && r.OwnerShare == o.OwnerShare &&
		r.MaxLifetime == o.MaxLifetime && r.OnStale == o.OnStale
}

// A PeeringState is the state of a peering.
type PeeringState string

// The states of a peering (federation.md, "Peering").
const (
	PeeringPending    PeeringState = "pending"
	PeeringActive     PeeringState = "active"
	PeeringFrozen     PeeringState = "frozen"
	PeeringTerminated PeeringState = "terminated"
)

// A Peering is the agreement of a domain with a peer: replicated state, set by an operator.
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
	// Secret is the hash of the invitation's secret; zero if the peer was not invited. The
	// first presentation of the secret makes a pending peering active.
	Secret Hash `json:"secret,omitzero"`
	// Until is when the invitation ends, Unix seconds of committed time.
	Until int64 `json:"until,omitempty"`
	// ByPeer is whether it was the peer that ended the peering.
	ByPeer bool `json:"by_peer,omitempty"`
	// Endpoint is the URL from which the peer's bundle is refreshed; zero if only an
	// operator changes the bundle.
	Endpoint BundleEndpoint `json:"bundle_endpoint,omitzero"`
	// Export filters the registrations that policy exports to the peer, and Import those
	// that the peer exports to this domain.
	Export PeerRules `json:"export,omitzero"`
	Import PeerRules `json:"import,omitzero"`
}

// Ended returns the peering as it is once one side has ended it.
func (p Peering) Ended(byPeer bool) Peering {
	p.State = PeeringTerminated
	p.ByPeer = byPeer
	p.Mesh = false
	p.Secret = Hash{}
	p.Until = 0

	return p
}

// Removed returns the peering as it is once the operator has removed it.
func (p Peering) Removed() Peering {
	p = p.Ended(p.ByPeer && p.State == PeeringTerminated)
	p.Export, p.Import = PeerRules{}, PeerRules{}

	return p
}

// Replacing returns the peering with the rules of the one that it replaces, unless that has
// ended: rules are set by themselves.
func (p Peering) Replacing(was Peering) Peering {
	if was.State != "" && was.State != PeeringTerminated {
		p.Export, p.Import = was.Export, was.Import
	}

	return p
}

// Equal reports whether two peerings are the same.
func (p Peering) Equal(peering Peering) bool {
	return p.Domain == peering.Domain && p.State == peering.State && p.Mesh == peering.Mesh &&
		p.Secret == peering.Secret && p.Until == peering.Until && p.ByPeer == peering.ByPeer &&
		p.Endpoint == peering.Endpoint && p.Export.Equal(peering.Export) && p.Import.Equal(peering.Import) &&
		bytes.Equal(p.Bundle, peering.Bundle) &&
		slices.Equal(p.Addresses, peering.Addresses) && slices.Equal(p.Gossip, peering.Gossip)
}

// BundlesHash returns the hash of the bundles of peers that have a bundle endpoint, at which nodes refresh them.
func BundlesHash(peerings []Peering) Hash {
	all := sha256.New()

	for _, peering := range slices.SortedFunc(slices.Values(peerings), func(a, b Peering) int {
		return strings.Compare(a.Domain.Name(), b.Domain.Name())
	}) {
		live := peering.State == PeeringActive || peering.State == PeeringFrozen
		if live && !peering.Endpoint.IsZero() {
			bundle := sha256.Sum256(peering.Bundle)
			_, _ = fmt.Fprintf(all, "%s %x\n", peering.Domain.Name(), bundle)
		}
	}

	return Hash(all.Sum(nil))
}
