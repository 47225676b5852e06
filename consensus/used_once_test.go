package consensus

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/roster-mesh/roster/consensus/state"
	"github.com/roster-mesh/roster/directory"
)

// A key that was used at one member is known to all, also where the leader is
// another since.
//
// Requirement: AI-012
func TestAKeyIsKnownToAllMembers(t *testing.T) {
	inDomain(t, 3, nil, func(t *testing.T, d *domain) {
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
		must(t, d.nodes[follower].Settle(t.Context(),
			directory.Settlement{Key: directory.Hash{1}, Holder: directory.Hash{1}, Answer: large}))

		d.stop(leader)
		eventually(t, "the next leader answers", func() bool {
			kept, err := ask(follower, 3)
			return err == nil && kept != nil && len(kept.Body) == state.MaxAnswer
		})
		over := &directory.StoredAnswer{Body: make([]byte, state.MaxAnswer+1)}

		other := directory.Claim(*claimOf(2, 1, 1))
		_, err = d.nodes[follower].Claim(t.Context(), other)
		must(t, err)

		must(t, d.nodes[follower].Settle(t.Context(),
			directory.Settlement{Key: other.Key, Holder: other.Holder, Answer: over}))

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
	inDomain(t, 3, nil, func(t *testing.T, d *domain) {
		leader, follower := d.leader()
		ask := put(t, ada, "translator", 600)

		ask.Caller.Proof, ask.Caller.ProofUntil = directory.Hash{1}, time.Now().Unix()+120
		_, err := d.nodes[follower].Register(t.Context(), ask)
		must(t, err)

		for _, at := range []int{leader, follower} {
			_, err := d.nodes[at].Register(t.Context(), ask)
			problem(t, err, directory.Replayed)
		}

		alone := directory.Hash{2}
		must(t, d.nodes[follower].Spend(t.Context(), alone, time.Now().Unix()+120))

		problem(t, d.nodes[leader].Spend(t.Context(), alone, time.Now().Unix()+120), directory.Replayed)
		ask = put(t, ada, "translator", 600)
		ask.Caller.Proof, ask.Caller.ProofUntil = alone, time.Now().Unix()+120
		_, err = d.nodes[leader].Register(t.Context(), ask)
		problem(t, err, directory.Replayed)
		d.settled()
	})
}

// All other domains together have half of the Idempotency-Keys. The leader refuses further ones before
// they are in the log, and the own domain's callers still get theirs.
//
// Requirement: SEC-004, AI-012
func TestOtherDomainsHaveAShareOfTheKeys(t *testing.T) {
	inDomain(t, 1, nil, func(t *testing.T, d *domain) {
		claim := func(caller directory.Hash, number uint32) *state.Claim {
			one := claimOf(1, 1, 1)
			one.Caller = caller
			one.Key = directory.HashOf(fmt.Append(caller[:], number))

			return one
		}

		const domains, each = 8, 1 << 12

		var commands []state.Command
		for i := range uint32(domains * each) {
			caller := directory.ForeignClaimant(fmt.Sprintf("d%d.test", i/each))
			commands = append(commands, state.Command{Claim: claim(caller, i)})
		}

		replica := d.nodes[0].Replica
		batch := &state.Batch{Version: replica.Written().Log, Time: time.Now().UnixMilli(), Commands: commands}

		replica.mu.Lock()
		_, err := replica.state.Apply(batch)
		replica.mu.Unlock()

		must(t, err)

		before := d.nodes[0].group.raft.LastIndex()

		_, err = d.nodes[0].Claim(t.Context(), directory.Claim(*claim(directory.ForeignClaimant("new.test"), 1)))
		problem(t, err, directory.Unavailable)

		if added := d.nodes[0].group.raft.LastIndex() - before; added > 0 {
			t.Errorf("the refusal left %d entries in the log", added)
		}

		_, err = d.nodes[0].Claim(t.Context(), directory.Claim(*commands[0].Claim))
		if err != nil {
			t.Errorf("a key that is known: %v", err)
		}

		if _, err := d.nodes[0].Claim(t.Context(), directory.Claim(*claim(directory.Hash{99}, 1))); err != nil {
			t.Errorf("a key of the own domain: %v", err)
		}
	})
}

// One other domain has an eighth of the memory for answers to Idempotency-Keys. A key whose answer
// has no room stays used.
//
// Requirement: SEC-004, AI-012
func TestADomainHasAShareOfTheAnswers(t *testing.T) {
	inDomain(t, 1, nil, func(t *testing.T, d *domain) {
		kept := func(caller directory.Hash, number int) bool {
			claim := directory.Claim(*claimOf(1, 1, 1))
			claim.Caller = caller
			claim.Key = directory.HashOf(fmt.Append(caller[:], number))

			_, err := d.nodes[0].Claim(t.Context(), claim)
			must(t, err)

			must(t, d.nodes[0].Settle(t.Context(), directory.Settlement{Key: claim.Key, Holder: claim.Holder,
				Answer: &directory.StoredAnswer{Status: 200, Body: make([]byte, state.MaxAnswer)}}))

			claim.Holder = directory.Hash{2}
			answer, err := d.nodes[0].Claim(t.Context(), claim)

			if answer == nil && directory.ProblemOf(err) != directory.KeySpent {
				t.Fatalf("a repetition: %v", err)
			}

			return answer != nil
		}

		answers := 0
		for answers < 100 && kept(directory.ForeignClaimant("beta.test"), answers) {
			answers++
		}

		if answers != 64 {
			t.Errorf("%d answers of a domain are kept, want 64", answers)
		}

		if !kept(directory.ForeignClaimant("gamma.test"), 0) || !kept(directory.Hash{99}, 0) {
			t.Error("the answer of another domain, or of a caller of this one, is not kept")
		}
	})
}
