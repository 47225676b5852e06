package node

import (
	"slices"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/consensus"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/trust"
)

// A membership decides which nodes belong to this node's domain: not by the path of their IDs,
// but by the domain's Raft configuration (rule S7).
type membership struct {
	domain spiffeid.TrustDomain
	node   spiffeid.ID
	store  *consensus.Store
}

func newMembership(n *Node) membership {
	return membership{n.cfg.TrustDomain, n.id, n.store}
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
