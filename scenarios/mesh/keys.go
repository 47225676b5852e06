package mesh

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/roster-mesh/roster/directory/signed"
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

// Revoked returns nil if the key document that this node has of another node's domain
// revokes a key.
func (n *Node) Revoked(of *Node, id string) error {
	n.env.T.Helper()

	if doc := n.documentOf(of); !slices.Contains(doc.Revoked, id) {
		return fmt.Errorf("%s has issue %d, which revokes %v", n.Name, doc.Seq, doc.Revoked)
	}

	return nil
}

// documentOf returns the key document that this node has of another node's domain.
func (n *Node) documentOf(of *Node) *signed.KeyDocument {
	n.env.T.Helper()
	res, err := of.asNode(n).Get(n.URL() + "/federation/v1/keys?origin=" + of.Domain.Name)
	n.env.must(err)
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	n.env.must(err)
	doc, err := signed.ParseKeyDocument(payloadOf(n.env, string(b)))
	n.env.must(err)

	return doc
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
