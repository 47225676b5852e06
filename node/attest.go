package node

import (
	"context"
	"crypto/ed25519"
	"log/slog"
	"slices"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/consensus"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/limit"
	"github.com/roster-mesh/roster/trust"
)

const (
	attestTimeout  = 10 * time.Second // of one write of the domain
	attestRetry    = time.Second
	attestInterval = time.Hour
)

// attestLines is the rate of log lines about a failure, which repeats each second without a leader.
var attestLines = limit.Rate{PerSecond: 1. / 60, Burst: 1}

// An attester keeps the node's signing key in the domain's key document: it attests the
// key by every SVID that the node gets, and well before the newest attestation's chain
// expires; also when the document has lost it, as that of a node that was removed from the
// domain and came back. When the key is revoked, or an operator rotates it, the node
// makes itself another one.
type attester struct {
	node    spiffeid.ID
	dir     string // of the key
	source  *trust.Source
	store   *consensus.Store
	keyring *trust.Keyring
	log     *slog.Logger

	// busy holds one element while the key is in use or changes. It is not a mutex: the
	// holder waits for a write of the domain, and waiters give up with their contexts.
	busy chan struct{}
	key  *trust.Key
}

// run keeps the key attested until ctx ends.
func (a *attester) run(ctx context.Context) {
	lines := limit.NewLines[struct{}](1, attestLines)

	for ctx.Err() == nil {
		// The channel is taken before the SVID is read, so an SVID that arrives meanwhile closes it.
		rotated := a.source.Changed()

		do := a.attest
		if a.isRevoked(ctx) {
			do = a.rotate
		}

		wait := attestInterval

		if err := do(ctx); err != nil {
			wait = attestRetry

			if ctx.Err() != nil {
				return
			}

			// A node that isn't ready logs that itself; its key waits with it.
			if a.store.Ready() != nil {
				a.wait(ctx, rotated, wait)
				continue
			}

			if skipped, due := lines.Take(struct{}{}); due {
				a.log.Warn("the signing key is not attested yet", "skipped", skipped, "err", err)
			}
		}

		a.wait(ctx, rotated, wait)
	}
}

// wait returns when the key must be attested again.
func (a *attester) wait(ctx context.Context, rotated <-chan struct{}, wait time.Duration) {
	due := time.After(wait)

	var doc *signed.KeyDocument

	for {
		changed := a.store.Agreed()

		// After a failure, the key is attested anew within a second, whatever the document says.
		next := a.store.KeyDocument()
		if next != nil && next != doc && wait > attestRetry {
			doc = next

			if a.isUnlisted(ctx) {
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

// exclusively runs do while the key does not change otherwise.
func (a *attester) exclusively(ctx context.Context, do func() error) error {
	select {
	case a.busy <- struct{}{}:
		defer func() { <-a.busy }()
		return do()
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (a *attester) attest(ctx context.Context) error {
	return a.exclusively(ctx, func() error { return a.publish(ctx, a.key) })
}

// publish puts a key with a new attestation into the key document.
func (a *attester) publish(ctx context.Context, key *trust.Key) error {
	attestation, err := key.Attest(a.source.SVID(), time.Now())
	if err != nil {
		return err
	}

	// Without a leader, the write would hold busy for as long as ctx lasts.
	ctx, cancel := context.WithTimeout(ctx, attestTimeout)
	defer cancel()

	return a.store.Attest(ctx, signed.SigningKey{
		Public:       key.Public(),
		Node:         a.node,
		Cosign:       a.cosign(key),
		Attestations: []string{attestation},
	})
}

// cosign returns the key by which this node cosigns in the domain's epoch; nil while it has none.
func (a *attester) cosign(key *trust.Key) ed25519.PublicKey {
	epoch := a.store.Position().Epoch
	if epoch == 0 {
		return nil
	}

	return key.CosignPublic(a.node.TrustDomain(), epoch)
}

// isUnlisted reports whether the key document lacks this node's key, or lists it as a
// former one, as after a rotation whose response was lost, or without the key by which the node
// cosigns in this epoch.
func (a *attester) isUnlisted(ctx context.Context) (unlisted bool) {
	_ = a.exclusively(ctx, func() error {
		// The newest document: the key may just have changed.
		doc := a.store.KeyDocument()
		unlisted = doc == nil || !doc.SignsBy(a.node, a.key.ID())

		// A restored history begins another epoch, in which the node cosigns by another key. A document of the former
		// epoch is about to be replaced.
		if !unlisted {
			key, err := doc.Key(a.key.ID())
			unlisted = err == nil && doc.Epoch == a.store.Position().Epoch && !key.Cosign.Equal(a.cosign(a.key))
		}

		return nil
	})

	return unlisted
}

// isRevoked reports whether the domain has revoked this node's key.
func (a *attester) isRevoked(ctx context.Context) (revoked bool) {
	_ = a.exclusively(ctx, func() error {
		doc := a.store.KeyDocument()
		revoked = doc != nil && slices.Contains(doc.Revoked, a.key.ID())

		return nil
	})

	return revoked
}

// rotate gives the node another signing key. The former one signs until the key document
// has the new one, and stays listed for some minutes, so that its last signatures are
// accepted.
func (a *attester) rotate(ctx context.Context) error {
	return a.exclusively(ctx, func() error {
		next, err := trust.MakeNextKey(a.dir)
		if err != nil {
			return err
		}

		// The document lists the next key before this node signs by it: no signature is by a key that verifiers don't
		// know.
		if err := a.publish(ctx, next.Key); err != nil {
			return err
		}

		before := a.key.ID()

		key, err := next.Use()
		if err != nil {
			return err // the node signs by the former key until the next attempt
		}

		a.key = key
		a.keyring.SetKey(key)
		a.log.Info("signing key rotated", "before", before, "now", a.key.ID())

		return nil
	})
}
