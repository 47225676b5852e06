package state

import (
	"bytes"
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
)

// Bounds of peerings.
const (
	maxPeerings  = 1000
	maxBundle    = 512 << 10
	maxAddresses = 64
)

// Peerings are the agreements with other domains.
type Peerings struct {
	history *History
	keys    *Keyring
	policy  *PolicyState

	byDomain map[spiffeid.TrustDomain]directory.Peering
}

func newPeerings() Peerings {
	return Peerings{byDomain: map[spiffeid.TrustDomain]directory.Peering{}}
}

// Get returns the peering with a domain, or the zero value.
func (p *Peerings) Get(domain spiffeid.TrustDomain) directory.Peering { return p.byDomain[domain] }

// List returns the peerings, sorted by name.
func (p *Peerings) List() []directory.Peering {
	return slices.SortedFunc(maps.Values(p.byDomain), func(a, b directory.Peering) int {
		return strings.Compare(a.Domain.Name(), b.Domain.Name())
	})
}

// snapshot returns the items of a snapshot, in the order of their domains.
func (p *Peerings) snapshot() (items []Peer) {
	for _, peering := range p.List() {
		items = append(items, Peer(peering))
	}

	return items
}

// Active returns the domains with an active peering, with or without the mesh stream.
func (p *Peerings) Active() (peers []spiffeid.TrustDomain) {
	for domain, peering := range p.byDomain {
		if peering.State == directory.PeeringActive {
			peers = append(peers, domain)
		}
	}

	return peers
}

// Check refuses a peering with an impossible domain, or over a bound.
func (p *Peerings) Check(peer *Peer) error {
	_, known := p.byDomain[peer.Domain]

	switch own := p.history.domain; {
	case peer.Domain == own || peer.Domain.IsZero() || peer.Domain.Name() == directory.Mesh.String():
		return directory.Refuse(directory.BadRequest, "%q cannot be a peer of %s", peer.Domain.Name(), own.Name())
	case !known && len(p.byDomain) >= maxPeerings:
		return directory.Refuse(directory.BadRequest, "there are %d peerings already", maxPeerings)
	case len(peer.Bundle) > maxBundle || len(peer.Addresses) > maxAddresses || len(peer.Gossip) > maxAddresses:
		return directory.Refuse(directory.TooLarge,
			"a peering has a bundle of at most %d bytes and at most %d addresses", maxBundle, maxAddresses)
	}

	return nil
}

// CheckBundle refuses a bundle that is too large.
func CheckBundle(bundle []byte) error {
	if len(bundle) > maxBundle {
		return directory.Refuse(directory.TooLarge,
			"a peer's bundle has at most %d bytes, and this one has %d", maxBundle, len(bundle))
	}

	return nil
}

// set replaces the peering with a domain. The grants' basis moves, so that no grant that
// was decided before is accepted after.
func (p *Peerings) set(c *Peer) {
	next := directory.Peering(*c)
	if old, known := p.byDomain[next.Domain]; known && old.Equal(next) {
		return
	}

	p.byDomain[next.Domain] = next
	p.policy.basis = p.history.next()
	p.keys.issueMesh()
}

// amend replaces a peering, unless another change came first.
func (p *Peerings) amend(c *Amend) error {
	now, known := p.byDomain[c.Peer.Domain]

	// The command names the domain even if there was no peering.
	if !known {
		now.Domain = c.Peer.Domain
	}

	if !now.Equal(directory.Peering(c.Was)) {
		return directory.Refuse(directory.Conflict,
			"the peering with %s was changed by another meanwhile; nothing was changed by you", c.Peer.Domain.Name())
	}

	p.set(&c.Peer)

	return nil
}

// CheckRebundle refuses a bundle of a peer without a bundle endpoint, at which no node can have found it. It
// refuses a bundle whose sequence number is lower than that of the bundle in force, or missing if that has one.
func (p *Peerings) CheckRebundle(c *Rebundle) error {
	peering, known := p.byDomain[c.Domain]
	held := peering.Bundle

	if known && peering.Endpoint.IsZero() {
		return directory.Refuse(directory.Conflict,
			"the peering with %s has no bundle endpoint, so only an operator replaces its bundle; nothing was changed",
			c.Domain.Name())
	}

	if had, numbered := sequenceOf(held); numbered && directory.HashOf(held) == c.Held {
		if has, ok := sequenceOf(c.Bundle); !ok || has < had {
			return directory.Refuse(directory.Conflict,
				"the new bundle of %s is older than the one in force, which has the sequence number %d; nothing was "+
					"changed",
				c.Domain.Name(), had)
		}
	}

	return nil
}

// sequenceOf returns the sequence number of a bundle; false if it has none.
func sequenceOf(bundle []byte) (number uint64, ok bool) {
	var jwks struct {
		Sequence *uint64 `json:"spiffe_sequence"`
	}

	if json.Unmarshal(bundle, &jwks) != nil || jwks.Sequence == nil {
		return 0, false
	}

	return *jwks.Sequence, true
}

// rebundle replaces a peer's bundle, if the peering still has the bundle that the new one was
// compared with. The peer's authorities do not change the exports to it, so no grant is decided
// again.
func (p *Peerings) rebundle(c *Rebundle) {
	peering, known := p.byDomain[c.Domain]

	live := peering.State == directory.PeeringActive || peering.State == directory.PeeringFrozen
	if !known || !live || directory.HashOf(peering.Bundle) != c.Held || bytes.Equal(peering.Bundle, c.Bundle) {
		return
	}

	peering.Bundle = c.Bundle
	p.byDomain[c.Domain] = peering
	p.history.next()
}

// redeem accepts an invitation once: the first to show its secret is the peer. A
// repetition by the same peer is no second use.
func (p *Peerings) redeem(c *Redeem) error {
	peering, known := p.byDomain[c.Peer.Domain]

	next := c.of(peering)

	switch {
	case !known || peering.Secret != c.Secret || c.Secret.IsZero():
		// One refusal stands for all of these, so that a guess shows nothing of the invitation.
	case peering.State == directory.PeeringPending && p.history.now/1000 < peering.Until:
		p.set(&next)

		return nil
	case peering.State == directory.PeeringActive && bytes.Equal(peering.Bundle, next.Bundle):
		return nil
	}

	return refuseInvitation(c.Peer.Domain)
}

// of returns the peering that a redemption makes of a pending one. The settings that the peer may not choose
// stay unchanged.
func (c *Redeem) of(pending directory.Peering) Peer {
	next := c.Peer
	next.Secret = c.Secret
	next.Until = pending.Until
	next.Mesh = pending.Mesh
	next.Export, next.Import = pending.Export, pending.Import

	return next
}

func refuseInvitation(peer spiffeid.TrustDomain) error {
	return directory.Refuse(directory.Forbidden,
		"the invitation is not one of this domain's for %s, or it was used, or it has ended", peer.Name())
}

// mesh returns the domains that get the mesh stream, sorted by name.
func (p *Peerings) mesh() []spiffeid.TrustDomain {
	var list []spiffeid.TrustDomain
	for domain, peering := range p.byDomain {
		if peering.State == directory.PeeringActive && peering.Mesh {
			list = append(list, domain)
		}
	}

	// The key document lists them, so they have one order on all members.
	slices.SortFunc(list, func(a, b spiffeid.TrustDomain) int { return strings.Compare(a.Name(), b.Name()) })

	return list
}
