package admission_test

import (
	"sync"
	"testing"

	"github.com/roster-mesh/roster/api/admission"
	"github.com/roster-mesh/roster/limit"
)

// A hold takes no more than its caller's share, however small the parts are in which it grows, and
// gives all of it back.
//
// Requirement: SEC-002
func TestAHoldIsWithinItsCallersShare(t *testing.T) {
	pools := admission.NewPools(admission.Sizes{AnswerBytes: 8 << 20}, nil)
	caller := admission.Caller{Party: limit.Caller{Kind: limit.Own, ID: "spiffe://alpha.test/agent/ada"}}

	const share = 1 << 20

	var holds []*admission.AnswerHold
	for range 4 {
		holds = append(holds, pools.HoldAnswers(caller))
	}

	var parts sync.WaitGroup
	for _, hold := range holds {
		parts.Go(func() {
			for hold.More(1000) == nil {
			}
		})
	}

	parts.Wait()

	if held := pools.Held(admission.AnswerBytesPool); held > share || held < share-4*(16<<10) {
		t.Errorf("%d bytes are held of a share of %d", held, share)
	}

	small := pools.HoldAnswers(admission.Caller{Party: limit.Caller{Kind: limit.Own, ID: "spiffe://alpha.test/a/b"}})
	before := pools.Held(admission.AnswerBytesPool)

	for range 100 {
		if err := small.More(1000); err != nil {
			t.Fatal(err)
		}
	}

	if held := pools.Held(admission.AnswerBytesPool) - before; held > 200_000 {
		t.Errorf("an answer of 100000 bytes takes %d", held)
	}

	// What is left of the share has no room for twice as much, and has for the bytes at hand.
	for _, bytes := range []int64{600_000, 1000} {
		if err := small.More(bytes); err != nil {
			t.Errorf("%d bytes more: %v", bytes, err)
		}
	}

	for _, hold := range append(holds, small) {
		hold.Release()
		hold.Release()

		if hold.More(1) == nil {
			t.Error("a hold grows after its release")
		}
	}

	if held := pools.Held(admission.AnswerBytesPool); held != 0 {
		t.Errorf("%d bytes are held after all", held)
	}
}
