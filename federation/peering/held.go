package peering

import (
	"bytes"
	"maps"
	"slices"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
)

// confirmed returns the bundle of a peering that is to be in force on this node: the domain's, or the one before as
// long as nothing shows where the domain's came from. Without one before it is the domain's.
func (a *Agreements) confirmed(peering directory.Peering) []byte {
	a.mu.Lock()
	defer a.mu.Unlock()

	was, known := a.inForce[peering.Domain]
	held := a.held[peering.Domain]
	delete(a.held, peering.Domain)

	if !known || peering.Endpoint.IsZero() || bytes.Equal(was.Bundle, peering.Bundle) ||
		a.cfg.Proven(peering.Domain, peering.Bundle) {
		return peering.Bundle
	}

	if held == nil || !bytes.Equal(held.Next, peering.Bundle) {
		a.cfg.Logger.Warn("a snapshot brought a new bundle of a peer that no other voter has; the last good one stays "+
			"in force until the peer's endpoint confirms it", "peer", peering.Domain.Name(),
			"endpoint", peering.Endpoint.URL)

		held = &directory.BundleChange{Was: peering, Next: peering.Bundle}
		held.Was.Bundle = was.Bundle
		a.cfg.Judge(held)
	}

	a.held[peering.Domain] = held

	return was.Bundle
}

// note notes an agreement whose bundle is in force.
func (a *Agreements) note(peering directory.Peering) {
	a.mu.Lock()
	defer a.mu.Unlock()

	a.inForce[peering.Domain] = peering
}

// forget forgets the bundle of a domain that is no peer.
func (a *Agreements) forget(td spiffeid.TrustDomain) {
	a.mu.Lock()
	defer a.mu.Unlock()

	delete(a.inForce, td)
	delete(a.held, td)
}

func (a *Agreements) isHeld(td spiffeid.TrustDomain) bool {
	a.mu.Lock()
	defer a.mu.Unlock()

	return a.held[td] != nil
}

// Holds reports whether the bundle of a change waits for its confirmation.
func (a *Agreements) Holds(change *directory.BundleChange) bool {
	a.mu.Lock()
	defer a.mu.Unlock()

	return a.held[change.Was.Domain] == change
}

// Confirm has a bundle put in force that waited for its confirmation.
func (a *Agreements) Confirm(change *directory.BundleChange) {
	a.mu.Lock()
	defer a.mu.Unlock()

	if a.held[change.Was.Domain] != change {
		return
	}

	delete(a.held, change.Was.Domain)

	// Run finds the bundle in force already, and completes that.
	next := change.Was
	next.Bundle = change.Next
	a.inForce[next.Domain] = next

	select {
	case a.recheck <- struct{}{}:
	default:
	}
}

// BundlesInForce returns the directory.BundlesHash of the bundles in force on this node.
func (a *Agreements) BundlesInForce() directory.Hash {
	a.mu.Lock()
	defer a.mu.Unlock()

	return directory.BundlesHash(slices.Collect(maps.Values(a.inForce)))
}
