package index

import (
	"cmp"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/table"
)

// While somebody watches, an index knows which of its entries dies next, so that
// an expiry is a change like any other, in time and before anybody sweeps.

// A deadline is when an entry dies. Deadlines have one order, so that those of
// one moment can be told some at a time.
type deadline struct {
	at  int64 // Unix milliseconds
	rid directory.RID
}

func deadlineOf(e *directory.Entry) deadline { return deadline{e.ExpiresAt, e.RID} }

// Compare makes a deadline an item of a table.Heap.
func (d deadline) Compare(o deadline) int {
	return cmp.Or(cmp.Compare(d.at, o.at), d.rid.Compare(o.rid))
}

// deadlines is a heap of when to look at which entry: for each entry that is
// alive one that is not behind its deadline. So a refresh costs nothing; whoever
// looks too early looks again.
type deadlines struct{ table.Heap[deadline] }

// take removes the first deadline, and those that are equal to it.
func (h *deadlines) take() deadline {
	deadline := h.Pop()
	for h.Len() > 0 && h.First() == deadline {
		h.Pop()
	}
	return deadline
}

// A minder is what an index keeps for those who watch it. The index's lock guards
// it.
type minder struct {
	log    *changeLog // nil for an index that is in no view
	period uint64     // that of the log which the rest is of
	agenda deadlines
	whole  bool     // agenda has all of the index's entries
	told   deadline // whose deadline isn't behind this has died as far as the log says
}

// dead reports whether the log says that e has expired.
func (m *minder) dead(e *directory.Entry) bool { return deadlineOf(e).Compare(m.told) <= 0 }

// minds reports whether changes are kept. What was kept in the past is let go.
func (m *minder) minds() bool {
	if m.log == nil {
		return false
	}
	p := m.log.period.Load()
	if p == 0 {
		m.agenda = deadlines{}
		return false
	}
	return p == m.period
}

// note tells the log that the entry of a rid is now another one; nil for none.
// The caller holds the lock for writing.
func (x *Index) note(old, new *directory.Entry) {
	minder := &x.minder
	if !minder.minds() {
		return
	}
	c := change{old: old, new: new}
	if old != nil && minder.dead(old) {
		c.old = nil
	}
	if new != nil && (c.old == nil || new.ExpiresAt < old.ExpiresAt) {
		minder.agenda.Push(deadlineOf(new))
	}
	if new != nil && minder.dead(new) {
		c.new = nil
	}
	switch {
	case c.old == nil && c.new == nil, c.old != nil && c.new != nil && alike(c.old, c.new):
		return
	case c.new == nil:
		c.expired = !c.old.AliveAt(x.Clock.Now().UnixMilli())
	}
	minder.log.append(c)
}

// mindBudget is how many entries one hold of the lock looks at.
const mindBudget = 256

// mind begins to know x's deadlines for the log's period, unless it does.
func (x *Index) mind() {
	x.mu.Lock()
	defer x.mu.Unlock()
	m := &x.minder
	if m.period == m.log.period.Load() {
		return
	}
	*m = minder{log: m.log, period: m.log.period.Load(), told: deadline{x.Clock.Now().UnixMilli(), directory.MaxRID}}
	// The lock is let go now and then: what is put meanwhile notes its deadline
	// itself.
	var all deadlines
	for last, more := (key{}), true; more; {
		var found []*directory.Entry
		found, last, more = x.scanHeld(extent{field: fieldAll}, &matcher{Query: &Query{}}, last, m.told.at, mindBudget, mindBudget)
		x.mu.Unlock()
		for _, e := range found {
			all.Push(deadlineOf(e))
		}
		x.mu.Lock()
	}
	if m.period != m.log.period.Load() {
		return // nobody watches any more
	}
	for _, d := range m.agenda.Items() {
		all.Push(d)
	}
	m.agenda, m.whole = all, true
}

// expire tells the log who has died by the origin's clock. It returns in how
// long there is more to do: at most lookAgain, since the clock may leap forward.
func (x *Index) expire() time.Duration {
	for {
		wait, more := x.expireSome()
		if !more {
			return wait
		}
	}
}

// lookAgain bounds how long a leap of an origin's clock goes unnoticed.
const lookAgain = time.Second

func (x *Index) expireSome() (wait time.Duration, more bool) {
	now := x.Clock.Now().UnixMilli()
	if wait := x.due(now); wait > 0 {
		return wait, false
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	minder := &x.minder
	if !minder.minds() || !minder.whole {
		return lookAgain, false
	}
	for range mindBudget {
		if minder.agenda.Len() == 0 || minder.agenda.First().at > now {
			return 0, true // due says how long
		}
		deadline := minder.agenda.take()
		slot, _ := x.stock.slot(deadline.rid)
		switch {
		case slot == nil || minder.dead(slot.e):
		case slot.e.ExpiresAt > deadline.at:
			minder.agenda.Push(deadlineOf(slot.e))
		default:
			minder.told = deadlineOf(slot.e)
			minder.log.append(change{old: slot.e, expired: true})
		}
	}
	return 0, true
}

// due returns in how long an entry may die; 0 for now.
func (x *Index) due(now int64) time.Duration {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if x.minder.agenda.Len() == 0 {
		return lookAgain
	}
	return max(0, min(lookAgain, time.Duration(x.minder.agenda.First().at-now)*time.Millisecond))
}
