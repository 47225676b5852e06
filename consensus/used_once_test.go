package consensus

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roster-mesh/roster/consensus/state"
	"github.com/roster-mesh/roster/directory"
)

// A key that was used at one member is known to all, also where the leader is
// another since.
//
// Requirement: AI-012
func TestAKeyIsKnownToAllMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDomain(t, 3, nil)
		d.ready()
		leader, follower := d.leader()

		ask := func(at int, holder byte) (*directory.StoredAnswer, error) {
			return d.nodes[at].Claim(t.Context(), directory.Claim(*claimOf(1, 1, holder)))
		}
		if kept, err := ask(follower, 1); kept != nil || err != nil {
			t.Fatalf("the first: %+v, %v", kept, err)
		}

		_, err := ask(leader, 2)
		problem(t, err, directory.KeyInUse)

		large := &directory.StoredAnswer{Status: 200, ContentType: "application/json",
			Body: bytes.Repeat([]byte{' '}, state.MaxAnswer)}
		if err := d.nodes[follower].Settle(t.Context(),
			directory.Settlement{Key: directory.Hash{1}, Holder: directory.Hash{1}, Answer: large}); err != nil {
			t.Fatal(err)
		}

		d.stop(leader)
		eventually(t, "the next leader answers", func() bool {
			kept, err := ask(follower, 3)
			return err == nil && kept != nil && len(kept.Body) == state.MaxAnswer
		})
		over := &directory.StoredAnswer{Body: make([]byte, state.MaxAnswer+1)}

		other := directory.Claim(*claimOf(2, 1, 1))
		if _, err := d.nodes[follower].Claim(t.Context(), other); err != nil {
			t.Fatal(err)
		}

		if err := d.nodes[follower].Settle(t.Context(),
			directory.Settlement{Key: other.Key, Holder: other.Holder, Answer: over}); err != nil {
			t.Fatal(err)
		}

		other.Holder = directory.Hash{9}
		_, err = d.nodes[follower].Claim(t.Context(), other)
		problem(t, err, directory.KeySpent)
		d.start(leader)
		eventually(t, "the one that was away answers", func() bool {
			kept, err := ask(leader, 4)
			return err == nil && kept != nil
		})
	})
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
