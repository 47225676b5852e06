package consensus

import (
	"bytes"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/index"
)

// A proof is good for one command, whatever that came to, until it has ended; a
// restored member knows it too.
//
// Requirement: TRUST-005
func TestAProofIsGoodForOneCommand(t *testing.T) {
	d := newDrive(t)
	rid := d.register(1, ada, "kept", 600)
	first, second := spend{directory.Hash{1}, genesis/1000 + 60}, spend{directory.Hash{2}, genesis/1000 + 61}
	renew := func(seconds int64, p spend) error {
		return d.at(seconds, command{Refresh: &refresh{RID: rid, Caller: ada, Lifetime: 600}, Spend: &p}).err
	}
	if err := renew(2, first); err != nil {
		t.Fatal(err)
	}
	problem(t, renew(3, first), directory.Replayed)
	problem(t, d.at(4, command{Refresh: &refresh{RID: rid, Caller: bob}, Spend: &second}).err, directory.Forbidden)
	problem(t, renew(5, second), directory.Replayed)

	var h snapshotHeader
	back, err := readSnapshot(bytes.NewReader(freeze(t, d.state)), alpha, index.New(), &h)
	if err != nil {
		t.Fatal(err)
	}
	problem(t, back.unspent(&first), directory.Replayed)

	moved := command{Register: d.registering(ada, "another", 600), Spend: &spend{directory.Hash{3}, genesis/1000 + 60}}
	moved.Register.Granted.Policy++
	if err := d.at(6, moved).err; !errors.Is(err, errMoved) {
		t.Fatalf("got %v, want that the state has moved", err)
	}
	moved.Register.Granted.Policy--
	if err := d.at(7, moved).err; err != nil {
		t.Errorf("prepared anew: %v", err)
	}

	if err := renew(100, spend{directory.Hash{4}, genesis/1000 + 160}); err != nil {
		t.Fatal(err)
	}
	if err := renew(101, spend{directory.Hash{5}, genesis/1000 + 161}); err != nil {
		t.Fatal(err)
	}
	if n := len(d.state.spent.known); n != 2 || d.state.spent.queue.Len() != 2 {
		t.Errorf("%d proofs are remembered, want those that have not ended", n)
	}
}

// A full set refuses rather than forgets.
//
// Requirement: TRUST-005
func TestProofsAreBounded(t *testing.T) {
	d := newDrive(t)
	for i := range maxSpent {
		d.state.spent.add(spend{directory.Hash{1, byte(i), byte(i >> 8), byte(i >> 16)}, genesis/1000 + 60})
	}
	fresh := &spend{directory.Hash{2}, genesis/1000 + 120}
	problem(t, d.at(1, command{Register: d.registering(ada, "one", 600), Spend: fresh}).err, directory.Unavailable)
	if err := d.at(61, command{Register: d.registering(ada, "one", 600), Spend: fresh}).err; err != nil {
		t.Errorf("once some have ended: %v", err)
	}
}

// Requirement: TRUST-005
func TestAProofIsKnownToAllMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDomain(t, 3, nil)
		d.ready()
		leader, follower := d.leader()
		ask := put(t, ada, "translator", 600)
		ask.Caller.Proof, ask.Caller.ProofUntil = directory.Hash{1}, time.Now().Unix()+120
		if _, err := d.nodes[follower].Register(t.Context(), ask); err != nil {
			t.Fatal(err)
		}
		for _, at := range []int{leader, follower} {
			_, err := d.nodes[at].Register(t.Context(), ask)
			problem(t, err, directory.Replayed)
		}
		alone := directory.Hash{2}
		if err := d.nodes[follower].Spend(t.Context(), alone, time.Now().Unix()+120); err != nil {
			t.Fatal(err)
		}
		problem(t, d.nodes[leader].Spend(t.Context(), alone, time.Now().Unix()+120), directory.Replayed)
		ask = put(t, ada, "translator", 600)
		ask.Caller.Proof, ask.Caller.ProofUntil = alone, time.Now().Unix()+120
		_, err := d.nodes[leader].Register(t.Context(), ask)
		problem(t, err, directory.Replayed)
		d.settled()
	})
}
