package discovery

import (
	"slices"
	"sync/atomic"
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
const maxRegistrations = maxSlots - maxSlots*2/deadShare - 4*deadLeast

// graves are the dead slots of an index.
type graves struct {
	dead     []uint32 // in the order in which they died
	leaving  []uint32 // those that were dead when the sweep that goes on began
	sweeping bool
	at       mark
	owed     int    // how many have died since the last step
	deaths   uint64 // counts those that died
}

// buried counts the dead.
func (x *termIndex) buried() int { return len(x.graves.dead) + len(x.graves.leaving) }

// kill takes a slot's registration away, and leaves its postings to be swept.
func (x *termIndex) kill(n uint32) {
	x.byKey.Remove(n, x.hashSlot)
	x.leave(x.slots.At(n).class)
	x.alive.unset(n)
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
		g.sweeping, g.at = true, mark{}
		g.dead, g.leaving = nil, g.dead
	}
	work := x.terms.postings + int(x.terms.infos.Len())
	budget := g.owed * (work*5/4/limit + 1)
	g.owed = 0
	if !x.terms.sweep(&g.at, x.alive, budget) {
		return
	}
	// The lowest are taken first: neighbours have postings side by side.
	slices.Sort(g.leaving)
	for _, n := range slices.Backward(g.leaving) {
		x.slots.Give(n)
	}
	g.leaving, g.sweeping = nil, false
}

// A tally remembers how many of a list's postings are of dead slots, and of how many
// deaths that was; 0 where it is not known. Queries write it side by side, and all
// write the same.
type tally struct{ word atomic.Uint64 }

func (t *tally) forget() { t.word.Store(0) }

// seekCost is how many postings are counted while one is sought.
const seekCost = 128

// living counts the postings of a list whose slots have a registration.
func (x *termIndex) living(l *list) int {
	g := &x.graves
	if x.buried() == 0 {
		return int(l.count)
	}
	word := l.dead.word.Load()
	dead, since := int(word%maxSlots), g.deaths-min(g.deaths, word/maxSlots)
	switch {
	case word == 0 || since > uint64(len(g.dead)) || int(since)*seekCost > int(l.count):
		dead = int(l.count) - l.among(x.alive)
	default:
		for _, n := range g.dead[len(g.dead)-int(since):] {
			if l.has(n) {
				dead++
			}
		}
	}
	l.dead.word.Store(g.deaths*maxSlots + uint64(dead))
	return int(l.count) - dead
}
