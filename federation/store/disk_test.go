package store

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/directorytest"
)

// hang begins an operation that ends when the function that it returns is called.
func hang(t *testing.T, operate func(func() error) error) (release func()) {
	t.Helper()

	entered := make(chan struct{})
	end := make(chan struct{})
	done := make(chan error, 1)
	go func() {
		done <- operate(func() error {
			close(entered)
			<-end

			return nil
		})
	}()
	<-entered

	return func() {
		close(end)

		if err := <-done; err != nil {
			t.Errorf("a change that had begun: %v", err)
		}
	}
}

// A request waits for its answer no longer than for a disk, and a failed operation is no answer.
//
// Requirement: FORM-007
func TestARequestWaitsForADiskForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, t.TempDir())

		defer func() { must(t, s.Close()) }()

		broken := errors.New("broken")
		bring(t, s, meshOfAlpha, directorytest.RID(1), secretName, directory.Hash{1})

		read := func(f func() (int, error)) (int, error) {
			return ReadFor(s, meshOfAlpha, func(*Tx) (int, error) { return f() })
		}
		if n, err := read(func() (int, error) { return 7, nil }); n != 7 || err != nil {
			t.Errorf("got %d, %v", n, err)
		}

		if _, err := read(func() (int, error) { return 0, broken }); !errors.Is(err, broken) {
			t.Errorf("of one that fails: %v", err)
		}

		absent := StreamID{Origin: directorytest.Beta}
		if n, err := ReadFor(s, absent, func(*Tx) (int, error) { return 7, nil }); n != 0 || err != nil {
			t.Errorf("of a stream that isn't here: %d, %v", n, err)
		}

		slow := func() (int, error) { time.Sleep(readTime + time.Second); return 7, nil }
		for _, operate := range []func() error{
			func() error { _, err := read(slow); return err },
			func() error { return s.Within(func() error { _, err := slow(); return err }) },
		} {
			began := time.Now()
			if err := operate(); !errors.Is(err, ErrStalled) || time.Since(began) != readTime {
				t.Errorf("of a slow one: %v after %s", err, time.Since(began))
			}
		}

		time.Sleep(time.Minute)
	})
}

func nothing() error { return nil }

// Requirement: FORM-007
func TestADiskThatHangsRefusesWhatComesLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var (
			began, ended atomic.Int32
			lasted       time.Duration
		)
		d := NewDisk(func() { began.Add(1) }, func(took time.Duration) { ended.Add(1); lasted = took })
		start := time.Now()
		release := hang(t, d.Change)

		// One that waits for its turn gives up when the stall begins.
		if err := d.Change(nothing); !errors.Is(err, ErrStalled) || time.Since(start) != StallAfter {
			t.Errorf("%v after %s", err, time.Since(start))
		}

		// What comes later does not wait at all.
		before := time.Now()

		_, within := within(d, time.Second, func() (int, error) { return 1, nil })
		for _, err := range []error{d.Change(nothing), d.Read(nothing), within, d.Acquire(make(chan struct{}, 1))} {
			if !errors.Is(err, ErrStalled) {
				t.Errorf("while the disk hangs: %v", err)
			}
		}

		if waited := time.Since(before); waited > 0 {
			t.Errorf("they waited for %s", waited)
		}

		time.Sleep(time.Minute)

		if got := d.StalledFor(); got != StallAfter+time.Minute {
			t.Errorf("stalled for %s", got)
		}

		release()
		synctest.Wait()

		if began.Load() != 1 || ended.Load() != 1 || lasted != StallAfter+time.Minute || d.StalledFor() != 0 {
			t.Errorf("%d stalls began and %d ended, of %s; stalled for %s", began.Load(), ended.Load(), lasted,
				d.StalledFor())
		}

		<-d.Answers()

		if err := d.Change(nothing); err != nil {
			t.Errorf("once it answers: %v", err)
		}
	})
}

func TestASlowOperationIsNoStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := NewDisk(func() { t.Error("a stall began") }, func(time.Duration) { t.Error("a stall ended") })
		for range 10 {
			err := d.Change(func() error {
				time.Sleep(StallAfter - time.Millisecond)
				return nil
			})
			must(t, err)
		}
	})
}

// The alarm of an operation may go off as the operation ends. That is no stall.
func TestAnAlarmThatComesLateIsNoStall(t *testing.T) {
	d := NewDisk(func() { t.Error("a stall began") }, func(time.Duration) { t.Error("a stall ended") })
	op := &operation{began: time.Now()}

	d.settle(op)
	d.note(op)
	must(t, d.Change(nothing))
}

// A stall lasts from the beginning of its oldest operation until the last one that takes too long has ended.
//
// Requirement: FORM-007
func TestAStallEndsWithTheLastOperation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lasted []time.Duration

		d := NewDisk(func() {}, func(took time.Duration) { lasted = append(lasted, took) })

		read := hang(t, d.Read)
		time.Sleep(time.Second)

		change := hang(t, d.Change)
		time.Sleep(StallAfter + time.Second)
		read()
		synctest.Wait()

		if err := d.Read(nothing); !errors.Is(err, ErrStalled) || d.StalledFor() != 2*time.Second+StallAfter {
			t.Errorf("while one of two hangs: %v, stalled for %s", err, d.StalledFor())
		}

		change()
		synctest.Wait()
		must(t, d.Change(nothing))

		if len(lasted) != 1 || lasted[0] != 2*time.Second+StallAfter {
			t.Errorf("stalls of %v ended", lasted)
		}
	})
}

// Requirement: FORM-007
func TestWhoWaitsForADiskIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := NewDisk(func() {}, func(time.Duration) {})
		end := make(chan struct{})

		var running atomic.Int32

		results := make(chan error, 3*waitersAtOnce)
		for range 3 * waitersAtOnce {
			go func() {
				_, err := within(d, time.Second, func() (int, error) {
					running.Add(1)
					<-end

					return 0, nil
				})
				results <- err
			}()
		}

		began := time.Now()

		for range cap(results) {
			if err := <-results; !errors.Is(err, ErrStalled) {
				t.Error(err)
			}
		}

		if waited := time.Since(began); waited != time.Second {
			t.Errorf("they were answered after %s", waited)
		}

		if n := running.Load(); n != waitersAtOnce {
			t.Errorf("%d wait for the disk", n)
		}

		close(end)
		synctest.Wait()

		if v, err := within(d, time.Second, func() (int, error) { return 7, nil }); v != 7 || err != nil {
			t.Errorf("once it answers: %d %v", v, err)
		}
	})
}
