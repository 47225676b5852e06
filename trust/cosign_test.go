package trust

import (
	"crypto/ed25519"
	"errors"
	"testing"
	"time"

	"filippo.io/torchwood"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/checkpoint"
	"github.com/roster-mesh/roster/directory/signed"
)

// cosigning gives an origin a key document that lists its node's cosigning key.
func (o *origin) cosigning(t testing.TB, seq uint64) {
	t.Helper()

	key := o.signingKey(t)
	key.Cosign = o.key.CosignPublic(key.Node.TrustDomain(), o.doc.Epoch)
	o.issue(t, seq, key)
}

// A node cosigns by a key that its domain's key document names, which is good for one epoch and is not
// its signing key. Torchwood verifies it.
//
// Requirement: LOG-008
func TestANodeCosignsByAKeyOfItsOwn(t *testing.T) {
	a, b := newOrigin(t, alpha), newOrigin(t, beta)
	b.cosigning(t, 2)
	a.issue(t, 2, a.signingKey(t))

	log := checkpoint.Checkpoint{Origin: a.doc.LogOrigin(), Size: 7, Root: directory.Hash{1}}
	checked, err := checkpoint.Parse(checkpoint.Sign(log, a.key.private))
	must(t, err)

	at := time.Unix(1800000000, 0)
	line, err := b.ring.Cosign(checked, 1, at)
	must(t, err)

	ring, _ := reader(t, a, b)
	_, err = ring.Adopt(beta, b.signKeys(t, b.doc))
	must(t, err)

	keys := ring.WitnessKeys(beta)
	if len(keys) != 1 || keys[0].Name != "beta.test/roster/1/witness/roster/node/1" {
		t.Fatalf("the witness has the keys %v", keys)
	}

	signedBoth, err := checkpoint.Parse(checked.String() + line)
	must(t, err)

	if got, err := signedBoth.Verify(keys[0]); err != nil || !got.Equal(at) {
		t.Errorf("got %v, %v", got, err)
	}

	verifier, err := torchwood.NewCosignatureVerifier(keys[0].String())
	must(t, err)

	lines, err := checkpoint.ParseSignatures(line)
	must(t, err)

	if !verifier.Verify([]byte(log.Text()), lines[0].Bytes) {
		t.Error("torchwood doesn't verify it")
	}

	if keys[0].Key.Equal(b.key.Public()) ||
		b.key.CosignPublic(beta, 1).Equal(b.key.CosignPublic(beta, 2)) ||
		b.key.CosignPublic(beta, 1).Equal(b.key.CosignPublic(alpha, 1)) {
		t.Error("a key serves twice")
	}

	if _, err := b.ring.Cosign(checked, 2, at); !errors.Is(err, signed.ErrKeyUnknown) {
		t.Errorf("in another epoch: got %v", err)
	}

	if _, err := a.ring.Cosign(checked, 1, at); !errors.Is(err, signed.ErrKeyUnknown) {
		t.Errorf("by a key that is not listed: got %v", err)
	}
}

// A node whose key was replaced signs the checkpoint that it has signed before anew.
//
// Requirement: LOG-007
func TestCheckpointsAreByThePresentKey(t *testing.T) {
	a := newOrigin(t, alpha)
	log := checkpoint.Checkpoint{Origin: a.doc.LogOrigin(), Size: 7, Root: directory.Hash{1}}

	for n := range uint64(2) {
		var err error
		a.key, err = OpenKey(t.TempDir())
		must(t, err)
		a.ring.SetKey(a.key)
		a.issue(t, 2+n, a.signingKey(t))

		text, err := a.ring.SignCheckpoint(log)
		must(t, err)
		note, err := checkpoint.Parse(text)
		must(t, err)

		key := checkpoint.VerifierKey{Name: log.Origin, Type: checkpoint.TypeLog, Key: a.key.Public()}
		if _, err := note.Verify(key); err != nil {
			t.Errorf("by key %d: %v", n, err)
		}
	}
}

// The keys of a log are those that its domain's key document lists and an SVID attests.
//
// Requirement: LOG-007
func TestTheKeysOfALogAreThoseOfItsDomain(t *testing.T) {
	a := newOrigin(t, alpha)
	ring, _ := reader(t, a)

	if keys := ring.LogKeys(alpha); keys != nil {
		t.Errorf("before there is a document: %v", keys)
	}

	unattested := a.signingKey(t)
	unattested.Attestations = nil
	_, private, err := ed25519.GenerateKey(nil)
	must(t, err)

	unattested.Public = private.Public().(ed25519.PublicKey)
	a.issue(t, 3, a.signingKey(t), unattested)
	_, err = ring.Adopt(alpha, a.signKeys(t, a.doc))
	must(t, err)

	if keys := ring.LogKeys(alpha); len(keys) != 1 || !keys[0].Key.Equal(a.key.Public()) {
		t.Errorf("with a key that no SVID attests: %v", keys)
	}
}
