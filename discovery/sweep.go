package discovery

import (
	"slices"

	"github.com/roster-mesh/roster/discovery/postings"
)

// A registration that goes leaves its postings behind: to read its texts again, and
// to take out each, costs as much as to index it. Its slot is dead and in no set that
// is searched, and is not used again before a sweep of all postings has taken out what
// was dead when the sweep began.

// Sweeps begin where one in deadShare of the slots, and some more, are dead, and are
// done before as many more are: so there are never more dead than twice that.
const (
	deadShare = 16
	deadLeast = 1 << 10
)

// maxRegistrations leaves room among the slots for those that are dead.
const maxRegistrations = postings.MaxSlots - postings.MaxSlots*2/deadShare - 4*deadLeast

// deadSlots are the dead slots of an index.
type deadSlots struct {
	dead     []uint32 // in the order in which they died
	leaving  []uint32 // those that were dead when the sweep that goes on began
	sweeping bool
	at       postings.SweepPosition
	owed     int    // how many have died since the last step
	deaths   uint64 // counts those that died
}

// buried counts the dead.
func (x *termIndex) buried() int { return len(x.graves.dead) + len(x.graves.leaving) }

// kill takes a slot's registration away, and leaves its postings to be swept.
func (x *termIndex) kill(n uint32) {
	x.byKey.Remove(n, x.hashSlot)
	x.leave(x.slots.At(n).class)
	x.alive.Unset(n)
	x.space.forget(n)
	delete(x.flagged, n)
	x.count--
	x.changed(n)
	g := &x.graves
	g.dead = append(g.dead, n)
	g.deaths++
	g.owed++
}

// tidy does the share of the sweep that those owe who died since it was called.
func (x *termIndex) tidy() {
	g := &x.graves
	limit := (x.count+x.buried())/deadShare + deadLeast
	if !g.sweeping {
		if len(g.dead) < limit {
			g.owed = 0
			return
		}
		g.sweeping, g.at = true, postings.SweepPosition{}
		g.dead, g.leaving = nil, g.dead
	}
	work := x.terms.Work()
	budget := g.owed * (work*5/4/limit + 1)
	g.owed = 0
	if !x.terms.Sweep(&g.at, x.alive, budget) {
		return
	}
	// The lowest are taken first: neighbours have postings side by side.
	slices.Sort(g.leaving)
	for _, n := range slices.Backward(g.leaving) {
		x.slots.Give(n)
	}
	g.leaving, g.sweeping = nil, false
}

// seekCost is how many postings are counted while one is sought.
const seekCost = 128

// living counts the postings of a list whose slots have a registration.
func (x *termIndex) living(l *postings.List) int {
	g := &x.graves
	if x.buried() == 0 {
		return int(l.Count)
	}
	word := l.Dead.Load()
	dead, since := int(word%postings.MaxSlots), g.deaths-min(g.deaths, word/postings.MaxSlots)
	switch {
	case word == 0 || since > uint64(len(g.dead)) || int(since)*seekCost > int(l.Count):
		dead = int(l.Count) - l.CountIn(x.alive)
	default:
		for _, n := range g.dead[len(g.dead)-int(since):] {
			if l.Has(n) {
				dead++
			}
		}
	}
	l.Dead.Store(g.deaths*postings.MaxSlots + uint64(dead))
	return int(l.Count) - dead
}
