package limit_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/roster-mesh/roster/limit"
)

// A crew takes slots under names, and remembers what became of each.
type crew struct {
	t       interface{ Helper() }
	slots   *limit.Priority
	mu      sync.Mutex
	entered []string
	refused map[string]error
	leave   map[string]func()
	cancel  map[string]context.CancelFunc
}

func newCrew(t interface{ Helper() }, cfg limit.PriorityConfig) *crew {
	return &crew{t: t, slots: limit.NewPriority(cfg), refused: map[string]error{}, leave: map[string]func(){},
		cancel: map[string]context.CancelFunc{}}
}

// send has work of a class take a slot, and waits until it has one, was refused or waits.
func (c *crew) send(class limit.Class, name string) {
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel[name] = cancel
	go func() {
		defer cancel()
		leave, err := c.slots.Enter(ctx, class)
		c.mu.Lock()
		defer c.mu.Unlock()

		if err != nil {
			c.refused[name] = err
			return
		}

		c.entered = append(c.entered, name)
		c.leave[name] = leave
	}()
	synctest.Wait()
}

func (c *crew) done(name string) {
	c.mu.Lock()
	leave := c.leave[name]
	c.mu.Unlock()
	leave()
	synctest.Wait()
}

// finish gives all slots back as they come.
func (c *crew) finish() {
	for at := 0; at < len(c.entered); at++ { //nolint:intrange // more enter as slots become free
		c.done(c.entered[at])
	}
}

const (
	low limit.Class = iota
	middle
	high
)

// Requirement: FORM-009
func TestALowerClassLeavesSlotsForAHigherOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrew(t, limit.PriorityConfig{Slots: []int{1, 2, 3}, Waiting: 10, Patience: time.Minute})
		c.send(low, "low 1")
		c.send(low, "low 2")
		c.send(middle, "middle 1")
		c.send(middle, "middle 2")
		c.send(high, "high 1")
		c.send(high, "high 2")

		if want := []string{"low 1", "middle 1", "high 1"}; !slices.Equal(c.entered, want) {
			t.Errorf("%q have slots, want %q", c.entered, want)
		}

		c.finish()
	})
}

// Requirement: FORM-009
func TestTheHighestThatWaitsGoesFirstAndInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrew(t, limit.PriorityConfig{Slots: []int{1, 1, 1}, Waiting: 10, Patience: time.Minute})
		c.send(low, "first")

		for _, name := range []string{"low 1", "low 2"} {
			c.send(low, name)
		}

		for _, name := range []string{"high 1", "high 2"} {
			c.send(high, name)
		}

		c.send(middle, "middle")
		c.finish()

		if want := []string{"first", "high 1", "high 2", "middle", "low 1", "low 2"}; !slices.Equal(c.entered, want) {
			t.Errorf("slots went to %q, want %q", c.entered, want)
		}
	})
}

// Requirement: FORM-009
func TestTheLowestIsShedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrew(t, limit.PriorityConfig{Slots: []int{1, 1, 1}, Waiting: 2, Patience: time.Minute})
		c.send(high, "first")
		c.send(low, "low 1")
		c.send(low, "low 2")

		for i, step := range []struct {
			class limit.Class
			name  string
			shed  string
		}{
			{low, "low 3", "low 3"}, {middle, "middle 1", "low 2"}, {high, "high 1", "low 1"},
			{low, "low 4", "low 4"}, {high, "high 2", "middle 1"}, {middle, "middle 2", "middle 2"},
			{high, "high 3", "high 3"},
		} {
			c.send(step.class, step.name)

			if !errors.Is(c.refused[step.shed], limit.ErrShed) || len(c.refused) != i+1 {
				t.Fatalf("after %s refused are %v, want %s", step.name, c.refused, step.shed)
			}
		}

		c.finish()

		if want := []string{"first", "high 1", "high 2"}; !slices.Equal(c.entered, want) {
			t.Errorf("slots went to %q, want %q", c.entered, want)
		}
	})
}

func TestWhatHasWaitedForTooLongIsShed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrew(t, limit.PriorityConfig{Slots: []int{1}, Waiting: 2, Patience: time.Second})
		c.send(low, "first")
		c.send(low, "waits")
		time.Sleep(time.Second)
		synctest.Wait()

		if !errors.Is(c.refused["waits"], limit.ErrShed) {
			t.Errorf("refused are %v", c.refused)
		}

		c.send(low, "leaves")
		c.cancel["leaves"]()
		synctest.Wait()

		if !errors.Is(c.refused["leaves"], context.Canceled) {
			t.Errorf("refused are %v", c.refused)
		}

		c.done("first")
		c.done("first") // twice is harmless
		c.send(low, "next")
		c.send(low, "beside")

		if want := []string{"first", "next"}; !slices.Equal(c.entered, want) {
			t.Errorf("slots went to %q, want %q", c.entered, want)
		}

		c.finish()
	})
}

// Whatever comes, goes and gives up, in any order: no slot is lost or given twice, no more
// wait than may, and nothing waits while there is a slot for it.
//
// Requirement: FORM-009
func TestSlotsAreNeitherLostNorGivenTwice(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		slots := []int{rapid.IntRange(1, 2).Draw(rt, "of the lowest"), 2, 3}
		waiting := rapid.IntRange(0, 3).Draw(rt, "waiting")
		steps := rapid.SliceOfN(rapid.IntRange(0, 5), 1, 40).Draw(rt, "steps")
		synctest.Test(t, func(t *testing.T) {
			c := newCrew(t, limit.PriorityConfig{Slots: slots, Waiting: waiting, Patience: time.Minute})
			classes := map[string]limit.Class{}

			var ended []string
			working := func() (names []string) {
				for _, name := range c.entered {
					if !slices.Contains(ended, name) {
						names = append(names, name)
					}
				}

				return names
			}

			idle := func() (names []string) {
				for name := range classes {
					if c.refused[name] == nil && !slices.Contains(c.entered, name) {
						names = append(names, name)
					}
				}

				slices.Sort(names)

				return names
			}
			for i, step := range steps {
				switch {
				case step <= 2:
					name := fmt.Sprint(i)
					classes[name] = limit.Class(step)
					c.send(limit.Class(step), name)
				case step == 5 && len(idle()) > 0:
					c.cancel[idle()[0]]()
					synctest.Wait()
				case len(working()) > 0:
					name := working()[0]
					ended = append(ended, name)
					c.done(name)
				}

				if n := len(working()); n > slots[2] || len(idle()) > waiting {
					t.Fatalf("%d work and %d wait", n, len(idle()))
				}

				for _, name := range idle() {
					if len(working()) < slots[classes[name]] {
						t.Fatalf("%s of class %d waits while %d work", name, classes[name], len(working()))
					}
				}
			}

			for len(working()) > 0 {
				name := working()[0]
				ended = append(ended, name)
				c.done(name)
			}

			if len(idle()) > 0 {
				t.Fatalf("%q wait still", idle())
			}
		})
	})
}
