package state

import (
	"errors"
	"testing"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/directorytest"
)

// A proof is good for one command, whatever that came to, until it has ended; a
// restored member knows it too.
//
// Requirement: TRUST-005
func TestAProofIsGoodForOneCommand(t *testing.T) {
	d := newDrive(t)
	rid := d.register(1, ada, "kept", 600)
	first := Spend{directory.Hash{1}, genesis/1000 + 60}
	second := Spend{directory.Hash{2}, genesis/1000 + 61}

	renew := func(seconds int64, p Spend) error {
		return d.at(seconds, Command{Refresh: &Refresh{RID: rid, Caller: ada, Lifetime: 600}, Spend: &p}).Err
	}
	directorytest.Must(t, renew(2, first))

	problem(t, renew(3, first), directory.Replayed)
	problem(t, d.at(4, Command{Refresh: &Refresh{RID: rid, Caller: bob}, Spend: &second}).Err, directory.Forbidden)
	problem(t, renew(5, second), directory.Replayed)

	back := restore(t, d.state)

	problem(t, back.spent.check(&first, back.history.now/1000), directory.Replayed)

	moved := Command{Register: d.registering(ada, "another", 600), Spend: &Spend{directory.Hash{3}, genesis/1000 + 60}}

	moved.Register.Granted.Policy++
	if err := d.at(6, moved).Err; !errors.Is(err, ErrMoved) {
		t.Fatalf("got %v, want that the state has moved", err)
	}

	moved.Register.Granted.Policy--
	d.applies(7, moved)

	directorytest.Must(t, renew(100, Spend{directory.Hash{4}, genesis/1000 + 160}))

	directorytest.Must(t, renew(101, Spend{directory.Hash{5}, genesis/1000 + 161}))

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
		d.state.spent.add(Spend{directory.Hash{1, byte(i), byte(i >> 8), byte(i >> 16)}, genesis/1000 + 60})
	}

	fresh := &Spend{directory.Hash{2}, genesis/1000 + 120}
	problem(t, d.at(1, Command{Register: d.registering(ada, "one", 600), Spend: fresh}).Err, directory.Unavailable)

	d.applies(61, Command{Register: d.registering(ada, "one", 600), Spend: fresh})
}
