package directory

import (
	"hash/maphash"
	"strings"

	"github.com/roster-mesh/roster/table"
)

// A stock gives an index's entries and the texts that they are found by numbers,
// so that postings have no pointers for the collector to follow.
type stock struct {
	slots   table.Pool[slot]
	byRID   table.Table // the number of a rid's slot
	seed    maphash.Seed
	texts   []text
	numbers map[string]uint32
	unused  []uint32 // texts that nobody has
}

// A slot holds the newest entry of a rid. Postings name slots, so that a refresh,
// which changes no posting, swaps one pointer.
type slot struct {
	key   key
	e     *Entry
	marks marks
}

// A text is what so many postings share.
type text struct {
	s    string
	uses int
}

// ownName stands for the agent name of the entry itself, which nobody shares.
const ownName = 0

func newStock() stock {
	return stock{seed: maphash.MakeSeed(), texts: make([]text, 1), numbers: map[string]uint32{}}
}

// slot returns the slot of a rid and its number; nil where it has none.
func (t *stock) slot(rid RID) (*slot, uint32) {
	n, ok := t.byRID.Find(t.hash(rid), func(n uint32) bool { return t.slots.At(n).key.rid == rid })
	if !ok {
		return nil, 0
	}
	return t.slots.At(n), n
}

func (t *stock) hash(rid RID) uint64 { return maphash.Bytes(t.seed, rid.u[:]) }

func (t *stock) hashOf(n uint32) uint64 { return t.hash(t.slots.At(n).key.rid) }

// take makes an empty slot for a rid that has none.
func (t *stock) take(k key) (*slot, uint32) {
	n := t.slots.Take()
	s := t.slots.At(n)
	s.key = k
	t.byRID.Insert(n, t.hashOf)
	return s, n
}

// free lets a slot go that no posting names any more.
func (t *stock) free(n uint32) {
	t.byRID.Remove(n, t.hashOf)
	t.slots.Give(n)
}

// text returns the text of a posting.
func (t *stock) text(o posting) string {
	if o.text == ownName {
		return t.slots.At(o.slot).e.Agent
	}
	return t.texts[o.text].s
}

// use returns the number of a text for one posting more.
func (t *stock) use(s string) uint32 {
	n, known := t.numbers[s]
	if !known {
		s = strings.Clone(s) // not a part of some document
		if last := len(t.unused) - 1; last >= 0 {
			n, t.unused = t.unused[last], t.unused[:last]
			t.texts[n].s = s
		} else {
			n = uint32(len(t.texts))
			t.texts = append(t.texts, text{s: s})
		}
		t.numbers[s] = n
	}
	t.texts[n].uses++
	return n
}

// drop is the end of a posting.
func (t *stock) drop(o posting) {
	if o.text == ownName {
		return
	}
	x := &t.texts[o.text]
	if x.uses--; x.uses == 0 {
		delete(t.numbers, x.s)
		x.s = ""
		t.unused = append(t.unused, o.text)
	}
}
