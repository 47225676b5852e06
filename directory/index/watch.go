package index

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/roster-mesh/roster/directory"
)

// An EventKind is the kind of a change that a watcher reports.
type EventKind string

// The kinds of events. Applied in their order to an empty set, they produce the answer of a
// lookup of the same query.
const (
	EventReset   EventKind = "reset"   // clear the set: the initial entries follow
	EventAdded   EventKind = "added"   // it has come, or is asked for and visible only now
	EventUpdated EventKind = "updated" // it says something else now
	EventRemoved EventKind = "removed" // Reason says why
	EventCurrent EventKind = "current" // the initial entries are complete; changes follow
)

// The reasons for which a registration is removed from a watched answer.
const (
	ReasonRemoved = "removed" // its registrant, its origin or the peering ended it
	ReasonExpired = "expired" // its lifetime has, by its origin's clock
	ReasonHidden  = "hidden"  // it is there, and no longer asked for or no longer visible
)

// An Event is one change of a watched query's answer.
type Event struct {
	Kind   EventKind
	Entry  *directory.Entry // as it is now; of a removed one, as it was last reported
	Old    *directory.Entry // of an updated one: as it was last reported, deadlines aside
	Reason string           // of a removed one
	Resume ResumeToken      // where to go on behind it; zero within the state behind a reset
}

// errWatchEnded is returned by Next when the channel passed to Until is closed, or the
// query's Charge returns false.
var errWatchEnded = errors.New("watch ended")

// ErrBehind is returned by Next when the reader is slower than changes come, by more than
// the log keeps. The caller begins a new watch.
var ErrBehind = errors.New("watcher too slow: changes were dropped; watch again from the beginning")

// eventBatch bounds how many changes or entries one call of Next looks at.
const eventBatch = 512

// A Watcher reports how the answer to a query changes. It is for one goroutine at a time,
// and must be closed. A slow reader costs no memory: the watcher is a position in the view's
// log of changes, of which only the latest are kept.
type Watcher struct {
	view  *View
	query matcher
	show  Viewer
	at    uint64 // the next change to read
	until <-chan struct{}
	close func()

	initial *initialScan // nil once all initial entries are reported

	changes [eventBatch]change
}

// Watch reports the changes of the entries that match q and that the viewer shows, as it
// shows them; q's page is ignored. The viewer is called, without a lock, for the old and the
// new entry of each change. It must return the same for the same entry: when a reader's view
// changes, the caller begins a new watch.
//
// After the token of an event of an earlier Watcher of this view, it resumes without gap or
// repetition, as long as the log has the changes since then; q and the viewer must be the
// same. Otherwise it begins with EventReset, the present entries, and EventCurrent.
//
// A new deadline, signature or path of delivery alone is not a change: refreshes are no
// events.
func (v *View) Watch(query Query, show Viewer, behind ResumeToken) *Watcher {
	v.log.subscribe()

	// The log keeps changes before the indexes record expiries in it.
	for _, x := range v.indexes() {
		x.startExpiry()
	}

	w := &Watcher{view: v, query: matcher{Query: &query}, show: show, at: behind.next,
		close: sync.OnceFunc(v.log.unsubscribe)}

	// A token of another run, or of changes that were dropped, is no place to go on from.
	if behind.log != v.log.id || !v.log.contains(behind.next) {
		w.at, w.initial = v.log.position(), &initialScan{}
	}

	return w
}

// Until has Next fail, instead of waiting, once over is closed.
func (w *Watcher) Until(over <-chan struct{}) { w.until = over }

// Close ends the watch. It may be called twice.
func (w *Watcher) Close() { w.close() }

// ResumeToken returns the position after all events that Next has returned; zero until the
// initial state is complete.
func (w *Watcher) ResumeToken() ResumeToken {
	if w.initial != nil {
		return ResumeToken{}
	}

	return ResumeToken{w.view.log.id, w.at}
}

// End returns the position after all changes that have happened by now.
func (w *Watcher) End() ResumeToken { return ResumeToken{w.view.log.id, w.view.log.position()} }

// Next returns the next events, and waits for one if necessary. It returns ctx's error if that
// ends first, and may then be called again; or ErrBehind; or another error once the watch has ended. Changes that have
// happened are returned even if ctx has ended.
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

// Await waits until there may be changes after a token of an open Watcher, or until ctx
// ends, whose error it returns. Other goroutines may use the Watcher meanwhile.
func (v *View) Await(ctx context.Context, behind ResumeToken) error {
	return v.wait(ctx, behind.next, nil)
}

// wait waits until there may be changes from a position on, or over is closed. One of the
// waiting goroutines watches the deadlines meanwhile.
func (v *View) wait(ctx context.Context, at uint64, over <-chan struct{}) error {
	log, minds := v.log, false
	select {
	case <-log.expiryToken:
		minds = true
	default:
	}

	// Another waiting goroutine takes over the deadlines.
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

		// The expiries are recorded before, so that their changes end the wait at once.
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
			return errWatchEnded
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// expire records expired entries, and returns the time until the next may expire.
func (v *View) expire() time.Duration {
	wait := maxExpiryWait
	for _, x := range v.indexes() {
		wait = min(wait, x.expire())
	}

	return wait
}

// indexes returns all indexes, in no particular order.
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

		// The buffer would otherwise keep replaced entries in memory until the next changes.
		clear(w.changes[:n])
	}

	return events, nil
}

// event returns the event that a change is to the reader, if any.
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

// shown returns an entry as the reader sees it; nil if it is not part of the answer.
func (w *Watcher) shown(entry *directory.Entry) *directory.Entry {
	q := w.query.Query
	if entry == nil || q.OwnOnly && entry.Origin != w.view.domain || !q.Origin.IsZero() && q.Origin != entry.Origin ||
		!w.query.matches(entry) {
		return nil
	}

	return w.show.of(entry, &w.query)
}
