package directory

import (
	"testing"
	"testing/synctest"
	"time"
)

// A checked clock follows its wall clock through small steps, and goes on by the machine's count
// through others until they are confirmed, adopted or undone.
//
// Requirement: FLD-024
func TestACheckedClockMakesNoStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var wrong time.Duration

		clock := NewCheckedClock(func() time.Time { return time.Now().Add(wrong) })
		expect := func(what string, off, step time.Duration) {
			t.Helper()

			if got := time.Until(clock.Now()); (got - off).Abs() > time.Second {
				t.Errorf("%s: it is %v off, want %v", what, got, off)
			}

			if got := clock.Step(); (got - step).Abs() > time.Second {
				t.Errorf("%s: a step of %v, want %v", what, got, step)
			}
		}

		expect("at first", 0, 0)
		time.Sleep(time.Hour)
		expect("an hour later", 0, 0)

		wrong = 50 * time.Second
		expect("a small step", wrong, 0)
		time.Sleep(time.Minute)
		expect("a minute after it", wrong, 0)

		wrong = time.Hour
		expect("a step forward", 50*time.Second, time.Hour-50*time.Second)
		time.Sleep(time.Hour)
		expect("an hour after it", 50*time.Second, time.Hour-50*time.Second)
		clock.Witness(time.Now().Add(wrong - 2*time.Minute))

		if clock.Witnessed() {
			t.Error("a time two minutes off confirms it")
		}

		clock.Witness(time.Now().Add(wrong - 30*time.Second))

		if !clock.Witnessed() {
			t.Error("a time half a minute off doesn't confirm it")
		}

		clock.Confirm()
		expect("confirmed", wrong, 0)

		wrong = 0
		expect("a step back", time.Hour, -time.Hour)
		clock.Adopt(time.Now())
		expect("adopted", 0, 0)
		clock.Adopt(time.Now().Add(time.Hour))
		expect("another's time", time.Hour, -time.Hour)
	})
}
