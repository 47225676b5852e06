package trust

import (
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory/checkpoint"
	"github.com/roster-mesh/roster/directory/signed"
)

// CosignKey returns the key by which the node cosigns checkpoints of other logs during an epoch of its
// domain: one key must not serve two types of signatures, and a domain that was restored after the loss
// of its disks must not cosign by its former keys. It is derived, so nothing more is stored.
func (k *Key) CosignKey(domain spiffeid.TrustDomain, epoch uint64) ed25519.PrivateKey {
	info := fmt.Sprintf("roster cosignature/v1 %s %d", domain.Name(), epoch)

	seed, err := hkdf.Key(sha256.New, k.private.Seed(), nil, info, ed25519.SeedSize)
	if err != nil {
		panic(err) // 32 bytes are never too many
	}

	return ed25519.NewKeyFromSeed(seed)
}

// CosignPublic returns the public half of CosignKey.
func (k *Key) CosignPublic(domain spiffeid.TrustDomain, epoch uint64) ed25519.PublicKey {
	return k.CosignKey(domain, epoch).Public().(ed25519.PublicKey)
}

// Cosign returns this node's cosignature of a checkpoint, for an epoch of its domain and a time at which
// the domain has taken it. The error is signed.ErrKeyUnknown unless the domain's key document is of that
// epoch and lists the node's cosigning key.
func (r *Keyring) Cosign(note *checkpoint.Note, epoch uint64, at time.Time) (string, error) {
	r.mu.Lock()
	key, own := r.key, r.own
	r.mu.Unlock()

	private := key.CosignKey(r.domain, epoch)

	if own == nil || own.Epoch != epoch {
		return "", fmt.Errorf("%w: there is no key document of epoch %d", signed.ErrKeyUnknown, epoch)
	}

	listed, err := own.Key(key.ID())
	if err != nil {
		return "", err
	}

	// Verifiers know the listed key alone, so a cosignature by another one would count nowhere.
	if !listed.Cosign.Equal(private.Public()) {
		return "", fmt.Errorf("%w: the key document does not list this node's cosigning key", signed.ErrKeyUnknown)
	}

	return checkpoint.Cosign(note, own.WitnessName(listed.Node), private, at), nil
}

// LogKeys returns the keys by which checkpoints of an origin's present ledger may be signed, by its
// newest key document: those that it does not revoke and that an SVID attests now.
func (r *Keyring) LogKeys(origin spiffeid.TrustDomain) (keys []checkpoint.VerifierKey) {
	doc := r.held(origin)
	if doc == nil {
		return nil
	}

	for _, key := range doc.Keys {
		// For another domain, find requires an attestation that holds now, unlike doc.Key.
		if _, err := r.find(origin, key.KeyID()); err == nil {
			keys = append(keys, checkpoint.VerifierKey{
				Name: doc.LogOrigin(), Type: checkpoint.TypeLog, Key: key.Public,
			})
		}
	}

	return keys
}

// WitnessKeys returns the keys by which an origin's nodes cosign checkpoints, by its newest key document.
func (r *Keyring) WitnessKeys(origin spiffeid.TrustDomain) (keys []checkpoint.VerifierKey) {
	doc := r.held(origin)
	if doc == nil {
		return nil
	}

	for _, key := range doc.Keys {
		// A listed key need not come with a cosigning key.
		if _, err := r.find(origin, key.KeyID()); err == nil && key.Cosign != nil {
			keys = append(keys, checkpoint.VerifierKey{
				Name: doc.WitnessName(key.Node), Type: checkpoint.TypeWitness, Key: key.Cosign,
			})
		}
	}

	return keys
}

// held returns the newest key document of an origin; nil if there is none.
func (r *Keyring) held(origin spiffeid.TrustDomain) *signed.KeyDocument {
	r.mu.Lock()
	defer r.mu.Unlock()

	if origin == r.domain {
		return r.own
	}

	if held := r.origins[origin]; held != nil {
		return held.doc
	}

	return nil
}
