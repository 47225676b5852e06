package limit_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roster-mesh/roster/limit"
)

// allowed returns how many events of callers, in turn, are allowed until each was refused.
func allowed(rate *limit.DividedRate, callers ...limit.Caller) (count int) {
	for refused := 0; refused < len(callers); {
		refused = 0

		for _, caller := range callers {
			if _, ok := rate.Allow(caller); ok {
				count++
			} else {
				refused++
			}
		}
	}

	return count
}

// Each party has its part of a rate, whatever the number of its callers.
//
// Requirement: SEC-004
func TestARateIsDivided(t *testing.T) {
	domains := func(i int) limit.Caller { return foreign("d"+string(rune('a'+i%8))+".test", i) }

	for name, test := range map[string]struct {
		callers []limit.Caller
		want    int
	}{
		"one own identity":    {many(1, own), 75},
		"two own identities":  {many(2, own), 100},
		"one other domain":    {many(50, betas), 25},
		"all other domains":   {many(50, domains), 50},
		"all strangers":       {many(50, stranger), 25},
		"others and then own": {append(many(50, domains), many(2, own)...), 100},
	} {
		synctest.Test(t, func(t *testing.T) {
			rate := limit.NewDividedRate(limit.Rate{PerSecond: 100, Burst: 100})
			if got := allowed(rate, test.callers...); got != test.want {
				t.Errorf("%s: %d of 100 at once, want %d", name, got, test.want)
			}

			time.Sleep(time.Second)

			if got := allowed(rate, test.callers...); got != test.want {
				t.Errorf("%s: %d of 100 a second later, want %d", name, got, test.want)
			}

			if rate.Idle() {
				t.Errorf("%s: the rate counts as unused", name)
			}
		})
	}
}

// An event waits for its turn in the rate of its party, and not for others.
func TestEventsWaitForTheirRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rate := limit.NewDividedRate(limit.Rate{PerSecond: 8, Burst: 8})
		began := time.Now()

		for range 6 { // of a domain: 2 at once, and 2 a second
			if err := rate.Wait(t.Context(), betas(1)); err != nil {
				t.Fatal(err)
			}
		}

		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("six events of a domain took %s", took)
		}

		short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()

		if err := rate.Wait(short, betas(2)); !errors.Is(err, context.DeadlineExceeded) || short.Err() != nil {
			t.Errorf("an event whose time ends before its turn: %v", err)
		}

		long, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()

		if err := rate.Wait(long, betas(2)); err != nil {
			t.Errorf("an event that has the time for its turn: %v", err)
		}

		if _, ok := rate.Allow(own(1)); !ok {
			t.Error("a caller of the own domain is refused")
		}

		gone, cancel := context.WithCancel(t.Context())
		cancel()

		if err := rate.Wait(gone, betas(3)); !errors.Is(err, context.Canceled) {
			t.Errorf("an event whose caller has gone: %v", err)
		}

		// Neither took a token.
		began = time.Now()
		if err := rate.Wait(t.Context(), betas(4)); err != nil || time.Since(began) > 500*time.Millisecond {
			t.Errorf("the next event waits %s: %v", time.Since(began), err)
		}
	})
}

// A caller that is refused because of others keeps its own part.
//
// Requirement: SEC-004
func TestARefusalByAWiderPartCostsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rate := limit.NewDividedRate(limit.Rate{PerSecond: 100, Burst: 100})
		one, two := many(2, own)[0], many(2, own)[1]

		if got := allowed(rate, one) + allowed(rate, two); got != 100 {
			t.Fatalf("%d of 100 at once", got)
		}

		expired, cancel := context.WithDeadline(t.Context(), time.Now().Add(time.Millisecond))
		defer cancel()

		for i := range 100 {
			if _, ok := rate.Allow(two); ok {
				t.Fatal("an event beyond the whole rate is allowed")
			}

			if err := rate.Wait(expired, two); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("event %d: %v", i, err)
			}
		}

		time.Sleep(200 * time.Millisecond)

		if got := allowed(rate, two); got != 20 {
			t.Errorf("%d of 20 after a fifth of a second", got)
		}
	})
}

// A key whose bucket takes longer to fill than a time.Duration holds is kept.
func TestARateMayBeTiny(t *testing.T) {
	rates := limit.NewRates[string](8)
	never := limit.Rate{PerSecond: 1e-300, Burst: 1}
	now := time.Now()

	_, _, first := rates.Take("k", never, now, 1)
	_, wait, second := rates.Take("k", never, now, 1)

	if !first || second || wait < 24*time.Hour || rates.Len() != 1 {
		t.Errorf("%t, then %t, to wait for %s; %d keys", first, second, wait, rates.Len())
	}
}
