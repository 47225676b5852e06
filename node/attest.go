package node

import (
	"context"
	"slices"
	"time"

	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/trust"
)

// attest keeps the node's signing key in the domain's key document: the key is
// attested anew by every SVID that the node gets, and once more well before the
// newest attestation's chain ends; also when the document has lost it, as that of
// a node that was taken out of the domain and came back. Where the key is revoked,
// or an operator wants another, the node makes itself one.
func (n *Node) attest(ctx context.Context) {
	var told time.Time // without a leader it fails each second
	for ctx.Err() == nil {
		rotated := n.source.Changed()
		wait := time.Second
		do := n.attestOnce
		if n.revoked(ctx) {
			do = n.rotateKey
		}
		if err := do(ctx); err == nil {
			wait = time.Hour
		} else if ctx.Err() == nil && time.Since(told) >= time.Minute {
			told = time.Now()
			n.log.Warn("the signing key is not attested yet", "err", err)
		}
		n.attestationDue(ctx, rotated, wait)
	}
}

// attestationDue waits until the key is to be attested again.
func (n *Node) attestationDue(ctx context.Context, rotated <-chan struct{}, wait time.Duration) {
	due := time.After(wait)
	var doc *signed.KeyDocument
	for {
		changed := n.store.Agreed()
		if next := n.store.KeyDocument(); next != nil && next != doc && wait > time.Second {
			if doc = next; n.unlisted(ctx) {
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

// withKey does what nobody else may change the node's key meanwhile. It is no mutex: one
// write of the domain is waited for within, and who waits for that gives up with ctx.
func (n *Node) withKey(ctx context.Context, do func() error) error {
	select {
	case n.keys <- struct{}{}:
		defer func() { <-n.keys }()
		return do()
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (n *Node) attestOnce(ctx context.Context) error {
	return n.withKey(ctx, func() error { return n.attestKey(ctx, n.key) })
}

func (n *Node) attestKey(ctx context.Context, key *trust.Key) error {
	statement, err := key.Attest(n.source.SVID(), time.Now())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return n.store.Attest(ctx, signed.SigningKey{
		Public: key.Public(), Node: n.id, Attestations: []string{statement},
	})
}

// unlisted reports whether the domain's key document lacks this node's key, or lists it
// as one that the node had before, as when the answer to a rotation was lost.
func (n *Node) unlisted(ctx context.Context) (yes bool) {
	_ = n.withKey(ctx, func() error {
		doc := n.store.KeyDocument() // not one from before: the key may just have changed
		yes = doc == nil || !doc.SignsBy(n.id, n.key.ID())
		return nil
	})
	return yes
}

// revoked reports whether the domain has taken this node's key back.
func (n *Node) revoked(ctx context.Context) (yes bool) {
	_ = n.withKey(ctx, func() error {
		doc := n.store.KeyDocument()
		yes = doc != nil && slices.Contains(doc.Revoked, n.key.ID())
		return nil
	})
	return yes
}

// rotateKey gives the node another signing key. The one before signs until the
// domain's key document has the new one, which lists both for some minutes: what is
// still under way then is believed.
func (n *Node) rotateKey(ctx context.Context) error {
	return n.withKey(ctx, func() error { return n.makeKey(ctx) })
}

// makeKey is rotateKey for who may change the key.
func (n *Node) makeKey(ctx context.Context) error {
	next, err := trust.MakeNextKey(n.cfg.Data)
	if err != nil {
		return err
	}
	if err := n.attestKey(ctx, next.Key); err != nil {
		return err
	}
	before := n.key.ID()
	if n.key, err = next.Use(); err != nil {
		return err
	}
	n.keyring.SetKey(n.key)
	n.log.Info("the node has another signing key", "before", before, "now", n.key.ID())
	return nil
}
