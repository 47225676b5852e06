package discovery

import "github.com/roster-mesh/roster/table"

// A termInfo is a term in the index. Its text isn't kept: it is known by 64 bits
// of a hash whose seed nobody else knows. Should two of a million terms have the
// same, which is to be expected once in ten million nodes, they find each other's
// registrations as candidates, which are then read and rated by their texts.
type termInfo struct {
	low, high uint32 // the hash
	// at is the posting of a term that has one, or the number of its list above a
	// zero byte: no posting weighs nothing.
	at uint32
}

func (i *termInfo) hash() uint64 { return uint64(i.high)<<32 | uint64(i.low) }

// only returns the posting of a term that has one.
func (i *termInfo) only() (posting, bool) {
	p := posting(i.at)
	return p, p.weight() != 0
}

// terms has the postings of all terms. A million of them are nothing to the
// garbage collector.
type terms struct {
	table table.Table
	infos table.Pool[termInfo]
	lists table.Pool[list]
}

func (t *terms) hash(n uint32) uint64 { return t.infos.At(n).hash() }

// find returns the number of a term that has postings.
func (t *terms) find(h uint64) (uint32, bool) {
	return t.table.Find(h, func(n uint32) bool { return t.infos.At(n).hash() == h })
}

// set says that a term weighs so much in a slot.
func (t *terms) set(h uint64, p posting) {
	n, ok := t.find(h)
	if !ok {
		n = t.infos.Take()
		*t.infos.At(n) = termInfo{low: uint32(h), high: uint32(h >> 32), at: uint32(p)}
		t.table.Insert(n, t.hash)
		return
	}
	i := t.infos.At(n)
	if only, ok := i.only(); ok {
		if only.slot() == p.slot() {
			i.at = uint32(p)
			return
		}
		at := t.lists.Take()
		t.lists.At(at).set(only)
		i.at = at << 8
	}
	t.lists.At(i.at >> 8).set(p)
}

// remove says that a term is not in a slot any more.
func (t *terms) remove(h uint64, slot uint32) {
	n, ok := t.find(h)
	if !ok {
		return
	}
	i := t.infos.At(n)
	if only, ok := i.only(); ok {
		if only.slot() == slot {
			t.table.Remove(n, t.hash)
			t.infos.Give(n)
		}
		return
	}
	l := t.lists.At(i.at >> 8)
	if l.remove(slot); l.count == 1 {
		only := l.flat[0]
		t.lists.Give(i.at >> 8)
		i.at = uint32(only)
	}
}

// get returns the postings of a term.
func (t *terms) get(h uint64) (*list, bool) {
	n, ok := t.find(h)
	if !ok {
		return nil, false
	}
	i := t.infos.At(n)
	if only, ok := i.only(); ok {
		return &list{flat: []posting{only}, count: 1, most: only.weight()}, true
	}
	return t.lists.At(i.at >> 8), true
}
