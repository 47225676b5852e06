package state

import (
	"fmt"
	"slices"
	"testing"

	"github.com/roster-mesh/roster/directory/signed"
)

// A key that its node changed is listed beside the new one for five minutes, also by
// who takes over from a snapshot; a key that was revoked is not, nor with it those that
// its node had before, nor any of a node that has left.
//
// Requirement: TRUST-010
func TestRotatedKeysOverlap(t *testing.T) {
	d := newDrive(t)
	public := func(b byte) []byte { return append(make([]byte, 31), b) }
	attests := func(node string, b byte) Command {
		return Command{Attest: &Attest{must(alphaNode(node)), public(b), []string{fmt.Sprint("by ", b)}, nil}}
	}
	revokes := func(b byte) Command { return Command{Revoke: &Revoke{signed.KeyID(public(b))}} }
	lists := func(when string, want ...byte) {
		t.Helper()

		var got []byte
		for _, k := range d.state.keys.issued.Keys {
			got = append(got, k.Public[31])
		}

		if !slices.Equal(got, want) {
			t.Errorf("%s the document lists %v, want %v", when, got, want)
		}

		if _, err := signed.ParseKeyDocument(d.state.keys.issued.Payload()); err != nil {
			t.Errorf("%s nobody would take the document: %v", when, err)
		}
	}
	reissued := func(seconds int64) {
		t.Helper()

		if d.state.keys.OverlapEnded(d.state.history.now) {
			t.Errorf("an overlap has ended before %d", seconds)
		}

		if !d.state.keys.OverlapEnded(genesis + seconds*1000) {
			t.Fatalf("none has ended at %d", seconds)
		}

		d.at(seconds, Command{Issue: &Issue{d.state.keys.issued.Seq}})
	}

	d.at(1, attests("n1", 1))
	d.at(2, attests("n2", 2))
	d.at(10, attests("n1", 11))
	lists("after a rotation", 11, 2, 1)
	d.at(20, attests("n2", 12))
	lists("after another", 11, 12, 1, 2)

	read := restore(t, d.state)

	if !slices.EqualFunc(read.keys.rotated, d.state.keys.rotated, func(a, b rotatedKey) bool {
		return a.until == b.until && a.Public.Equal(b.Public)
	}) {
		t.Errorf("a snapshot keeps %v of %v", read.keys.rotated, d.state.keys.rotated)
	}

	d.at(309, attests("n1", 11))
	lists("just before the end", 11, 12, 1, 2)
	reissued(310)
	lists("at the end", 11, 12, 2)
	d.at(311, attests("n2", 2))
	lists("where a node takes its old key again", 11, 2, 12)
	d.at(312, attests("n1", 21))
	d.at(313, revokes(11))
	lists("where the old key is revoked", 21, 2, 12)
	d.at(314, attests("n1", 31))
	d.at(315, revokes(31))
	lists("where the new key is revoked", 2, 12)
	d.at(316, Command{Member: &Member{ID: must(alphaNode("n2")), Gone: true}})
	lists("where the node has left")

	for b := byte(50); b < 120; b++ {
		d.at(320, attests("n3", b))
	}

	if n := len(d.state.keys.issued.Keys); n != 1+maxRotated {
		t.Errorf("a node that rotates all the time has %d keys in the document", n)
	}
}

// Nobody takes a key document that lists a key twice, or more keys than there may be.
func TestRotatedKeysLeaveTheDocumentFitToBeTaken(t *testing.T) {
	d := newDrive(t)
	public := func(b byte) []byte { return append(make([]byte, 31), b) }
	attests := func(node string, b byte) {
		d.at(1, Command{Attest: &Attest{must(alphaNode(node)), public(b), []string{"a.b.c"}, nil}})

		if _, err := signed.ParseKeyDocument(d.state.keys.issued.Payload()); err != nil ||
			len(d.state.keys.issued.Keys) > signed.MaxSigningKeys {
			t.Fatalf("%d keys: %v", len(d.state.keys.issued.Keys), err)
		}
	}
	attests("n1", 1)
	attests("n1", 2)
	attests("n2", 1) // as with a copy of the other's disk

	if len(d.state.keys.rotated) > 0 {
		t.Errorf("the key of one node is another's that it had before: %v", d.state.keys.rotated)
	}

	for b := byte(3); b < signed.MaxSigningKeys-1; b++ {
		attests(fmt.Sprint("m", b), b)
	}

	for b := byte(100); b < 110; b++ {
		attests("n1", b)
	}

	keys := d.state.keys.issued.Keys
	if len(keys) != signed.MaxSigningKeys || keys[len(keys)-1].Public[31] != 108 {
		t.Errorf("%d keys, of which the last was %d", len(keys), keys[len(keys)-1].Public[31])
	}
}
