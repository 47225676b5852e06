package state

import (
	"testing"

	"github.com/roster-mesh/roster/directory"
)

func claimOf(key, body, holder byte) *Claim {
	return &Claim{directory.Hash{key}, directory.Hash{99}, directory.Hash{body}, directory.Hash{holder}, 60, 600}
}

// A key is its first holder's, who says once what came of it; a restored member
// knows as much.
//
// Requirement: AI-012
func TestAKeyIsTheFirstOnes(t *testing.T) {
	d := newDrive(t)
	ask := func(seconds int64, c *Claim) (*directory.StoredAnswer, error) {
		r := d.at(seconds, Command{Claim: c})
		return r.Outcome.StoredAnswer, r.Err
	}
	tell := func(seconds int64, s *Settle) { d.at(seconds, Command{Settle: s}) }
	first := func(what string, kept *directory.StoredAnswer, err error) {
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
	tell(5, &Settle{directory.Hash{1}, directory.Hash{2}, false, &Answer{Status: 500}})
	tell(6, &Settle{directory.Hash{1}, directory.Hash{1}, false, &Answer{Status: 200, Body: []byte("{}")}})
	tell(7, &Settle{directory.Hash{1}, directory.Hash{1}, true, nil})

	kept, err = ask(8, claimOf(1, 1, 3))
	if err != nil || kept == nil || kept.Status != 200 || string(kept.Body) != "{}" {
		t.Errorf("a repeat: %+v, %v", kept, err)
	}

	_, _ = ask(10, claimOf(2, 1, 1))
	tell(11, &Settle{directory.Hash{2}, directory.Hash{1}, true, nil})
	kept, err = ask(12, claimOf(2, 2, 2))
	first("one that was released", kept, err)
	tell(13, &Settle{directory.Hash{2}, directory.Hash{2}, false, nil})
	_, err = ask(14, claimOf(2, 2, 3))
	problem(t, err, directory.KeySpent)

	_, _ = ask(20, claimOf(3, 1, 1))
	_, err = ask(80, claimOf(3, 1, 2))
	problem(t, err, directory.KeySpent)

	back := restore(t, d.state)
	if back.claims.bytes != d.state.claims.bytes || len(back.claims.by) != 1 || back.claims.queue.Len() != 3 {
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
	d.at(5000, Command{Issue: &Issue{}})

	if c := &d.state.claims; len(c.known) != 0 || c.queue.Len() != 0 || len(c.by) != 0 || c.bytes != 0 {
		t.Errorf("%+v is left of keys that have ended", c)
	}
}

// A key that was released and claimed again for a shorter time is kept for as long by
// a member that was restored in between as by the others.
func TestAKeyClaimedAgainEndsOnAllMembersAtOnce(t *testing.T) {
	d := newDrive(t)
	long := claimOf(1, 1, 1)
	short := claimOf(1, 1, 2)
	other := claimOf(1, 1, 3)
	short.Window = 60
	d.at(1, Command{Claim: long})
	d.at(2, Command{Settle: &Settle{long.Key, long.Holder, true, nil}})
	d.at(3, Command{Claim: short})

	back := restore(t, d.state)

	restored := &drive{t: t, state: back}
	for _, seconds := range []int64{100, 500, 700} {
		live := d.at(seconds, Command{Claim: other}).Err
		if got := restored.at(seconds,
			Command{Claim: other}).Err; directory.ProblemOf(got) != directory.ProblemOf(live) {
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
	key := func(caller, i int) *Claim {
		return &Claim{directory.Hash{byte(caller), byte(i), byte(i >> 8)}, directory.Hash{byte(caller)},
			directory.Hash{}, directory.Hash{1}, 60, 600}
	}

	full := &Answer{Status: 200, Body: make([]byte, MaxAnswer)}
	for caller := range maxClaims / maxClaimsEach {
		for i := range maxClaimsEach {
			if _, err := d.state.claims.claim(key(caller, i), d.state.history.now/1000); err != nil {
				t.Fatal(err)
			}

			if caller == 0 && i <= maxAnswers/MaxAnswer {
				d.state.claims.settle(&Settle{key(caller, i).Key, directory.Hash{1}, false, full})
			}
		}
	}

	problem(t, d.at(1, Command{Claim: key(0, maxClaimsEach)}).Err, directory.RateLimited)
	problem(t, d.at(1, Command{Claim: key(200, 0)}).Err, directory.Unavailable)
	again := key(0, maxAnswers/MaxAnswer)
	again.Holder = directory.Hash{2}
	problem(t, d.at(1, Command{Claim: again}).Err, directory.KeySpent)

	if d.state.claims.bytes > maxAnswers {
		t.Errorf("%d bytes are kept", d.state.claims.bytes)
	}

	if err := (&Settle{Answer: full}).Check(); err != nil {
		t.Error(err)
	}

	problem(t, (&Settle{Answer: &Answer{Body: make([]byte, MaxAnswer+1)}}).Check(), directory.TooLarge)
	problem(t, (&Claim{Lease: 60}).Check(), directory.BadRequest)

	d.applies(601, Command{Claim: key(200, 0)})
}

// The shares of other domains are counted of what is there: keys that end give them back, and a
// restored member counts as the others do.
//
// Requirement: SEC-004, AI-012
func TestSharesOfKeysAreCounted(t *testing.T) {
	d := newDrive(t)
	beta := directory.ForeignClaimant("beta.test")
	answer := &Answer{Status: 200, Body: make([]byte, MaxAnswer)}

	claim := func(number byte, caller directory.Hash) {
		d.at(1, Command{Claim: &Claim{directory.Hash{number}, caller, directory.Hash{}, directory.Hash{1}, 60, 600}})
		d.at(1, Command{Settle: &Settle{directory.Hash{number}, directory.Hash{1}, false, answer}})
	}
	claim(1, beta)
	claim(2, beta)
	claim(3, directory.Hash{99})

	back := restore(t, d.state)

	for _, state := range []*State{d.state, back} {
		c := &state.claims
		if c.other != (keyCount{2, 2 * MaxAnswer}) || c.by[directory.Hash{99}] != (keyCount{1, MaxAnswer}) {
			t.Errorf("other domains hold %+v, and the callers %+v", c.other, c.by)
		}
	}

	d.at(5000, Command{Issue: &Issue{}})

	if c := &d.state.claims; c.other != (keyCount{}) || len(c.by) != 0 {
		t.Errorf("other domains hold %+v, and the callers %+v, of keys that have ended", c.other, c.by)
	}
}
