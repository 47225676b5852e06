package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// A lifecycle keeps the stop of each part that was started. It runs the stops in
// reverse, once, under the context's bound. It works after a start that failed half way:
// a part that was never started has no stop.
type lifecycle struct {
	once  sync.Once
	err   error
	stops []stop
}

type stop struct {
	name string
	run  func(context.Context) error
}

// onStop registers the stop of the part that was just started.
func (l *lifecycle) onStop(name string, run func(context.Context) error) {
	l.stops = append(l.stops, stop{name, run})
}

// loop runs f until its turn to stop comes, and makes stopping wait for its end.
func (l *lifecycle) loop(name string, f func(context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(ctx)
	}()
	l.onStop(name, func(bound context.Context) error {
		cancel()

		select {
		case <-done:
			return nil
		case <-bound.Done():
			return bound.Err()
		}
	})
}

// loopWithin is loop for one whose end may wait for a disk that hangs: others that stop
// after it have time left.
func (l *lifecycle) loopWithin(name string, most time.Duration, f func(context.Context)) {
	l.loop(name, f)
	last := &l.stops[len(l.stops)-1]
	run := last.run
	last.run = func(bound context.Context) error {
		bound, cancel := context.WithTimeout(bound, most)
		defer cancel()

		return run(bound)
	}
}

// close stops everything, the last started first.
func (l *lifecycle) close(bound context.Context) error {
	l.once.Do(func() {
		for _, s := range slices.Backward(l.stops) {
			// A part that fails to stop must not keep the others running.
			if err := s.run(bound); err != nil {
				l.err = errors.Join(l.err, fmt.Errorf("stopping %s: %w", s.name, err))
			}
		}
	})

	return l.err
}
