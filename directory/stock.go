package directory

import "strings"

// A stock gives an index's entries and the texts that they are found by numbers,
// so that postings have no pointers for the collector to follow.
type stock struct {
	slots   []slot
	byRID   map[RID]uint32 // the number of a rid's slot
	vacant  []uint32       // slots without an entry
	texts   []text
	numbers map[string]uint32
	unused  []uint32 // texts that nobody has
}

// A slot holds the newest entry of a rid. Postings name slots, so that a refresh,
// which changes no posting, swaps one pointer.
type slot struct {
	key key
	e   *Entry
}

// A text is what so many postings share.
type text struct {
	s    string
	uses int
}

// ownName stands for the agent name of the entry itself, which nobody shares.
const ownName = 0

func newStock() stock {
	return stock{byRID: map[RID]uint32{}, texts: make([]text, 1), numbers: map[string]uint32{}}
}

// slot returns the slot of a rid and its number; nil where it has none.
func (t *stock) slot(rid RID) (*slot, uint32) {
	n, ok := t.byRID[rid]
	if !ok {
		return nil, 0
	}
	return &t.slots[n], n
}

// take makes an empty slot for a rid that has none.
func (t *stock) take(k key) (*slot, uint32) {
	n := uint32(len(t.slots))
	if last := len(t.vacant) - 1; last >= 0 {
		n, t.vacant = t.vacant[last], t.vacant[:last]
		t.slots[n].key = k
	} else {
		t.slots = append(t.slots, slot{key: k})
	}
	t.byRID[k.rid] = n
	return &t.slots[n], n
}

// free lets a slot go that no posting names any more.
func (t *stock) free(n uint32) {
	delete(t.byRID, t.slots[n].key.rid)
	t.slots[n] = slot{}
	t.vacant = append(t.vacant, n)
}

// text returns the text of a posting.
func (t *stock) text(o posting) string {
	if o.text == ownName {
		return t.slots[o.slot].e.Agent
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
