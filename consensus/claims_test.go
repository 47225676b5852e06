package consensus

import (
	"bytes"
	"testing"
	"testing/synctest"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/index"
)

func claimOf(key, body, holder byte) *claim {
	return &claim{directory.Hash{key}, directory.Hash{99}, directory.Hash{body}, directory.Hash{holder}, 60, 600}
}

// A key is its first holder's, who says once what came of it; a restored member
// knows as much.
//
// Requirement: AI-012
func TestAKeyIsTheFirstOnes(t *testing.T) {
	d := newDrive(t)
	ask := func(seconds int64, c *claim) (*directory.KeptAnswer, error) {
		r := d.at(seconds, command{Claim: c})
		return r.outcome.Kept, r.err
	}
	tell := func(seconds int64, s *settle) { d.at(seconds, command{Settle: s}) }
	first := func(what string, kept *directory.KeptAnswer, err error) {
		t.Helper()
		if kept != nil || err != nil {
			t.Errorf("%s: %+v, %v; want to be the first", what, kept, err)
		}
	}
	kept, err := ask(1, claimOf(1, 1, 1))
	first("a new key", kept, err)
	kept, err = ask(2, claimOf(1, 1, 1))
	first("the same holder", kept, err)
	_, err = ask(3, claimOf(1, 1, 2))
	problem(t, err, directory.KeyInUse)
	_, err = ask(4, claimOf(1, 2, 2))
	problem(t, err, directory.KeyReused)
	tell(5, &settle{directory.Hash{1}, directory.Hash{2}, false, &answer{Status: 500}})
	tell(6, &settle{directory.Hash{1}, directory.Hash{1}, false, &answer{Status: 200, Body: []byte("{}")}})
	tell(7, &settle{directory.Hash{1}, directory.Hash{1}, true, nil})
	kept, err = ask(8, claimOf(1, 1, 3))
	if err != nil || kept == nil || kept.Status != 200 || string(kept.Body) != "{}" {
		t.Errorf("a repeat: %+v, %v", kept, err)
	}

	_, _ = ask(10, claimOf(2, 1, 1))
	tell(11, &settle{directory.Hash{2}, directory.Hash{1}, true, nil})
	kept, err = ask(12, claimOf(2, 2, 2))
	first("one that was released", kept, err)
	tell(13, &settle{directory.Hash{2}, directory.Hash{2}, false, nil})
	_, err = ask(14, claimOf(2, 2, 3))
	problem(t, err, directory.KeySpent)

	_, _ = ask(20, claimOf(3, 1, 1))
	_, err = ask(80, claimOf(3, 1, 2))
	problem(t, err, directory.KeySpent)

	var h snapshotHeader
	frozen := freeze(t, d.state)
	back, err := readSnapshot(bytes.NewReader(frozen), alpha, index.New(), &h)
	if err != nil {
		t.Fatal(err)
	}
	if again := freeze(t, back); !bytes.Equal(again, frozen) || back.claims.bytes != d.state.claims.bytes || len(back.claims.by) != 1 || back.claims.queue.Len() != 3 {
		t.Errorf("restored: %+v, of %+v", back.claims, d.state.claims)
	}
	d.state = back
	kept, err = ask(600, claimOf(1, 1, 4))
	if err != nil || kept == nil {
		t.Errorf("restored, within its window: %+v, %v", kept, err)
	}
	kept, err = ask(601, claimOf(1, 2, 5))
	first("after its window", kept, err)
	_, err = ask(611, claimOf(2, 2, 6)) // claimed again at 12
	problem(t, err, directory.KeySpent)
	d.at(5000, command{Issue: &issue{}})
	if c := &d.state.claims; len(c.known) != 0 || c.queue.Len() != 0 || len(c.by) != 0 || c.bytes != 0 {
		t.Errorf("%+v is left of keys that have ended", c)
	}
}

// A key that was released and claimed again for a shorter time is kept for as long by
// a member that was restored in between as by the others.
func TestAKeyClaimedAgainEndsOnAllMembersAtOnce(t *testing.T) {
	d := newDrive(t)
	long, short, other := claimOf(1, 1, 1), claimOf(1, 1, 2), claimOf(1, 1, 3)
	short.Window = 60
	d.at(1, command{Claim: long})
	d.at(2, command{Settle: &settle{long.Key, long.Holder, true, nil}})
	d.at(3, command{Claim: short})
	back, err := readSnapshot(bytes.NewReader(freeze(t, d.state)), alpha, index.New(), &snapshotHeader{})
	if err != nil {
		t.Fatal(err)
	}
	restored := &drive{t: t, state: back}
	for _, seconds := range []int64{100, 500, 700} {
		live := d.at(seconds, command{Claim: other}).err
		if got := restored.at(seconds, command{Claim: other}).err; directory.ProblemOf(got) != directory.ProblemOf(live) {
			t.Errorf("after %d s: %v where it was restored, %v elsewhere", seconds, got, live)
		}
	}
}

// Keys are bounded in number, of all and of each caller, and answers in size; what
// has no room refuses rather than forgets.
//
// Requirement: AI-012
func TestKeysAreBounded(t *testing.T) {
	d := newDrive(t)
	key := func(caller, i int) *claim {
		return &claim{directory.Hash{byte(caller), byte(i), byte(i >> 8)}, directory.Hash{byte(caller)}, directory.Hash{}, directory.Hash{1}, 60, 600}
	}
	full := &answer{Status: 200, Body: make([]byte, maxAnswer)}
	for caller := range maxClaims / maxClaimsEach {
		for i := range maxClaimsEach {
			if _, err := d.state.claim(key(caller, i)); err != nil {
				t.Fatal(err)
			}
			if caller == 0 && i <= maxAnswers/maxAnswer {
				d.state.settle(&settle{key(caller, i).Key, directory.Hash{1}, false, full})
			}
		}
	}
	problem(t, d.at(1, command{Claim: key(0, maxClaimsEach)}).err, directory.RateLimited)
	problem(t, d.at(1, command{Claim: key(200, 0)}).err, directory.Unavailable)
	again := key(0, maxAnswers/maxAnswer)
	again.Holder = directory.Hash{2}
	problem(t, d.at(1, command{Claim: again}).err, directory.KeySpent)
	if d.state.claims.bytes > maxAnswers {
		t.Errorf("%d bytes are kept", d.state.claims.bytes)
	}
	if err := (&settle{Answer: full}).check(); err != nil {
		t.Error(err)
	}
	problem(t, (&settle{Answer: &answer{Body: make([]byte, maxAnswer+1)}}).check(), directory.TooLarge)
	problem(t, (&claim{Lease: 60}).check(), directory.BadRequest)
	if err := d.at(601, command{Claim: key(200, 0)}).err; err != nil {
		t.Errorf("once they have ended: %v", err)
	}
}

// A key that was used at one member is known to all, also where the leader is
// another since.
//
// Requirement: AI-012
func TestAKeyIsKnownToAllMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDomain(t, 3, nil)
		d.ready()
		leader, follower := d.leader()
		ask := func(at int, holder byte) (*directory.KeptAnswer, error) {
			return d.nodes[at].Claim(t.Context(), directory.Claim(*claimOf(1, 1, holder)))
		}
		if kept, err := ask(follower, 1); kept != nil || err != nil {
			t.Fatalf("the first: %+v, %v", kept, err)
		}
		_, err := ask(leader, 2)
		problem(t, err, directory.KeyInUse)
		large := &directory.KeptAnswer{Status: 200, ContentType: "application/json", Body: bytes.Repeat([]byte{' '}, maxAnswer)}
		if err := d.nodes[follower].Settle(t.Context(), directory.Settlement{Key: directory.Hash{1}, Holder: directory.Hash{1}, Answer: large}); err != nil {
			t.Fatal(err)
		}
		d.stop(leader)
		eventually(t, "the next leader answers", func() bool {
			kept, err := ask(follower, 3)
			return err == nil && kept != nil && len(kept.Body) == maxAnswer
		})
		over := &directory.KeptAnswer{Body: make([]byte, maxAnswer+1)}
		other := directory.Claim(*claimOf(2, 1, 1))
		if _, err := d.nodes[follower].Claim(t.Context(), other); err != nil {
			t.Fatal(err)
		}
		if err := d.nodes[follower].Settle(t.Context(), directory.Settlement{Key: other.Key, Holder: other.Holder, Answer: over}); err != nil {
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
