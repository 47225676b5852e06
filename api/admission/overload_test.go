package admission_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roster-mesh/roster/api/admission"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/problem"
)

var kindsOfWork = []admission.Work{
	admission.QueryWork, admission.LookupWork, admission.RegisterWork, admission.RefreshWork,
}

// empty is how much memory is in use.
func empty() float64 { return 0 }

// The more memory is in use, the more kinds of work are shed; refreshes never. It isn't read for
// each request. The log has the numbers each ten seconds.
//
// Requirement: FORM-009
func TestWorkIsShedByMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var (
			lines bytes.Buffer
			shed  []string
			inUse float64
			reads int
		)

		overload := admission.NewOverload(admission.OverloadConfig{
			MemoryInUse: func() float64 { reads++; return inUse },
			Shed:        func(class string) { shed = append(shed, class) },
			Logger:      slog.New(slog.NewTextHandler(&lines, nil)),
		})

		all := func() {
			for i, work := range kindsOfWork {
				slot := overload.Slot(work, admission.Unshed)

				err := slot.Take(t.Context())
				if refused := directory.ProblemOf(err) == directory.Overloaded; refused &&
					problem.Explain(err).Retry != []int{5, 2, 1, 1}[i] || !refused && err != nil {
					t.Errorf("%s: %+v", work, err)
				}

				slot.Release()
			}
		}

		for _, x := range []struct {
			inUse float64
			want  int // kinds of work
		}{{.84, 0}, {.85, 1}, {.90, 2}, {.95, 3}, {2, 3}} {
			inUse, reads, shed = x.inUse, 0, nil

			for range 10 {
				all()
			}

			if want := admission.WorkClasses[:x.want]; len(shed) != 10*x.want ||
				x.want > 0 && !slices.Equal(shed[:x.want], want) || reads != 1 {
				t.Errorf("%v: shed are %q, want %q; the memory was read %d times", x.inUse, shed, want, reads)
			}

			time.Sleep(100 * time.Millisecond)
		}

		time.Sleep(10 * time.Second)
		all()

		want := `reason="This node is short of memory" queries=40 lookups=30 registrations=20 refreshes=0`
		if text := lines.String(); strings.Count(text, "\n") != 2 || !strings.Contains(text, "queries=1 lookups=0") ||
			!strings.Contains(text, want) {
			t.Errorf("the log has\n%s", text)
		}
	})
}

// A slot is held from Take until Release, once, and not while its call waits for others. Without one
// in time, or without room to wait, work is shed.
//
// Requirement: FORM-009
func TestASlotIsHeldWhileWorking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		overload := admission.NewOverload(admission.OverloadConfig{
			Workers: 1, Waiting: 1, Logger: slog.New(slog.DiscardHandler), MemoryInUse: empty,
			Shed: func(string) {},
		})
		free := func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()

			other := overload.Slot(admission.LookupWork, admission.Unshed)

			err := other.Take(ctx)
			if err == nil {
				other.Release()
			} else if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("who gives up is told %v", err)
			}

			return err == nil
		}
		wantFree := func(want bool, when string) {
			t.Helper()

			if free() != want {
				t.Errorf("the slot is free %s: %t", when, !want)
			}
		}

		slot := overload.Slot(admission.LookupWork, admission.Unshed)

		outside := false
		if err := slot.Outside(t.Context(), func() {
			outside = true
			wantFree(true,
				"before it was taken")
		}); err != nil ||
			!outside {
			t.Errorf("outside without a slot: %t, %v", outside, err)
		}

		wantFree(true, "of a call that never took it")

		for range 2 {
			must(t, slot.Take(t.Context()))
		}

		wantFree(false, "while it is held")

		must(t, slot.Outside(t.Context(), func() { wantFree(true, "meanwhile") }))

		wantFree(false, "after that")
		slot.Release()
		slot.Release()
		wantFree(true, "after its release")

		if err := slot.Take(t.Context()); err != nil {
			t.Error(err)
		}

		wantFree(true, "after its release, whatever follows")

		// Others use it up meanwhile.
		again := overload.Slot(admission.LookupWork, admission.Unshed)
		busy := overload.Slot(admission.LookupWork, admission.Unshed)

		must(t, again.Take(t.Context()))

		began := time.Now()
		err := again.Outside(t.Context(), func() { _ = busy.Take(t.Context()) })

		if directory.ProblemOf(err) != directory.Overloaded || time.Since(began) != time.Second {
			t.Errorf("a slot that doesn't come back: %v after %s", err, time.Since(began))
		}

		// A second one that waits makes the first give up, which is of a lower kind.
		query := overload.Slot(admission.QueryWork, admission.Unshed)

		var waiting sync.WaitGroup

		waiting.Go(func() {
			if err := query.Take(t.Context()); directory.ProblemOf(err) != directory.Overloaded {
				t.Errorf("a query that makes room: %v", err)
			}
		})
		synctest.Wait()
		wantFree(false, "for who waits")
		waiting.Wait()
		busy.Release()
	})
}

// A request without a body may be other work than one with it, and what is never shed takes nothing.
//
// Requirement: FORM-009
func TestTheWorkOfARequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, x := range []struct {
			work, bare admission.Work
			empty      bool
			want       string
		}{
			{admission.RegisterWork, admission.RefreshWork, false, "registrations"},
			{admission.RegisterWork, admission.RefreshWork, true, "refreshes"},
			{admission.RegisterWork, admission.Unshed, true, "registrations"},
			{admission.Unshed, admission.Unshed, false, ""},
			{admission.Unshed, admission.Unshed, true, ""},
		} {
			shed := ""
			overload := admission.NewOverload(admission.OverloadConfig{
				Workers: 1, Shed: func(class string) { shed = class }, Logger: slog.New(slog.DiscardHandler),
				MemoryInUse: empty,
			})

			for range 2 { // the second one finds the slot taken
				slot := overload.Slot(x.work, x.bare)
				if err := slot.TakeFor(t.Context(), x.empty); (err != nil) != (shed != "") {
					t.Errorf("%+v: %v", x, err)
				}
			}

			if shed != x.want {
				t.Errorf("%+v: %q is shed", x, shed)
			}
		}

		if err := new(admission.Slot).Take(t.Context()); err != nil {
			t.Error(err)
		}

		// By default there are some slots for each processor, of which lower kinds have fewer.
		workers := max(8, 4*runtime.GOMAXPROCS(0))
		for work, want := range map[admission.Work]int{
			admission.QueryWork: workers / 2, admission.LookupWork: workers * 3 / 4,
			admission.RegisterWork: workers * 7 / 8, admission.RefreshWork: workers,
		} {
			overload := admission.NewOverload(admission.OverloadConfig{
				Logger: slog.New(slog.DiscardHandler), MemoryInUse: empty, Shed: func(string) {},
			})

			taken := 0
			for ; taken <= workers; taken++ {
				slot := overload.Slot(work, admission.Unshed)
				if slot.Take(t.Context()) != nil {
					break
				}
			}

			if taken != want {
				t.Errorf("%d %s are worked on at once, want %d", taken, work, want)
			}
		}
	})
}
