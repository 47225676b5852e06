package discovery

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/contain"
	"github.com/roster-mesh/roster/directory/index"
	"github.com/roster-mesh/roster/directory/kinds"
	"github.com/roster-mesh/roster/discovery/content"
)

// Run follows the view until ctx ends, whose error it returns.
func (f *Finder) Run(ctx context.Context) error {
	if f.cfg.Embedder != nil {
		var embedding sync.WaitGroup

		// Deferred calls run in reverse: the context of the embedding ends before the wait for it.
		defer embedding.Wait()
		bound, cancel := context.WithCancel(ctx)
		defer cancel()
		embedding.Go(func() { f.embedAll(bound) })
	}

	for {
		if err := f.CatchUp(ctx); err != nil {
			return err
		}

		if err := f.classify(ctx); err != nil {
			return err
		}

		if err := f.followParts(ctx); err != nil {
			return err
		}

		// A change after this token ends the wait at once, so none is missed between CatchUp and Await.
		f.feed.Lock()
		mark := f.watcher.ResumeToken()
		f.feed.Unlock()

		if err := f.cfg.View.Await(ctx, mark); err != nil {
			return err
		}
	}
}

// CatchUp indexes the contents of the view as of the call. It returns ctx's error if that ends
// first.
func (f *Finder) CatchUp(ctx context.Context) error {
	f.feed.Lock()
	defer f.feed.Unlock()

	// Changes after the call do not count: a busy view would never be caught up with.
	end := f.watcher.End()
	for f.behind(end) {
		if done := f.follow(); done {
			return nil
		}

		if err := ctx.Err(); err != nil {
			return err
		}
	}

	return nil
}

// behind reports whether changes before a place are not indexed yet. The caller
// holds feed.
func (f *Finder) behind(end index.ResumeToken) bool {
	at := f.watcher.ResumeToken()
	return at.IsZero() || at.Before(end)
}

// A query helps to index the initial contents of the view before it searches: by at least
// patientReads reads, however slow the machine is, and until patience has passed.
const (
	patientReads = 8
	patience     = 50 * time.Millisecond
)

// refresh is CatchUp for a query. While the initial contents are still being indexed, it
// indexes only a part of them.
func (f *Finder) refresh(ctx context.Context) error {
	if f.begun.Load() {
		return f.CatchUp(ctx)
	}

	if !f.feed.TryLock() {
		// Another query is indexing, and this one searches the part that is indexed.
		return nil
	}

	defer f.feed.Unlock()

	start := time.Now()
	for n := 0; n < patientReads || time.Since(start) < patience; n++ {
		if done := f.follow(); done {
			return nil
		}
	}

	return nil
}

// follow indexes the next changes and reports whether there are no more by now.
// The caller holds feed.
func (f *Finder) follow() bool {
	ctx := f.ended
	if f.watcher.ResumeToken().IsZero() {
		ctx = context.Background() // the initial contents are read without waiting
	}

	events, err := f.watcher.Next(ctx)
	switch {
	case errors.Is(err, index.ErrBehind):
		// The new watch begins with a reset, which replaces the index.
		f.watcher.Close()
		f.watcher = f.watch()
		f.begun.Store(false)

		return false
	case err != nil:
		return true
	}

	for len(events) > 0 {
		n := min(len(events), feedBatch)
		f.apply(events[:n])
		events = events[n:]
	}

	return false
}

// feedBatch bounds how many changes are indexed while queries wait.
const feedBatch = 16

// A step is a change that was read and is not indexed yet.
type step struct {
	event index.Event
	now   contents
	has   bool
	same  bool // the indexed contents are unchanged, and were not read
}

// apply indexes at most feedBatch changes. The texts are read before queries have
// to wait.
func (f *Finder) apply(events []index.Event) {
	for i := range events {
		step := &f.batch[i]
		if !f.cfg.Panics.Do(contain.Discovery, func() { f.prepare(step, &events[i]) }) {
			step.has, step.same = false, false // left out, and removed from the index
		}
	}

	f.mu.Lock()
	defer f.mu.Unlock()

	for i := range events {
		step := &f.batch[i]
		if !f.cfg.Panics.Do(contain.Discovery, func() { f.index1(step) }) {
			// The panic may have left a part of the entry in the index, so the entry is removed.
			step.has, step.same = false, false
			f.cfg.Panics.Do(contain.Discovery, func() { f.index1(step) })
		}

		f.batch[i].event = index.Event{}
	}

	f.index.tidy()
}

func (f *Finder) prepare(step *step, event *index.Event) {
	step.event = *event
	step.has, step.same = false, false

	if event.Kind == index.EventRemoved {
		return
	}

	is := f.projection(event.Entry, &f.reader.Projection)
	if step.has = is != nil; !step.has {
		return
	}

	if was := f.projection(event.Old, &f.shownBefore); was != nil && content.SameTexts(was, is) {
		step.same = true
		return
	}

	step.now.read(f.reader, event.Entry, is)
	step.now.text = f.textHash(is, step.now.Flags)
}

// projection returns the indexed part of an entry, in room; nil if that is empty.
func (f *Finder) projection(entry *directory.Entry, room *directory.Projection) *directory.Projection {
	if entry == nil || entry.Packed.IsZero() {
		return nil
	}

	v := kinds.Redact(entry, f.cfg.redaction)
	if v.Packed.IsZero() {
		return nil
	}

	v.Unpack(room)

	return room
}

func (f *Finder) index1(step *step) {
	entry := step.event.Entry
	switch {
	case step.event.Kind == index.EventReset:
		f.index, f.whole = newIndex(&f.cfg, f.seed, f.wake), false
		f.readers.forget()
	case step.event.Kind == index.EventCurrent:
		f.whole = true
		f.begun.Store(true)
	case step.same:
		f.index.renew(entry)
	case step.has:
		f.index.put(entry, &step.now)
	case entry != nil:
		f.index.remove(entry.Origin, entry.RID)
	}
}
