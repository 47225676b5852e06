package postings

import (
	"iter"
	"slices"
)

// A slot is the number of a registration in the index, below maxSlots.
const (
	slotBits = 24
	MaxSlots = 1 << slotBits
)

// A Posting says how much a term weighs in a registration: the slot and, in the
// lowest bits, the weight in steps of 1/maxWeight. Postings of one term sort by
// slot.
type Posting uint32

const (
	weightBits = 5
	MaxWeight  = 1<<weightBits - 1
)

func NewPosting(slot uint32, weight byte) Posting {
	return Posting(slot<<weightBits | uint32(weight))
}

func (p Posting) Slot() uint32 { return uint32(p) >> weightBits }
func (p Posting) Weight() byte { return byte(p & MaxWeight) }

// A List is the postings of a term that has several. No block of it is empty.
type List struct {
	blocks []block // sorted
	Count  uint32
	Max    byte // no posting weighs more
	Dead   DeadCount
	Dense  *Bitset // the slots of its postings, where they are many; it may lack dead ones
}

// BlockCells is how many cells a block has at most between two changes.
const BlockCells = 128

// at returns the number of the block where the posting of a slot is, or would be.
func (l *List) at(slot uint32) int {
	from, to := 0, len(l.blocks)-1
	for from < to {
		if mid := int(uint(from+to+1) >> 1); l.blocks[mid].first <= slot {
			from = mid
		} else {
			to = mid - 1
		}
	}

	return from
}

// block is at, and faster for the last block, which it mostly is.
func (l *List) block(slot uint32) int {
	if i := len(l.blocks) - 1; l.blocks[i].first <= slot {
		return i
	}

	return l.at(slot)
}

// set puts a posting in, or in the place of the one of its slot.
func (l *List) set(posting Posting) {
	l.Max = max(l.Max, posting.Weight())
	if len(l.blocks) == 0 {
		l.blocks, l.Count = []block{newBlock(posting)}, 1
		return
	}

	i := l.block(posting.Slot())
	if !l.blocks[i].set(posting) {
		return
	}

	l.Count++
	l.note(posting.Slot())

	if len(l.blocks[i].cells) > BlockCells {
		l.split(i)
		l.thicken()
	}
}

// split makes two blocks of one. Of the last, where postings are added most, it
// leaves all but one together.
func (l *List) split(i int) {
	half := BlockCells / 2
	if i == len(l.blocks)-1 {
		half = BlockCells
	}

	l.blocks = insert(l.blocks, i+1, l.blocks[i].cut(half))
}

// sweepBlocks bounds how many blocks of a list are swept at once.
const sweepBlocks = 64

// sweep takes out postings whose slots are not in a set: of some blocks, from that
// of a slot on. It returns the slot to go on from, MaxSlots at the end, and
// how many cells it has read and how many postings are gone.
func (l *List) sweep(from uint32, alive Bitset) (next uint32, read, gone int) {
	first := l.at(from)
	to, end := first, min(first+sweepBlocks, len(l.blocks))

	next = MaxSlots
	if end < len(l.blocks) {
		next = l.blocks[end].first
	}

	for i := first; i < end; i++ {
		block := l.blocks[i]
		read += len(block.cells)

		gone += block.sweep(alive)
		switch n := len(block.cells); {
		case n == 0:
			continue
		case to > 0 && n+len(l.blocks[to-1].cells) <= BlockCells*3/4:
			// A joined block has room for more, so that the next posting does not split it.
			l.blocks[to-1].join(&block)
			continue
		case cap(block.cells) > 2*n:
			// The copy frees the memory of the cells that are gone.
			block.cells = slices.Clone(block.cells)
		}

		l.blocks[to] = block
		to++
	}

	l.blocks = slices.Delete(l.blocks, to, end)
	if cap(l.blocks) > 2*len(l.blocks) {
		l.blocks = slices.Clone(l.blocks)
	}

	l.Count -= uint32(gone)
	if next == MaxSlots {
		l.thin(alive)
	}

	return next, read, gone
}

// Has reports whether a slot has a posting.
func (l *List) Has(slot uint32) bool {
	return len(l.blocks) > 0 && l.blocks[l.at(slot)].find(slot).slot == slot
}

// All yields the postings in the order of their slots. The list must not change
// meanwhile.
func (l *List) All() iter.Seq[Posting] {
	return func(yield func(Posting) bool) {
		for i := range l.blocks {
			slot := l.blocks[i].first
			for _, c := range l.blocks[i].cells {
				slot += c.gap()
				if c.weight() > 0 && !yield(NewPosting(slot, c.weight())) {
					return
				}
			}
		}
	}
}

// only returns the posting of a list that has one.
func (l *List) only() Posting {
	b := &l.blocks[0]
	return NewPosting(b.first, b.cells[0].weight())
}

// A cursor reads a list in the order of its slots. The list must not change
// meanwhile.
type cursor struct {
	blocks []block // that are not read to their ends
	at     int     // the next cell of the first of them …
	slot   uint32  // … and the slot that it counts from
}

func (l *List) cursor() cursor {
	c := cursor{blocks: l.blocks}
	if len(l.blocks) > 0 {
		c.slot = l.blocks[0].first
	}

	return c
}

func (c *cursor) next() {
	if c.blocks, c.at = c.blocks[1:], 0; len(c.blocks) > 0 {
		c.slot = c.blocks[0].first
	}
}

// seek returns the weight of a slot's posting, or 0 without one. Slots are sought in order.
func (c *cursor) seek(wanted uint32) uint32 {
	c.skip(wanted)

	if len(c.blocks) == 0 {
		return 0
	}

	slot := c.slot
	for i, cell := range c.blocks[0].cells[c.at:] {
		next := slot + cell.gap()
		if next < wanted || next == wanted && cell.weight() == 0 {
			slot = next
			continue
		}

		c.at, c.slot = c.at+i, slot

		if next > wanted {
			return 0
		}

		return uint32(cell.weight())
	}

	return 0
}

// skip leaves out blocks that have nothing from a slot on.
func (c *cursor) skip(from uint32) {
	for len(c.blocks) > 1 && c.blocks[1].first <= from {
		c.next()
	}
}
