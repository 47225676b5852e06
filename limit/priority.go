package limit

import (
	"container/list"
	"context"
	"errors"
	"sync"
	"time"
)

// ErrShed refuses work for which there is no room: too much work of its class or of higher
// ones waits, or this work has waited too long.
var ErrShed = errors.New("limit: no slot is free, and too much is waiting for one")

// A Class orders work by its priority: work of a higher class goes first and is shed
// last. The lowest is 0.
type Class int

// PriorityConfig configures a Priority.
type PriorityConfig struct {
	// Slots has for each class, the lowest first, how many slots may be taken when one
	// of it takes the next: a higher class may take as many as a lower one, or more. The
	// last is how many there are.
	Slots []int
	// Waiting is how many may wait for a slot, of all classes together.
	Waiting int
	// Patience is how long one waits.
	Patience time.Duration
}

// A Priority is a semaphore for work of several classes. While slots are free that a class
// may take, work of it takes one at once. Else it waits, and a slot goes to the highest class
// that waits and may take it, in the order in which its work came. If no more may wait, the
// newest work of the lowest class is shed.
//
// It is safe for concurrent use.
type Priority struct {
	cfg PriorityConfig

	mu      sync.Mutex // guards the fields below
	taken   int
	waiting int
	queues  []list.List // of *waiter, by class
}

// A waiter is work that waits. verdict has room for the one verdict that it gets: nil is
// a slot.
type waiter struct {
	class   Class
	verdict chan error
	place   *list.Element // nil once there is a verdict
}

// NewPriority returns a semaphore whose slots are free.
func NewPriority(cfg PriorityConfig) *Priority {
	return &Priority{cfg: cfg, queues: make([]list.List, len(cfg.Slots))}
}

// Enter takes a slot for work of a class. Its errors are ErrShed, and ctx's if that ends
// while it waits. leave gives the slot back; to call it twice is harmless.
func (p *Priority) Enter(ctx context.Context, class Class) (leave func(), err error) {
	w := p.enqueue(class)
	if w != nil {
		if err := p.await(ctx, w); err != nil {
			return nil, err
		}
	}

	return sync.OnceFunc(p.leave), nil
}

// enqueue takes a slot, or returns a waiter if none is free.
func (p *Priority) enqueue(class Class) *waiter {
	p.mu.Lock()
	defer p.mu.Unlock()

	// Nothing of a higher class waits while a slot is free for this one.
	if p.taken < p.cfg.Slots[class] {
		p.taken++
		return nil
	}

	w := &waiter{class: class, verdict: make(chan error, 1)}
	w.place = p.queues[class].PushBack(w)

	p.waiting++
	if p.waiting > p.cfg.Waiting {
		// The newest work of the lowest class may be this work itself.
		p.settle(p.least(), ErrShed)
	}

	return w
}

// await waits for the verdict on w. Work that gives up leaves its queue.
func (p *Priority) await(ctx context.Context, w *waiter) error {
	patience := time.NewTimer(p.cfg.Patience)
	defer patience.Stop()

	var cause error
	select {
	case err := <-w.verdict:
		return err
	case <-ctx.Done():
		cause = ctx.Err()
	case <-patience.C:
		cause = ErrShed
	}

	p.mu.Lock()
	defer p.mu.Unlock()

	// Without a place the verdict has been given, between the end of the wait and the lock.
	if w.place != nil {
		p.settle(w, cause)
	}

	return <-w.verdict // a slot that came meanwhile is as good
}

// least returns the newest work of the lowest class that waits. The caller holds mu, and
// something waits.
func (p *Priority) least() *waiter {
	for class := range p.queues {
		if last := p.queues[class].Back(); last != nil {
			return last.Value.(*waiter)
		}
	}

	return nil
}

// settle takes w out of its queue with a verdict. The caller holds mu.
func (p *Priority) settle(w *waiter, verdict error) {
	p.queues[w.class].Remove(w.place)
	w.place = nil
	p.waiting--
	w.verdict <- verdict
}

// leave gives a slot back, to the highest class that waits and may take it.
func (p *Priority) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()

	p.taken--
	for class := len(p.queues) - 1; class >= 0; class-- {
		for p.taken < p.cfg.Slots[class] {
			first := p.queues[class].Front()
			if first == nil {
				break
			}

			p.taken++
			p.settle(first.Value.(*waiter), nil)
		}
	}
}
