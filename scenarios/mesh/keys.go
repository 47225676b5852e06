package mesh

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/roster-mesh/roster/directory"
)

// KeyOf returns the id of the key by which a node signs, as its domain's key
// document has it; empty where there is none.
func (m *Mesh) KeyOf(n *Node) string {
	m.T.Helper()
	ctx, cancel := m.request()
	defer cancel()
	all, _, err := m.client(n, operator).Keys(ctx)
	m.must(err)
	for _, k := range all.Keys {
		if k.Node == n.source.SVID().ID.String() {
			return k.ID
		}
	}
	return ""
}

// RotateKey gives a node another signing key, by its operator's command, which is
// repeated where it isn't known whether it was done.
func (m *Mesh) RotateKey(n *Node) {
	m.T.Helper()
	m.Eventually(time.Minute, n.Name+" has another key", func() error {
		ctx, cancel := m.request()
		defer cancel()
		return m.client(n, operator).RotateKey(ctx)
	})
}

// RevokeKey takes a key of a node's domain back, by its operator's command.
func (m *Mesh) RevokeKey(n *Node, id string) {
	m.T.Helper()
	ctx, cancel := m.request()
	defer cancel()
	m.must(m.noted(m.client(n, operator).RevokeKey(ctx, id), "the key %s is revoked at %s", id, n.Name))
}

// Revoked returns nil when the key document that a node has of another node's
// domain revokes a key.
func (m *Mesh) Revoked(at, of *Node, id string) error {
	m.T.Helper()
	if doc := m.documentAt(at, of); !slices.Contains(doc.Revoked, id) {
		return fmt.Errorf("%s has issue %d, by which %v are revoked", at.Name, doc.Seq, doc.Revoked)
	}
	return nil
}

// Lists reports whether the key document that a node has of another node's domain lists
// a key.
func (m *Mesh) Lists(at, of *Node, id string) bool {
	m.T.Helper()
	_, err := m.documentAt(at, of).Key(id)
	return err == nil
}

// documentAt returns the key document that a node has of another node's domain.
func (m *Mesh) documentAt(at, of *Node) *directory.KeyDocument {
	m.T.Helper()
	res, err := m.asNode(of, at).Get(at.URL() + "/federation/v1/keys?origin=" + of.Domain.Name)
	m.must(err)
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	m.must(err)
	doc, err := directory.ParseKeyDocument(payloadOf(m, string(b)))
	m.must(err)
	return doc
}

// Received returns how many pages and heads of a domain a node has taken and refused,
// by outcome.
func (m *Mesh) Received(at *Node, of string) map[string]uint64 {
	m.T.Helper()
	peers, err := m.peersOf(at)
	m.must(err)
	for _, p := range peers {
		if p.Domain == of {
			return p.Received
		}
	}
	return nil
}
