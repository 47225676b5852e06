package postings

import "github.com/roster-mesh/roster/directory/table"

// A termInfo is a term in the index. Its text isn't kept: it is identified by 64 bits of a hash
// with a secret seed. If two of a million terms have the same hash, which is to be expected
// once in ten million nodes, each finds the other's registrations as candidates, which are then
// read and rated by their texts.
type termInfo struct {
	low, high uint32 // the hash
	// at is the posting of a term that has one, or with inList the number of its list.
	at uint32
}

const inList = 1 << 31

func (i *termInfo) hash() uint64 { return uint64(i.high)<<32 | uint64(i.low) }

// only returns the posting of a term that has one.
func (i *termInfo) only() (Posting, bool) { return Posting(i.at), i.at&inList == 0 }

func (i *termInfo) list() uint32 { return i.at &^ inList }

// MaxTerms bounds the terms of an index. Registrations have hardly more than some
// that no other has; a hundred million words are made up.
const MaxTerms = 1 << 26

// Terms has the postings of all terms. A million of them are nothing to the
// garbage collector.
type Terms struct {
	table table.Table
	infos table.Pool[termInfo]
	lists table.Pool[List]
	Max   int // of terms, at most inList
	ahead ahead
	// postings counts them, those of slots without a registration too.
	postings int
}

func (t *Terms) hash(n uint32) uint64 { return t.infos.At(n).hash() }

// find returns the number of a term that has postings.
func (t *Terms) find(h uint64) (uint32, bool) {
	return t.table.Find(h, func(n uint32) bool { return t.infos.At(n).hash() == h })
}

// Len returns the number of terms.
func (t *Terms) Len() int { return t.table.Len() }

// Work is how much a sweep has to read: postings and terms.
func (t *Terms) Work() int { return t.postings + int(t.infos.Len()) }

// NewTerms returns an empty set of at most that many terms.
func NewTerms(most int) Terms { return Terms{Max: most} }

func (t *Terms) Has(h uint64) bool { _, ok := t.find(h); return ok }

// Set says that a term weighs so much in a slot. It is false if that would be a
// term too many.
func (t *Terms) Set(h uint64, posting Posting) bool {
	n, ok := t.find(h)
	if !ok {
		if t.table.Len() >= t.Max {
			return false
		}

		n = t.infos.Take()
		*t.infos.At(n) = termInfo{low: uint32(h), high: uint32(h >> 32), at: uint32(posting)}
		t.table.Insert(n, t.hash)
		t.postings++

		return true
	}

	t.add(n, posting)

	return true
}

// add is set for a term that there is.
func (t *Terms) add(n uint32, posting Posting) {
	i := t.infos.At(n)
	if only, ok := i.only(); ok {
		if only.Slot() == posting.Slot() {
			i.at = uint32(posting)
			return
		}

		at := t.lists.Take()
		t.lists.At(at).set(only)
		i.at = inList | at
	}

	list := t.lists.At(i.list())
	before := list.Count
	list.set(posting)
	t.postings += int(list.Count - before)
}

// ahead is room for setAll.
type ahead struct {
	numbers []uint32 // of the terms that there are, or none
	lists   []*List
	sum     uint64 // of the values read ahead, so that the reads are not optimised away
}

const none = ^uint32(0)

// SetAll is Set for several terms, and returns the number of terms without room. Nearly all of
// its cost is memory latency, at five dependent places for each term. So it reads the first
// place of all terms, then the second of all, and waits for several reads at once.
func (t *Terms) SetAll(hs []uint64, slot uint32, weight func(i int) byte) (left uint64) {
	ahead := &t.ahead
	for _, h := range hs {
		if n, ok := t.table.Likely(h); ok {
			ahead.sum += uint64(t.infos.At(n).low)
		}
	}

	ahead.numbers, ahead.lists = ahead.numbers[:0], ahead.lists[:0]
	for _, h := range hs {
		n, ok := t.find(h)
		if !ok {
			n = none
		} else if i := t.infos.At(n); i.at&inList != 0 {
			ahead.lists = append(ahead.lists, t.lists.At(i.list()))
		}

		ahead.numbers = append(ahead.numbers, n)
	}

	for _, l := range ahead.lists {
		ahead.sum += uint64(l.Count)
	}

	for _, l := range ahead.lists {
		ahead.sum += uint64(l.blocks[len(l.blocks)-1].last)
	}

	for _, l := range ahead.lists {
		b := &l.blocks[l.block(slot)]
		ahead.sum += uint64(b.cells[len(b.cells)-1])
	}

	for i, h := range hs {
		posting := NewPosting(slot, weight(i))
		switch n := ahead.numbers[i]; {
		case n != none:
			t.add(n, posting)
		case !t.Set(h, posting): // which looks again: it may have been among hs before
			left++
		}
	}

	// The room for the next call must not keep lists in memory.
	clear(ahead.lists)

	return left
}

// A SweepPosition is how far a sweep has come: a term's number, and a slot in its list.
type SweepPosition struct{ term, slot uint32 }

// Sweep continues to remove the postings whose slots are not in a set, and reports whether it
// has reached the end. It reads about budget postings and terms.
func (t *Terms) Sweep(at *SweepPosition, alive Bitset, budget int) bool {
	for ; budget > 0; budget-- {
		if at.term >= t.infos.Len() {
			return true
		}

		i := t.infos.At(at.term)
		if only, ok := i.only(); ok {
			// A number that is not in use has the weight 0.
			if only.Weight() > 0 && !alive.Has(only.Slot()) {
				t.drop(at.term)
				t.postings--
			}
		} else {
			l := t.lists.At(i.list())
			next, read, gone := l.sweep(at.slot, alive)
			l.Dead.forget()
			budget -= read
			t.postings -= gone

			if at.slot = next; next < MaxSlots {
				continue
			}

			t.settle(at.term)
		}

		*at = SweepPosition{term: at.term + 1}
	}

	return false
}

// settle has a term's list no longer than it needs.
func (t *Terms) settle(n uint32) {
	i := t.infos.At(n)
	switch list := t.lists.At(i.list()); list.Count {
	case 0:
		t.lists.Give(i.list())
		t.drop(n)
	case 1:
		only := list.only()
		t.lists.Give(i.list())
		i.at = uint32(only)
	}
}

func (t *Terms) drop(n uint32) {
	t.table.Remove(n, t.hash)
	t.infos.Give(n)
}

// Get returns the postings of a term.
func (t *Terms) Get(h uint64) (*List, bool) {
	n, ok := t.find(h)
	if !ok {
		return nil, false
	}

	i := t.infos.At(n)
	if only, ok := i.only(); ok {
		l := &List{}
		l.set(only)

		return l, true
	}

	return t.lists.At(i.list()), true
}
