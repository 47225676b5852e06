package limit_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roster-mesh/roster/limit"
)

func named(id string) limit.Caller { return limit.Caller{Kind: limit.Own, ID: id} }

// A caller with much waiting delays another's work by one piece of its own, and no more.
//
// Requirement: SEC-005
func TestSlotsGoToCallersInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := limit.NewFair(limit.FairConfig{
			Slots:    1,
			PerParty: 1,
			Places:   limit.Divide(64, nil),
			Patience: time.Hour,
		})

		var (
			mu    sync.Mutex
			order []string
		)

		work := func(key string) {
			go func() {
				leave, err := f.Enter(t.Context(), named(key))
				if err != nil {
					t.Error(err)
					return
				}
				defer leave()

				mu.Lock()
				order = append(order, key)
				mu.Unlock()
				time.Sleep(time.Second)
			}()
			synctest.Wait()
		}

		for _, key := range []string{"greedy", "greedy", "greedy", "greedy", "honest", "other", "honest"} {
			work(key)
		}

		time.Sleep(time.Minute)
		synctest.Wait()

		want := []string{"greedy", "greedy", "honest", "other", "greedy", "honest", "greedy"}
		if !slices.Equal(order, want) {
			t.Errorf("the order is %v, want %v", order, want)
		}
	})
}

// One caller leaves a slot to others, waits with a bounded amount of work, and for a
// bounded time.
//
// Requirement: SEC-005
func TestOneCallerTakesAPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := limit.NewFair(limit.FairConfig{
			Slots:    2,
			PerParty: 1,
			Places:   limit.Divide(24, nil),
			Patience: time.Second,
		})

		holds, err := f.Enter(t.Context(), named("greedy"))
		if err != nil {
			t.Fatal(err)
		}

		ctx, cancel := context.WithCancel(t.Context())
		failed := make(chan error, 3)

		for _, with := range []context.Context{ctx, t.Context()} {
			go func() {
				_, err := f.Enter(with, named("greedy"))
				failed <- err
			}()
			synctest.Wait()
		}

		if _, err := f.Enter(t.Context(), named("greedy")); !errors.As(err, new(*limit.ShareError)) {
			t.Errorf("a third that waits: %v", err)
		}

		other, err := f.Enter(t.Context(), named("other"))
		if err != nil {
			t.Errorf("another caller: %v", err)
		}

		cancel()

		if err := <-failed; !errors.Is(err, context.Canceled) {
			t.Errorf("one that was canceled: %v", err)
		}

		time.Sleep(time.Second)

		if err := <-failed; !errors.Is(err, limit.ErrShed) {
			t.Errorf("one that waited for too long: %v", err)
		}

		holds()
		holds()
		other()

		for _, key := range []string{"greedy", "other"} {
			if _, err := f.Enter(t.Context(), named(key)); err != nil {
				t.Errorf("%s: a slot that was given back: %v", key, err)
			}
		}
	})
}
