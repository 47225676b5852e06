package index

import (
	"hash/maphash"
	"strings"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/table"
)

// A stock gives an index's entries numbers, so that what they are found by has no
// pointers to them for the collector to follow.
type stock struct {
	slots table.Pool[slot]
	byRID table.Table // the number of a rid's slot
	seed  maphash.Seed
}

// A slot holds the newest entry of a rid. Orders are of slots, so that a refresh, which
// changes none, swaps one pointer.
type slot struct {
	key   key
	e     *directory.Entry
	marks marks
}

func newStock() stock { return stock{seed: maphash.MakeSeed()} }

// slot returns the slot of a rid and its number; nil where it has none.
func (t *stock) slot(rid directory.RID) (*slot, uint32) {
	n, ok := t.byRID.Find(t.hash(rid), func(n uint32) bool { return t.slots.At(n).key.rid == rid })
	if !ok {
		return nil, 0
	}
	return t.slots.At(n), n
}

func (t *stock) hash(rid directory.RID) uint64 {
	var b [directory.RIDBinary]byte
	return maphash.Bytes(t.seed, rid.AppendBinary(b[:0]))
}

func (t *stock) hashOf(n uint32) uint64 { return t.hash(t.slots.At(n).key.rid) }

// take makes an empty slot for a rid that has none.
func (t *stock) take(k key) (*slot, uint32) {
	n := t.slots.Take()
	slot := t.slots.At(n)
	slot.key = k
	t.byRID.Insert(n, t.hashOf)
	return slot, n
}

// free lets a slot go that is in no order any more.
func (t *stock) free(n uint32) {
	t.byRID.Remove(n, t.hashOf)
	t.slots.Give(n)
}

// before reports of slots whether their keys are before one.
func (t *stock) before(k key) func(uint32) bool {
	return func(n uint32) bool { return t.slots.At(n).key.compare(k) < 0 }
}

// upTo reports of slots whether their keys are before one, or are that one.
func (t *stock) upTo(k key) func(uint32) bool {
	return func(n uint32) bool { return t.slots.At(n).key.compare(k) <= 0 }
}

// named reports of slots whether their agents' names are before one; of those with that
// very name it says what within does.
func (t *stock) named(agent string, within func(uint32) bool) func(uint32) bool {
	return func(n uint32) bool {
		c := strings.Compare(t.slots.At(n).e.Agent, agent)
		return c < 0 || c == 0 && within(n)
	}
}
