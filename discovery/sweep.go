package discovery

import (
	"slices"

	"github.com/roster-mesh/roster/discovery/postings"
)

// A removed registration leaves its postings behind, because reading its texts again and
// removing each posting costs as much as indexing it. Its slot is dead and in no set that is
// searched. It is not used again before a sweep of all postings has removed those of the slots
// that were dead when the sweep began.

// Sweeps begin when one in deadShare of the slots, and deadLeast more, are dead. They end
// before that number has died again, so the dead are never more than twice the limit.
const (
	deadShare = 16
	deadLeast = 1 << 10
)

// maxRegistrations leaves room among the slots for those that are dead.
const maxRegistrations = postings.MaxSlots - postings.MaxSlots*2/deadShare - 4*deadLeast

// deadSlots are the dead slots of an index.
type deadSlots struct {
	dead     []uint32 // in the order in which they died
	leaving  []uint32 // those that were dead when the current sweep began
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
	slots := &x.graves
	slots.dead = append(slots.dead, n)
	slots.deaths++
	slots.owed++
}

// tidy does the share of the sweep that the deaths since its last call owe.
func (x *termIndex) tidy() {
	slots := &x.graves

	limit := (x.count+x.buried())/deadShare + deadLeast
	if !slots.sweeping {
		if len(slots.dead) < limit {
			slots.owed = 0
			return
		}

		// A slot that dies from here on may have postings where the sweep has passed already.
		slots.sweeping, slots.at = true, postings.SweepPosition{}
		slots.dead, slots.leaving = nil, slots.dead
	}

	// The sweep ends with a quarter to spare before as many have died again as started it.
	work := x.terms.Work()
	budget := slots.owed * (work*5/4/limit + 1)

	slots.owed = 0
	if !x.terms.Sweep(&slots.at, x.alive, budget) {
		return
	}

	// The lowest are taken first: neighbours have postings side by side.
	slices.Sort(slots.leaving)

	for _, n := range slices.Backward(slots.leaving) {
		x.slots.Give(n)
	}

	slots.leaving, slots.sweeping = nil, false
}

// seekCost is how many postings are counted while one is sought.
const seekCost = 128

// living counts the postings of a list whose slots have a registration.
func (x *termIndex) living(list *postings.List) int {
	slots := &x.graves
	if x.buried() == 0 {
		return int(list.Count)
	}

	word := list.Dead.Load()
	dead := int(word % postings.MaxSlots)

	// An earlier count is corrected by the deaths since, unless counting again is cheaper.
	since := slots.deaths - min(slots.deaths, word/postings.MaxSlots)
	switch {
	case word == 0 || since > uint64(len(slots.dead)) || int(since)*seekCost > int(list.Count):
		dead = int(list.Count) - list.CountIn(x.alive)
	default:
		for _, n := range slots.dead[len(slots.dead)-int(since):] {
			if list.Has(n) {
				dead++
			}
		}
	}

	list.Dead.Store(slots.deaths*postings.MaxSlots + uint64(dead))

	return int(list.Count) - dead
}
