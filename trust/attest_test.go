package trust

import (
	"crypto/ed25519"
	"errors"
	"testing"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
)

// An attestation of a key of another length is none: a verification by it would panic.
//
// Requirement: TRUST-012
func TestAnAttestedKeyHasItsLength(t *testing.T) {
	node := newOrigin(t, alpha).svid.ID

	for _, size := range []int{0, ed25519.PublicKeySize - 1, ed25519.PublicKeySize, ed25519.PublicKeySize + 1} {
		a := &attestation{node: node, public: make([]byte, size), time: 1}

		_, err := parseAttestation(a.payload())
		if want := size != ed25519.PublicKeySize; errors.Is(err, errAttestation) != want {
			t.Errorf("a key of %d bytes: %v", size, err)
		}
	}
}

// A signing key is taken with attestations that hold: not with any text beside one, with another
// node's or key's, or where the domain's authorities are not known (finding 38).
//
// Requirement: TRUST-012
func TestAttestationsAreJudged(t *testing.T) {
	own, other := newOrigin(t, alpha), newOrigin(t, alpha)
	_, bundles := reader(t, own)
	good, foreign := own.signingKey(t), other.signingKey(t)

	with := func(key signed.SigningKey, attestations ...string) signed.SigningKey {
		key.Attestations = attestations
		return key
	}

	if err := CheckAttestations(good, bundles); err != nil {
		t.Errorf("an attestation that holds: %v", err)
	}

	for name, key := range map[string]signed.SigningKey{
		"any text":                  with(good, "a.b.c"),
		"any text beside one":       with(good, good.Attestations[0], "any text"),
		"of another key":            with(good, foreign.Attestations[0]),
		"by an unknown authority":   foreign,
		"one that is cut":           with(good, good.Attestations[0][:len(good.Attestations[0])-2]),
		"of a key in another place": with(foreign, good.Attestations[0]),
	} {
		if err := CheckAttestations(key, bundles); directory.ProblemOf(err) != directory.BadRequest {
			t.Errorf("%s: %v", name, err)
		}
	}
}
