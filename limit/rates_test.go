package limit_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/roster-mesh/roster/limit"
)

func TestAKeyHasItsRate(t *testing.T) {
	rates, now := limit.NewRates[string](10), time.Now()
	of := limit.Rate{PerSecond: 2, Burst: 20}

	left, _, ok := rates.Take("ada", of, now, 15)
	if !ok || left != 5 {
		t.Errorf("15 of 20 are taken, %v are left: %v", left, ok)
	}

	left, wait, ok := rates.Take("ada", of, now, 6)
	if ok || left != 5 || wait != 500*time.Millisecond {
		t.Errorf("6 of 5: %v, %v are left; there is one more in %s", ok, left, wait)
	}

	if _, _, ok := rates.Take("bob", of, now, 20); !ok {
		t.Error("another key has its own tokens")
	}

	if _, _, ok := rates.Take("ada", of, now.Add(500*time.Millisecond), 6); !ok {
		t.Error("half a second has no token")
	}

	if left, _, _ := rates.Take("ada", limit.Rate{PerSecond: 2, Burst: 3}, now.Add(of.Window()), 0); left != 3 {
		t.Errorf("%v are left by a lower rate", left)
	}

	// Another rate is in force for a key that is known.
	rates.Take("eve", limit.Rate{PerSecond: 1, Burst: 20}, now, 20)

	faster := limit.Rate{PerSecond: 10, Burst: 20}
	rates.Take("eve", faster, now, 0)

	if left, _, _ := rates.Take("eve", faster, now.Add(time.Second), 0); left != 10 {
		t.Errorf("%v have come in a second by a higher rate", left)
	}
}

// Callers read the clock before they get the lock, so that on a busy machine times come in any order.
// No time is counted twice.
//
// Requirement: SEC-004
func TestTimesInAnyOrderGiveNoFurtherTokens(t *testing.T) {
	rates, began := limit.NewRates[string](10), time.Now()
	of := limit.Rate{PerSecond: 10, Burst: 10}

	if _, _, ok := rates.Take("ada", of, began, 10); !ok {
		t.Fatal("the burst is refused")
	}

	taken := 0
	for i := range 1000 {
		now := began.Add(time.Duration(i%2) * time.Second) // later and earlier, in turn
		if _, _, ok := rates.Take("ada", of, now, 1); ok {
			taken++
		}
	}

	if taken != 10 {
		t.Errorf("%d are taken in a second behind the burst, want 10", taken)
	}
}

// Any number of keys take no more room than there is, and those that were not used for the
// window take none.
//
// Requirement: SEC-003
func TestKeysAreBoundedAndForgotten(t *testing.T) {
	const most = 1000

	rates, now := limit.NewRates[int](most), time.Now()
	of := limit.Rate{PerSecond: 0.1, Burst: 1}

	for i := range 2 * most {
		rates.Take(i, of, now, 1)
	}

	if rates.Len() != most {
		t.Errorf("%d keys are known", rates.Len())
	}

	if _, _, ok := rates.Take(2*most-1, of, now, 1); ok {
		t.Error("the last one has new tokens")
	}

	// What is in use stays known.
	for i := range 2 * most {
		rates.Take(-1000-i, of, now, 1)

		if _, _, ok := rates.Take(2*most-1, of, now, 1); ok {
			t.Fatal("a key that is in use has new tokens")
		}
	}

	now = now.Add(of.Window())
	for i := range most/2 + 1 {
		rates.Take(-1-i%3, of, now, 0)
	}

	if rates.Len() != 3 {
		t.Errorf("%d keys are known, of which 3 were used lately", rates.Len())
	}
}

// Tokens that are given back can be taken again, and no more than a full bucket has.
func TestTokensAreGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rates := limit.NewRates[string](8)
		slow := limit.Rate{PerSecond: 1, Burst: 10}

		for range 100 {
			if _, _, ok := rates.Take("k", slow, time.Now(), 10); !ok {
				t.Fatal("tokens that were given back are not there")
			}

			rates.GiveBack("k", slow, 10)
		}

		time.Sleep(time.Minute)
		rates.GiveBack("k", slow, 5)
		time.Sleep(time.Minute)

		if left, _, _ := rates.Take("k", slow, time.Now(), 0); left != 10 {
			t.Errorf("%v tokens are left of 10", left)
		}
	})
}
