package index

import (
	"math"
	"slices"
	"strings"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
)

// An initialScan reports the present state to a new watcher while it changes. At any moment
// the reader has the view as of one position in the log, up to one place in the order of all
// registrations. Each step reads some entries after that place and the log position that
// they are of; it reports the changes up to that position as far as the place, then the
// entries. So no change is missed or repeated, and no list of reported entries is needed.
type initialScan struct {
	begun   bool // the reset is reported
	reached scanPosition
	along   textFilter // the filter along which the current index is read
	started bool       // along is chosen
	ended   bool       // the index at hand is read
	pending *scanStep
}

// A scanStep is a part of the state that is read and not reported yet.
type scanStep struct {
	to      uint64 // the position that it is of
	reached scanPosition
	found   []*directory.Entry
	last    bool // there are no more
}

// maxSortKey sorts after all others.
var maxSortKey = sortKey{math.MaxUint64, directory.MaxRID}

// nextInitial returns the next events of the initial state.
func (w *Watcher) nextInitial() ([]Event, error) {
	k := w.initial
	if !k.begun {
		k.begun = true
		return []Event{{Kind: EventReset}}, nil
	}

	// A step stays pending over several calls, until the changes up to its position are reported.
	if k.pending == nil {
		k.pending = w.readStep()
		if !w.query.charge() {
			return nil, errWatchEnded
		}
	}

	// The changes come first, because the step has the entries as they are after them.
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

// readStep reads the next entries, or moves on to the next origin.
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
		k.along = index.plan(w.query.Query).along
		k.started = true
	}

	// The log must have every expiry by now before entries are left out for it.
	index.expire()
	s := &scanStep{reached: k.reached}

	var more bool

	s.found, s.reached.last, more, s.to = index.read(k.along, &w.query, k.reached.last, view.log)
	if !more {
		k.ended, s.reached.last = true, maxSortKey
	}

	return s
}

// nextOrigin moves on to the next origin in the order of names.
func (w *Watcher) nextOrigin() *scanStep {
	k, view := w.initial, w.view
	view.mu.RLock() // later changes are behind the position
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

// read returns some of the matches of q after a key that have not expired by the log, with
// the log position that they are of.
func (x *Index) read(r textFilter, matcher *matcher, after sortKey, log *changeLog) (found []*directory.Entry,
	last sortKey, more bool, at uint64) {
	x.mu.RLock()
	defer x.mu.RUnlock()

	// The log and not the clock decides which entries have expired; those of its last millisecond are left out below.
	found, last, more = x.scanHeld(r, matcher, after, x.expiries.expiredTo.at-1, eventBatch, eventBatch)

	return slices.DeleteFunc(found, x.expiries.isExpired), last, more, log.position()
}

// A scanPosition is how far the scan has come in the order of all registrations (Cursor).
type scanPosition struct {
	origin spiffeid.TrustDomain // zero for the own domain
	last   sortKey              // of that origin's entries
}

// hasPassed reports whether the scan has passed an entry's place.
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
