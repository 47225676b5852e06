package limit

import (
	"container/list"
	"context"
	"sync"
	"time"
)

// FairConfig configures a Fair. All fields are required.
type FairConfig struct {
	Slots    int           // work that goes on at once
	PerParty int           // work of one party that goes on at once
	Places   SharesConfig  // of work that goes on or waits
	Patience time.Duration // how long work waits
}

// A Fair is a semaphore for work of several callers. A free slot goes to the parties that
// wait in turn, whatever the length of their queues: work waits for at most one piece of work
// of each other party. A party is an identity of the own domain, a foreign domain with all
// its identities, or all strangers.
//
// It is safe for concurrent use.
type Fair struct {
	cfg    FairConfig
	places *Shares

	mu      sync.Mutex // guards the fields below
	taken   int
	parties map[string]*party // that hold a slot or wait
	turns   list.List         // of *party that wait; the front is next
}

// A party is the work of one party.
type party struct {
	name  string
	taken int
	queue list.List     // of chan struct{}, which is closed when the slot is there
	turn  *list.Element // nil if nothing waits
}

// NewFair returns a semaphore whose slots are free.
func NewFair(cfg FairConfig) *Fair {
	return &Fair{cfg: cfg, places: NewShares(cfg.Places), parties: map[string]*party{}}
}

// Enter takes a slot for a caller's work. Its errors are a *ShareError at once, ErrShed if
// the work has waited for too long, and ctx's if that ends meanwhile. leave gives the slot
// back; to call it twice is harmless.
func (f *Fair) Enter(ctx context.Context, caller Caller) (leave func(), err error) {
	// The places bound the work that waits, so work without a place is never queued.
	release, refused := f.places.Take(caller, 1)
	if refused != nil {
		return nil, refused
	}

	of, place, ready := f.enqueue(partyOf(caller))
	if err := f.await(ctx, of, place, ready); err != nil {
		release()
		return nil, err
	}

	return sync.OnceFunc(func() {
		release()
		f.leave(of)
	}), nil
}

func partyOf(caller Caller) string {
	switch {
	case caller.Kind == Stranger:
		return ""
	case caller.Group != "":
		return caller.Group
	}

	return caller.ID
}

// enqueue adds work to a party's queue; ready is closed once the slot is there.
func (f *Fair) enqueue(name string) (of *party, place *list.Element, ready chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()

	of = f.parties[name]
	if of == nil {
		of = &party{name: name}
		f.parties[name] = of
	}

	ready = make(chan struct{})
	place = of.queue.PushBack(ready)

	if of.turn == nil {
		of.turn = f.turns.PushBack(of)
	}

	f.dispatch()

	return of, place, ready
}

func (f *Fair) await(ctx context.Context, of *party, place *list.Element, ready chan struct{}) error {
	select {
	case <-ready: // without a timer, because most work never waits
		return nil
	default:
	}

	patience := time.NewTimer(f.cfg.Patience)
	defer patience.Stop()

	cause := ErrShed

	select {
	case <-ready:
		return nil
	case <-ctx.Done():
		cause = ctx.Err()
	case <-patience.C:
	}

	f.mu.Lock()
	defer f.mu.Unlock()

	select {
	case <-ready: // a slot that came meanwhile is as good
		return nil
	default:
	}

	f.dequeue(of, place)
	f.forget(of)

	return cause
}

// dispatch gives free slots to the parties that wait, in turn. The caller holds mu.
func (f *Fair) dispatch() {
	for turn := f.turns.Front(); turn != nil && f.taken < f.cfg.Slots; {
		of, next := turn.Value.(*party), turn.Next()

		// A party at its bound keeps its turn, and others pass it.
		if of.taken < f.cfg.PerParty {
			f.taken++
			of.taken++

			first := of.queue.Front()
			f.dequeue(of, first)
			close(first.Value.(chan struct{}))

			if of.turn != nil { // behind all others, which may have been passed over
				f.turns.MoveToBack(of.turn)
				next = f.turns.Front()
			}
		}

		turn = next
	}
}

// dequeue takes work out of its party's queue. The caller holds mu.
func (f *Fair) dequeue(of *party, place *list.Element) {
	of.queue.Remove(place)

	if of.queue.Len() == 0 {
		f.turns.Remove(of.turn)
		of.turn = nil
	}
}

func (f *Fair) leave(of *party) {
	f.mu.Lock()
	defer f.mu.Unlock()

	f.taken--
	of.taken--
	f.forget(of)
	f.dispatch()
}

// forget removes a party that neither holds a slot nor waits. The caller holds mu.
func (f *Fair) forget(of *party) {
	if of.taken == 0 && of.queue.Len() == 0 {
		delete(f.parties, of.name)
	}
}
