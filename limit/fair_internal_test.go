package limit

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// A party has its share of the slots however its work ends, and leaves nothing behind: places come back when work
// leaves, is refused, gives up or is canceled.
func TestAPartyKeepsItsBoundAndLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewFair(FairConfig{Slots: 3, PerParty: 1, Places: Divide(24, nil), Patience: time.Second})
		one := Caller{Kind: Own, ID: "one"}

		enter := func(ctx context.Context) (leave func()) {
			leave, err := f.Enter(ctx, one)
			if err != nil {
				return nil
			}

			return leave
		}

		for range 20 { // more than there are places
			leave := enter(t.Context())
			if leave == nil {
				t.Fatal("a party that holds nothing gets no slot")
			}

			// While one works, others of the party give up, are canceled and wait. None works beside it.
			if enter(t.Context()) != nil {
				t.Fatal("a party has two slots")
			}

			ctx, cancel := context.WithCancel(t.Context())
			cancel()

			if enter(ctx) != nil || enter(t.Context()) != nil {
				t.Fatal("a party has two slots after one gave up")
			}

			next := make(chan func())
			go func() { next <- enter(t.Context()) }()

			synctest.Wait()
			leave()

			second := <-next
			if second == nil || enter(t.Context()) != nil {
				t.Fatal("the one that waited has no slot, or another has one beside it")
			}

			second()
			second()
		}

		if len(f.parties) != 0 || f.turns.Len() != 0 || f.taken != 0 || f.places.Held() != 0 ||
			len(f.places.callers) != 0 {
			t.Errorf("left behind: %d parties, %d turns, %d slots, %d places of %v", len(f.parties), f.turns.Len(),
				f.taken, f.places.Held(), f.places.callers)
		}
	})
}
