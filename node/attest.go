package node

import (
	"context"
	"time"

	"github.com/roster-mesh/roster/directory"
)

// attest keeps the node's signing key in the domain's key document: the key is
// attested anew by every SVID that the node gets, and once more well before the
// newest attestation's chain ends.
func (n *Node) attest(ctx context.Context) {
	for ctx.Err() == nil {
		rotated := n.source.Changed()
		wait := time.Second
		if err := n.attestOnce(ctx); err == nil {
			wait = time.Hour
		} else if ctx.Err() == nil {
			n.log.Warn("the signing key is not attested yet", "err", err)
		}
		select {
		case <-ctx.Done():
		case <-rotated:
		case <-time.After(wait):
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
