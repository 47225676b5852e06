package mesh

import (
	"time"
)

// Key returns the id of the node's signing key in its domain's key document; empty if the
// document lists none.
func (n *Node) Key() string {
	n.env.T.Helper()
	ctx, cancel := request()
	defer cancel()
	all, _, err := n.client(operator).Operator().Keys(ctx)
	n.env.must(err)

	for _, k := range all.Keys {
		if k.Node == n.source.SVID().ID.String() {
			return k.ID
		}
	}

	return ""
}

// RotateKey gives the node another signing key, by its operator's command. The command is
// repeated if its outcome is unknown.
func (n *Node) RotateKey() {
	n.env.T.Helper()
	n.env.Eventually(time.Minute, n.Name+" has another key", func() error {
		ctx, cancel := request()
		defer cancel()

		return n.client(operator).Operator().RotateKey(ctx)
	})
}

// RevokeKey revokes a key of the node's domain, by its operator's command.
func (n *Node) RevokeKey(id string) {
	n.env.T.Helper()
	ctx, cancel := request()
	defer cancel()
	n.env.must(n.env.noted(n.client(operator).Operator().RevokeKey(ctx, id), "the key %s is revoked at %s", id, n.Name))
}

// Received counts the pages and heads of a domain that this node has applied and refused,
// by outcome.
func (n *Node) Received(of string) map[string]uint64 {
	n.env.T.Helper()
	peers, err := n.peers()
	n.env.must(err)

	for _, p := range peers {
		if p.Domain == of {
			return p.Received
		}
	}

	return nil
}
