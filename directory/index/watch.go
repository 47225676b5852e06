package index

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/roster-mesh/roster/directory"
)

// An EventKind is what happened to a registration that somebody watches.
type EventKind string

// The kinds of events. Applied in their order to an empty set, they make it what
// a lookup of the same query answers.
const (
	EventReset   EventKind = "reset"   // forget everything: what is there follows
	EventAdded   EventKind = "added"   // it has come, or is asked for and visible only now
	EventUpdated EventKind = "updated" // it says something else now
	EventRemoved EventKind = "removed" // Reason says why
	EventCurrent EventKind = "current" // what was there is told; from here on come changes
)

// The reasons for which a registration is removed from what is watched.
const (
	ReasonRemoved = "removed" // its registrant, its origin or the peering ended it
	ReasonExpired = "expired" // its lifetime has, by its origin's clock
	ReasonHidden  = "hidden"  // it is there, and no longer asked for or no longer visible
)

// An Event is one change of what is watched.
type Event struct {
	Kind   EventKind
	Entry  *directory.Entry // as it is now; of a removed one as it was last told
	Old    *directory.Entry // of an updated one: as it was last told, deadlines aside
	Reason string           // of a removed one
	Resume ResumeToken      // where to go on behind it; zero within the state behind a reset
}

// ErrWatchEnded is what Next returns when the channel that Until was given is closed, or the
// query's Spend says no.
var ErrWatchEnded = errors.New("watch ended")

// ErrBehind is the end of a watch whose reader was slower than the directory
// changes, by more than is kept: begin anew.
var ErrBehind = errors.New("watcher too slow: changes were dropped; watch again from the beginning")

// eventBatch bounds how many changes or entries one call of Next looks at.
const eventBatch = 512

// A Watcher tells how what a query asks for changes. It is for one goroutine at
// a time, and must be closed. It holds no more memory, however slowly it is read:
// its place in the view's order of changes, of which only the last are kept.
type Watcher struct {
	view  *View
	query matcher
	show  Viewer
	at    uint64 // the next change to read
	until <-chan struct{}
	close func()

	initial *initialScan // nil once everything that was there is told

	changes [eventBatch]change
}

// Watch tells the changes of what q asks for, its place in a listing aside, and
// show shows, as it is shown. show is asked whenever a registration changes, about
// what it was and what it is, and answers the same for the same entry: whoever sees
// otherwise from some moment on watches anew. It is called without a lock.
//
// Behind the mark of an event of an earlier Watcher of this view it goes on with
// no gap and no repetition, as long as the changes since then are kept; q and
// show must be the same. Anywhere else it begins with EventReset, what is
// there, and EventCurrent.
//
// An entry whose deadlines, signature or way here alone are new has not changed:
// refreshes are no events.
func (v *View) Watch(query Query, show Viewer, behind ResumeToken) *Watcher {
	v.log.subscribe()

	for _, x := range v.indexes() {
		x.startExpiry()
	}

	w := &Watcher{view: v, query: matcher{Query: &query}, show: show, at: behind.next,
		close: sync.OnceFunc(v.log.unsubscribe)}
	if behind.log != v.log.id || !v.log.contains(behind.next) {
		w.at, w.initial = v.log.position(), &initialScan{}
	}

	return w
}

// Until has Next return ErrWatchEnded, instead of waiting, once over is closed.
func (w *Watcher) Until(over <-chan struct{}) { w.until = over }

// Close ends the watch. It may be called twice.
func (w *Watcher) Close() { w.close() }

// ResumeToken returns where to go on behind all that Next has returned; zero where that
// isn't everything that was there at the beginning.
func (w *Watcher) ResumeToken() ResumeToken {
	if w.initial != nil {
		return ResumeToken{}
	}

	return ResumeToken{w.view.log.id, w.at}
}

// End returns the place behind all changes that have happened by now.
func (w *Watcher) End() ResumeToken { return ResumeToken{w.view.log.id, w.view.log.position()} }

// Next returns the next events, and waits for one where there is none. It returns
// ctx's error when that ends first, and then may be called again, or ErrBehind.
// Changes that have happened are told even when ctx has ended.
func (w *Watcher) Next(ctx context.Context) ([]Event, error) {
	for {
		var (
			events []Event
			err    error
		)
		if w.initial != nil {
			events, err = w.nextInitial()
		} else {
			events, err = w.follow(w.view.log.position())
		}

		switch {
		case len(events) > 0 || err != nil:
			return events, err
		case w.initial != nil:
			err = ctx.Err()
		default:
			err = w.view.wait(ctx, w.at, w.until)
		}

		if err != nil {
			return nil, err
		}
	}
}

// Await waits until there may be changes behind the mark of a Watcher that is
// open, or for ctx's end, whose error it returns. Other goroutines may read the
// Watcher meanwhile.
func (v *View) Await(ctx context.Context, behind ResumeToken) error {
	return v.wait(ctx, behind.next, nil)
}

// wait waits until there may be something new from a position on, or over is closed.
// One of all who wait minds the deadlines meanwhile.
func (v *View) wait(ctx context.Context, at uint64, over <-chan struct{}) error {
	log, minds := v.log, false
	select {
	case <-log.expiryToken:
		minds = true
	default:
	}

	defer func() {
		if minds {
			log.expiryToken <- struct{}{}
		}
	}()

	for {
		keeper, due := log.expiryToken, (<-chan time.Time)(nil)
		if minds {
			keeper, due = nil, time.After(v.expire())
		}

		wake := log.wakeAfter(at)
		switch {
		case wake == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		}

		select {
		case <-wake:
			return nil
		case <-log.changed:
			log.wakeAll(ctx)
			return nil
		case <-due:
		case <-keeper:
			minds = true
		case <-over:
			return ErrWatchEnded
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// expire tells the log who has died, and returns in how long somebody may.
func (v *View) expire() time.Duration {
	wait := maxExpiryWait
	for _, x := range v.indexes() {
		wait = min(wait, x.expire())
	}

	return wait
}

// indexes returns all indexes, in no order.
func (v *View) indexes() []*Index {
	v.mu.RLock()
	defer v.mu.RUnlock()

	xs := append(make([]*Index, 0, len(v.others)+1), v.own)
	for _, x := range v.others {
		xs = append(xs, x)
	}

	return xs
}

// follow reads changes up to a position.
func (w *Watcher) follow(to uint64) ([]Event, error) {
	var events []Event
	for len(events) == 0 && w.at < to {
		n, ok := w.view.log.read(w.changes[:], w.at, to)
		if !ok {
			return nil, ErrBehind
		}

		for i := range w.changes[:n] {
			w.at++

			change := &w.changes[i]
			if w.initial != nil && !w.initial.reached.hasPassed(w.view, change.entry()) {
				continue // it will be met
			}

			if e, ok := w.event(change); ok {
				e.Resume = w.ResumeToken()
				events = append(events, e)
			}
		}

		clear(w.changes[:n])
	}

	return events, nil
}

// event returns what a change is to the reader, if anything.
func (w *Watcher) event(change *change) (Event, bool) {
	old, now := w.shown(change.old), w.shown(change.new)
	switch {
	case old == nil && now == nil:
		return Event{}, false
	case old == nil:
		return Event{Kind: EventAdded, Entry: now}, true
	case now != nil:
		return Event{Kind: EventUpdated, Entry: now, Old: old}, true
	}

	e := Event{Kind: EventRemoved, Entry: old, Reason: ReasonHidden}
	switch {
	case change.expired:
		e.Reason = ReasonExpired
	case change.new == nil:
		e.Reason = ReasonRemoved
	}

	return e, true
}

// shown returns e as it is shown; nil where it is not among what is watched.
func (w *Watcher) shown(entry *directory.Entry) *directory.Entry {
	q := w.query.Query
	if entry == nil || q.OwnOnly && entry.Origin != w.view.domain || !q.Origin.IsZero() && q.Origin != entry.Origin ||
		!w.query.matches(entry) {
		return nil
	}

	return w.show.of(entry, &w.query)
}
