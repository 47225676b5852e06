package node

import (
	"slices"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/consensus"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/federation/peering"
	"github.com/roster-mesh/roster/trust"
)

// A membership decides which nodes belong to this node's domain: not by the path of their IDs,
// but by the domain's Raft configuration (rule S7). Of other domains that can't be known.
type membership struct {
	domain     spiffeid.TrustDomain
	node       spiffeid.ID
	store      *consensus.Store
	agreements *peering.Agreements
}

func newMembership(n *Node) membership {
	return membership{n.cfg.TrustDomain, n.id, n.store, n.agreements}
}

// isMember reports whether id is this node or another current member of its domain.
func (m membership) isMember(id spiffeid.ID) bool {
	return id == m.node ||
		slices.ContainsFunc(m.store.RaftPeers(), func(p consensus.RaftPeer) bool { return p.ID == id })
}

// addresses returns the base URLs of the other members' APIs, if they have announced one.
func (m membership) addresses() []string {
	var all []string

	for _, peer := range m.store.RaftPeers() {
		if peer.ID != m.node && peer.API != "" {
			all = append(all, peer.API)
		}
	}

	return all
}

// isStranger reports whether an identity is a node's of this domain that is no member.
func (m membership) isStranger(identity directory.Identity) bool {
	id, ok := identity.SPIFFE()

	return ok && trust.IsNode(id, m.domain) && !m.isMember(id)
}

// inMesh reports whether id is a member of this domain or a node of an actively peered one.
func (m membership) inMesh(id spiffeid.ID) bool {
	td := id.TrustDomain()
	if td == m.domain {
		return trust.IsNode(id, td) && m.isMember(id)
	}

	return trust.IsNode(id, td) && m.agreements.IsActive(td)
}
