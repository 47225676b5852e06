package node

import (
	"context"
	"slices"
	"time"

	"github.com/roster-mesh/roster/directory"
)

// attest keeps the node's signing key in the domain's key document: the key is
// attested anew by every SVID that the node gets, and once more well before the
// newest attestation's chain ends; also when the document has lost it, as that of
// a node that was taken out of the domain and came back.
func (n *Node) attest(ctx context.Context) {
	for ctx.Err() == nil {
		rotated := n.source.Changed()
		wait := time.Second
		if err := n.attestOnce(ctx); err == nil {
			wait = time.Hour
		} else if ctx.Err() == nil {
			n.log.Warn("the signing key is not attested yet", "err", err)
		}
		n.attestationDue(ctx, rotated, wait)
	}
}

// attestationDue waits until the key is to be attested again.
func (n *Node) attestationDue(ctx context.Context, rotated <-chan struct{}, wait time.Duration) {
	due := time.After(wait)
	var doc *directory.KeyDocument
	for {
		changed := n.store.Changed()
		if next := n.store.KeyDocument(); next != nil && next != doc && wait > time.Second {
			if doc = next; !slices.ContainsFunc(doc.Keys, func(k directory.SigningKey) bool { return k.Node == n.id }) {
				return
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-rotated:
			return
		case <-due:
			return
		case <-changed:
		}
	}
}

func (n *Node) attestOnce(ctx context.Context) error {
	statement, err := n.key.Attest(n.source.SVID(), time.Now())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return n.store.Attest(ctx, directory.SigningKey{
		Public: n.key.Public(), Node: n.id, Attestations: []string{statement},
	})
}
