package state

import (
	"slices"
	"testing"

	"github.com/roster-mesh/roster/directory/signed"
)

// A revoked key is gone for good: out of the key document, which says so, not to be
// attested again by whoever has it, and revoked still after a snapshot and in what a
// restore begins with. Another key of the node takes its place.
//
// Requirement: TRUST-010
func TestARevokedKeyIsGoneForGood(t *testing.T) {
	d := newDrive(t)
	node := must(alphaNode("n0"))
	lost, other := make([]byte, 32), append(make([]byte, 31), 1)
	id := signed.KeyID(lost)
	d.at(1, Command{Attest: &Attest{node, lost, []string{"a.b.c"}, nil}})

	if doc := d.state.keys.issued; len(doc.Keys) != 1 || doc.Keys[0].KeyID() != id {
		t.Fatalf("the key document is %+v", doc)
	}

	d.at(2, Command{Revoke: &Revoke{id}})
	revision := d.state.history.revision
	d.at(3, Command{Attest: &Attest{node, lost, []string{"d.e.f"}, nil}})
	d.at(3, Command{Revoke: &Revoke{id}})

	if d.state.history.revision != revision {
		t.Errorf("revision %d after %d: a revoked key came back, or was revoked twice", d.state.history.revision,
			revision)
	}

	back := restore(t, d.state)

	for what, s := range map[string]*State{"the state": d.state, "a snapshot": back, "a restore": d.state.Outline()} {
		if !slices.Equal(s.keys.revoked, []string{id}) || len(s.keys.byNode) != 0 {
			t.Errorf("by %s %v are revoked, and %v are keys", what, s.keys.revoked, s.keys.byNode)
		}
	}

	d.at(4, Command{Attest: &Attest{node, other, []string{"a.b.c"}, nil}})

	if doc := d.state.keys.issued; len(doc.Keys) != 1 || doc.Keys[0].KeyID() == id ||
		!slices.Equal(doc.Revoked, []string{id}) {
		t.Errorf("the key document is %+v", doc)
	}
}
