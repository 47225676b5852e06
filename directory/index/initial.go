package index

import (
	"math"
	"slices"
	"strings"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
)

// An initialScan is how a watcher that begins anew is told what is there, while it
// changes. What the reader has is at any moment the view as the changes before
// one position made it, up to one place in the order of all registrations. Each
// stride reads some entries behind that place and the position that they are of;
// then the changes up to that position are told as far as the place, and the
// entries after them. So no change is missed or told twice, and nothing has to be
// remembered of what was told.
type initialScan struct {
	begun   bool // the reset is told
	reached scanPosition
	along   textFilter // what the index at hand is read by
	started bool       // along is chosen
	ended   bool       // the index at hand is read
	pending *scanStep
}

// A readStep is what was read and is not told yet.
type scanStep struct {
	to      uint64 // the position that it is of
	reached scanPosition
	found   []*directory.Entry
	last    bool // there are no more
}

// maxSortKey is behind all others.
var maxSortKey = sortKey{math.MaxUint64, directory.MaxRID}

// nextInitial tells the next part of what is there.
func (w *Watcher) nextInitial() ([]Event, error) {
	k := w.initial
	if !k.begun {
		k.begun = true
		return []Event{{Kind: EventReset}}, nil
	}

	if k.pending == nil {
		k.pending = w.readStep()
		if !w.query.charge() {
			return nil, ErrWatchEnded
		}
	}

	stride := k.pending
	if events, err := w.follow(stride.to); len(events) > 0 || err != nil {
		return events, err
	}

	k.reached, k.pending = stride.reached, nil
	if stride.last {
		w.initial = nil
		return []Event{{Kind: EventCurrent, Resume: w.ResumeToken()}}, nil
	}

	var events []Event
	for _, e := range stride.found {
		if e = w.show.of(e, &w.query); e != nil {
			events = append(events, Event{Kind: EventAdded, Entry: e})
		}
	}

	return events, nil
}

// scanStep reads the next entries, or finds the next origin.
func (w *Watcher) readStep() *scanStep {
	k, view := w.initial, w.view

	origin := k.reached.origin
	if origin.IsZero() {
		origin = view.domain
	}

	index, ok := view.indexOf(origin)
	if asked := w.query.Origin; !ok || k.ended || !asked.IsZero() && asked != origin {
		return w.nextOrigin()
	}

	if !k.started {
		k.along, _, _, _ = index.plan(w.query.Query)
		k.started = true
	}

	index.expire()
	s := &scanStep{reached: k.reached}

	var more bool

	s.found, s.reached.last, more, s.to = index.read(k.along, &w.query, k.reached.last, view.log)
	if !more {
		k.ended, s.reached.last = true, maxSortKey
	}

	return s
}

// nextOrigin goes on to the next origin in the order of their names.
func (w *Watcher) nextOrigin() *scanStep {
	k, view := w.initial, w.view
	view.mu.RLock() // what comes or goes from here on is behind the position
	defer view.mu.RUnlock()

	s := &scanStep{to: view.log.position(), last: true}
	for td := range view.others {
		name := td.Name()
		if !w.query.OwnOnly && name > k.reached.origin.Name() && (s.last || name < s.reached.origin.Name()) {
			s.reached.origin, s.last = td, false
		}
	}

	k.started, k.ended = false, false

	return s
}

// read returns some of the entries of r behind a key that q asks for and that
// have not died as far as the log says, with the log's position that they are of.
func (x *Index) read(r textFilter, matcher *matcher, after sortKey, log *changeLog) (found []*directory.Entry,
	last sortKey, more bool, at uint64) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	found, last, more = x.scanHeld(r, matcher, after, x.expiries.expiredTo.at-1, eventBatch, eventBatch)

	return slices.DeleteFunc(found, x.expiries.isExpired), last, more, log.position()
}

// A scanPosition is how far the order of all registrations (Cursor's) was walked.
type scanPosition struct {
	origin spiffeid.TrustDomain // zero for the own domain
	last   sortKey              // of that origin's entries
}

// hasPassed reports whether e's place was passed.
func (f *scanPosition) hasPassed(v *View, entry *directory.Entry) bool {
	k, own := sortKey{rid: entry.RID}, entry.Origin == v.domain
	if own {
		k.created = entry.Created
	}

	switch {
	case own && f.origin.IsZero(), entry.Origin == f.origin:
		return k.compare(f.last) <= 0
	case own:
		return true
	}

	return !f.origin.IsZero() && strings.Compare(entry.Origin.Name(), f.origin.Name()) < 0
}
