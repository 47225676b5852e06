package node

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
)

// A lifecycle keeps the stop of everything that was started and runs them
// backwards, once, under the context's bound. It works after a half-failed
// start: what was never started has no stop.
type lifecycle struct {
	once  sync.Once
	err   error
	stops []stop
}

type stop struct {
	name string
	run  func(context.Context) error
}

// onStop registers the stop of what was just started.
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

// contained does something with what strangers sent, on a goroutine that would take
// the node along: a panic is logged, and ends that alone.
func (n *Node) contained(what string, f func()) {
	defer func() {
		if p := recover(); p != nil {
			n.log.Error("what a stranger sent made this node panic", "what", what, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		}
	}()
	f()
}

// close stops everything, the last started first.
func (l *lifecycle) close(bound context.Context) error {
	l.once.Do(func() {
		for _, s := range slices.Backward(l.stops) {
			if err := s.run(bound); err != nil {
				l.err = errors.Join(l.err, fmt.Errorf("stopping %s: %w", s.name, err))
			}
		}
	})
	return l.err
}
