package index

import (
	"cmp"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/table"
)

// While a view is watched, its indexes know which of their entries expires next. So an expiry is a change like any
// other, reported in time and before the sweep.

// A deadline is when an entry expires. Deadlines are totally ordered, so that those of one
// millisecond can be handled some at a time.
type deadline struct {
	at  int64 // Unix milliseconds
	rid directory.RID
}

func deadlineOf(e *directory.Entry) deadline { return deadline{e.ExpiresAt, e.RID} }

// Compare makes a deadline an item of a table.Heap.
func (d deadline) Compare(o deadline) int {
	return cmp.Or(cmp.Compare(d.at, o.at), d.rid.Compare(o.rid))
}

// A deadlineHeap has, for each entry that is alive, a time at which to look at it that is
// not after its deadline. A refresh changes nothing here: an entry that is still alive at
// that time is put back with its later deadline.
type deadlineHeap struct{ table.Heap[deadline] }

// take removes the first deadline and all that are equal to it.
func (h *deadlineHeap) take() deadline {
	deadline := h.Pop()
	for h.Len() > 0 && h.First() == deadline {
		h.Pop()
	}

	return deadline
}

// An expiryQueue knows when the next entry of an index expires. It exists while the view is
// watched: then an expiry is a change like any other, reported in time and independent of the
// sweep. The index's lock guards it.
type expiryQueue struct {
	log       *changeLog // nil for an index that is in no view
	period    uint64     // that of the log which the rest is of
	deadlines deadlineHeap
	complete  bool     // deadlines has all of the index's entries
	expiredTo deadline // entries with deadlines up to this have expired by the log
}

// isExpired reports whether the log has recorded that the entry expired.
func (m *expiryQueue) isExpired(e *directory.Entry) bool {
	return deadlineOf(e).Compare(m.expiredTo) <= 0
}

// isActive reports whether changes are recorded. If not, it frees the queue.
func (m *expiryQueue) isActive() bool {
	if m.log == nil {
		return false
	}

	p := m.log.period.Load()
	if p == 0 {
		m.deadlines = deadlineHeap{}
		return false
	}

	return p == m.period
}

// recordChange appends the replacement of an entry to the log; nil stands for no entry. The
// caller holds the lock for writing.
func (x *Index) recordChange(old, new *directory.Entry) {
	minder := &x.expiries
	if !minder.isActive() {
		return
	}

	c := change{old: old, new: new}

	// The log has the old entry's expiry already, so the new one is an addition for watchers.
	if old != nil && minder.isExpired(old) {
		c.old = nil
	}

	// A later deadline needs no item: the item of the earlier one is put back when it is due.
	if new != nil && (c.old == nil || new.ExpiresAt < old.ExpiresAt) {
		minder.deadlines.Push(deadlineOf(new))
	}

	if new != nil && minder.isExpired(new) {
		c.new = nil
	}

	switch {
	case c.old == nil && c.new == nil, c.old != nil && c.new != nil && sameForWatchers(c.old, c.new):
		return
	case c.new == nil:
		c.expired = !c.old.AliveAt(x.Clock.Now().UnixMilli())
	}

	minder.log.append(c)
}

// expiryBatch bounds how many entries are looked at under one hold of the lock.
const expiryBatch = 256

// startExpiry fills the queue for the log's present period, unless it is filled.
func (x *Index) startExpiry() {
	x.mu.Lock()
	defer x.mu.Unlock()

	m := &x.expiries
	if m.period == m.log.period.Load() {
		return
	}

	// Entries that have expired by now are absent from this period's log.
	*m = expiryQueue{log: m.log, period: m.log.period.Load(),
		expiredTo: deadline{x.Clock.Now().UnixMilli(), directory.MaxRID}}
	// The lock is released now and then. An entry that is put meanwhile notes its own deadline.
	var all deadlineHeap
	for last, more := (sortKey{}), true; more; {
		var found []*directory.Entry
		found, last, more = x.scanHeld(textFilter{field: fieldAll}, &matcher{Query: &Query{}}, last, m.expiredTo.at,
			expiryBatch, expiryBatch)
		x.mu.Unlock()

		for _, e := range found {
			all.Push(deadlineOf(e))
		}

		x.mu.Lock()
	}

	if m.period != m.log.period.Load() {
		return // no watcher is left
	}

	for _, d := range m.deadlines.Items() {
		all.Push(d)
	}

	m.deadlines, m.complete = all, true
}

// expire records all entries that have expired by the origin's clock. It returns the time
// until it must be called again: at most maxExpiryWait, since the clock may jump forward.
func (x *Index) expire() time.Duration {
	for {
		wait, more := x.expireSome()
		if !more {
			return wait
		}
	}
}

// maxExpiryWait bounds how long a jump of an origin's clock goes unnoticed.
const maxExpiryWait = time.Second

func (x *Index) expireSome() (wait time.Duration, more bool) {
	now := x.Clock.Now().UnixMilli()

	// The lock for reading is enough while no entry is due, so that waiting delays no writer.
	if wait := x.due(now); wait > 0 {
		return wait, false
	}

	x.mu.Lock()
	defer x.mu.Unlock()

	minder := &x.expiries
	if !minder.isActive() || !minder.complete {
		return maxExpiryWait, false
	}

	for range expiryBatch {
		if minder.deadlines.Len() == 0 || minder.deadlines.First().at > now {
			return 0, true // due says how long
		}

		deadline := minder.deadlines.take()

		// An item outlives the removal and the refresh of its entry, so the entry itself decides.
		row, _ := x.entries.find(deadline.rid)
		switch {
		case row == nil || minder.isExpired(row.entry):
		case row.entry.ExpiresAt > deadline.at:
			minder.deadlines.Push(deadlineOf(row.entry))
		default:
			minder.expiredTo = deadlineOf(row.entry)
			minder.log.append(change{old: row.entry, expired: true})
		}
	}

	return 0, true
}

// due returns the time until an entry may expire; 0 if one may have expired.
func (x *Index) due(now int64) time.Duration {
	x.mu.RLock()
	defer x.mu.RUnlock()

	if x.expiries.deadlines.Len() == 0 {
		return maxExpiryWait
	}

	return max(0, min(maxExpiryWait, time.Duration(x.expiries.deadlines.First().at-now)*time.Millisecond))
}
