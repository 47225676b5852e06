package discovery

import "github.com/roster-mesh/roster/directory/table"

// A termInfo is a term in the index. Its text isn't kept: it is known by 64 bits
// of a hash whose seed nobody else knows. Should two of a million terms have the
// same, which is to be expected once in ten million nodes, they find each other's
// registrations as candidates, which are then read and rated by their texts.
type termInfo struct {
	low, high uint32 // the hash
	// at is the posting of a term that has one, or with inList the number of its list.
	at uint32
}

const inList = 1 << 31

func (i *termInfo) hash() uint64 { return uint64(i.high)<<32 | uint64(i.low) }

// only returns the posting of a term that has one.
func (i *termInfo) only() (posting, bool) { return posting(i.at), i.at&inList == 0 }

func (i *termInfo) list() uint32 { return i.at &^ inList }

// maxTerms bounds the terms of an index. Registrations have hardly more than some
// that no other has; a hundred million words are made up.
const maxTerms = 1 << 26

// terms has the postings of all terms. A million of them are nothing to the
// garbage collector.
type terms struct {
	table table.Table
	infos table.Pool[termInfo]
	lists table.Pool[list]
	most  int // of terms, at most inList
	ahead ahead
	// postings counts them, those of slots without a registration too.
	postings int
}

func (t *terms) hash(n uint32) uint64 { return t.infos.At(n).hash() }

// find returns the number of a term that has postings.
func (t *terms) find(h uint64) (uint32, bool) {
	return t.table.Find(h, func(n uint32) bool { return t.infos.At(n).hash() == h })
}

func (t *terms) has(h uint64) bool { _, ok := t.find(h); return ok }

// set says that a term weighs so much in a slot. It is false where that would be a
// term too many.
func (t *terms) set(h uint64, p posting) bool {
	n, ok := t.find(h)
	if !ok {
		if t.table.Len() >= t.most {
			return false
		}
		n = t.infos.Take()
		*t.infos.At(n) = termInfo{low: uint32(h), high: uint32(h >> 32), at: uint32(p)}
		t.table.Insert(n, t.hash)
		t.postings++
		return true
	}
	t.add(n, p)
	return true
}

// add is set for a term that there is.
func (t *terms) add(n uint32, p posting) {
	i := t.infos.At(n)
	if only, ok := i.only(); ok {
		if only.slot() == p.slot() {
			i.at = uint32(p)
			return
		}
		at := t.lists.Take()
		t.lists.At(at).set(only)
		i.at = inList | at
	}
	l := t.lists.At(i.list())
	before := l.count
	l.set(p)
	t.postings += int(l.count - before)
}

// ahead is room for setAll.
type ahead struct {
	numbers []uint32 // of the terms that there are, or none
	lists   []*list
	sum     uint64 // of what was read ahead, so that it is read
}

const none = ^uint32(0)

// setAll says of several terms what set says of one, and returns for how many there was
// no room. Nearly all of what that costs is waiting for memory, at five places one behind
// the other for each term: so it reads the first of all terms, then the second of all, and
// waits for many at once.
func (t *terms) setAll(hs []uint64, slot uint32, weight func(i int) byte) (left uint64) {
	a := &t.ahead
	for _, h := range hs {
		if n, ok := t.table.Likely(h); ok {
			a.sum += uint64(t.infos.At(n).low)
		}
	}
	a.numbers, a.lists = a.numbers[:0], a.lists[:0]
	for _, h := range hs {
		n, ok := t.find(h)
		if !ok {
			n = none
		} else if i := t.infos.At(n); i.at&inList != 0 {
			a.lists = append(a.lists, t.lists.At(i.list()))
		}
		a.numbers = append(a.numbers, n)
	}
	for _, l := range a.lists {
		a.sum += uint64(l.count)
	}
	for _, l := range a.lists {
		a.sum += uint64(l.blocks[len(l.blocks)-1].last)
	}
	for _, l := range a.lists {
		b := &l.blocks[l.block(slot)]
		a.sum += uint64(b.cells[len(b.cells)-1])
	}
	for i, h := range hs {
		p := newPosting(slot, weight(i))
		switch n := a.numbers[i]; {
		case n != none:
			t.add(n, p)
		case !t.set(h, p): // which looks again: it may have been among hs before
			left++
		}
	}
	clear(a.lists)
	return left
}

// A mark is how far a sweep has come: a term's number, and a slot in its list.
type mark struct{ term, slot uint32 }

// sweep goes on taking out the postings whose slots are not in a set, and reports
// whether it has come to the end. It reads so many postings and terms, or a few more.
func (t *terms) sweep(at *mark, alive bitset, budget int) bool {
	for ; budget > 0; budget-- {
		if at.term >= t.infos.Len() {
			return true
		}
		i := t.infos.At(at.term)
		if only, ok := i.only(); ok {
			if only.weight() > 0 && !alive.has(only.slot()) {
				t.drop(at.term)
				t.postings--
			}
		} else {
			l := t.lists.At(i.list())
			next, read, gone := l.sweep(at.slot, alive)
			l.dead.forget()
			budget -= read
			t.postings -= gone
			if at.slot = next; next < maxSlots {
				continue
			}
			t.settle(at.term)
		}
		*at = mark{term: at.term + 1}
	}
	return false
}

// settle has a term's list no longer than it needs.
func (t *terms) settle(n uint32) {
	i := t.infos.At(n)
	switch l := t.lists.At(i.list()); l.count {
	case 0:
		t.lists.Give(i.list())
		t.drop(n)
	case 1:
		only := l.only()
		t.lists.Give(i.list())
		i.at = uint32(only)
	}
}

func (t *terms) drop(n uint32) {
	t.table.Remove(n, t.hash)
	t.infos.Give(n)
}

// get returns the postings of a term.
func (t *terms) get(h uint64) (*list, bool) {
	n, ok := t.find(h)
	if !ok {
		return nil, false
	}
	i := t.infos.At(n)
	if only, ok := i.only(); ok {
		l := &list{}
		l.set(only)
		return l, true
	}
	return t.lists.At(i.list()), true
}
