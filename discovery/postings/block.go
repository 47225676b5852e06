package postings

import "slices"

// A block is some postings of a term, one behind the other in cells of two bytes.
type block struct {
	first, last uint32 // the slots of its first and of its last posting
	cells       []cell
}

// A cell is the distance of a posting from the one before, and in the lowest bits its weight.
// The first of a block is at first. A cell of weight 0 is not a posting but a step towards the
// next, in strides.
type cell uint16

const (
	gapBits = 16 - weightBits
	stride  = 1 << gapBits // a posting's cell reaches less far
)

// maxCells is how many cells a posting takes at most.
const maxCells = MaxSlots/(stride*(stride-1)) + 2

func (c cell) weight() byte { return byte(c & MaxWeight) }

// gap returns how many slots the cell is wide.
func (c cell) gap() uint32 {
	if c&MaxWeight == 0 {
		return uint32(c>>weightBits) * stride
	}

	return uint32(c >> weightBits)
}

// appendCells appends the cells of a posting that lies so far behind another.
func appendCells(cs []cell, gap uint32, weight byte) []cell {
	for gap >= stride {
		strides := min(gap/stride, stride-1)
		cs = append(cs, cell(strides<<weightBits))
		gap -= strides * stride
	}

	return append(cs, cell(gap<<weightBits)|cell(weight))
}

func newBlock(p Posting) block {
	return block{p.Slot(), p.Slot(), appendCells(make([]cell, 0, 1), 0, p.Weight())}
}

// A place is where the posting of a slot is in a block, or would be.
type place struct {
	from, to int    // the cells of the first posting whose slot isn't less; to is behind its own
	slot     uint32 // of that posting; noSlot at the end
	before   uint32 // the slot of the posting before; first if there isn't one
}

const noSlot = MaxSlots

func (b *block) find(slot uint32) place {
	if slot > b.last {
		return place{from: len(b.cells), to: len(b.cells), slot: noSlot, before: b.last}
	}

	p := place{before: b.first, slot: noSlot}

	at := b.first
	for i, c := range b.cells {
		at += c.gap()
		if c.weight() == 0 {
			continue
		}

		if at >= slot {
			p.to, p.slot = i+1, at
			return p
		}

		p.from, p.before = i+1, at
	}

	p.to = len(b.cells)

	return p
}

// set puts a posting in, or in the place of the one of its slot. It reports
// whether the slot had no posting.
func (b *block) set(posting Posting) bool {
	at := b.find(posting.Slot())
	if at.slot == posting.Slot() {
		c := &b.cells[at.to-1]
		*c = *c&^MaxWeight | cell(posting.Weight())

		return false
	}

	if posting.Slot() < b.first {
		b.first, at.before = posting.Slot(), posting.Slot()
	}

	// The new posting and the distance of the one behind it are written, each in at most maxCells.
	var room [2 * maxCells]cell

	cs := appendCells(room[:0], posting.Slot()-at.before, posting.Weight())
	if at.slot != noSlot {
		cs = appendCells(cs, at.slot-posting.Slot(), b.cells[at.to-1].weight())
	} else {
		b.last = posting.Slot()
	}

	b.replace(at.from, at.to, cs)

	return true
}

// sweep removes the postings whose slots are not in a set, and returns their number. It writes
// in place: the remaining postings take no more cells than before.
func (b *block) sweep(alive Bitset) (gone int) {
	at := b.first
	before := b.first

	to := 0
	for i, cell := range b.cells {
		at += cell.gap()
		switch {
		case cell.weight() == 0:
			continue
		case !alive.Has(at):
			gone++
			continue
		case gone == 0:
			// No posting is gone yet, so the cells stay where they are.
			to = i + 1
		case to == 0:
			// The first that stays begins the block, at distance 0.
			b.first, before = at, at
			fallthrough
		default:
			to = len(appendCells(b.cells[:to], at-before, cell.weight()))
		}

		before = at
	}

	if gone > 0 {
		b.cells, b.last = b.cells[:to], before
	}

	return gone
}

// replace puts cells in the place of others.
func (b *block) replace(from, to int, with []cell) {
	if n := len(b.cells) - (to - from) + len(with); n > cap(b.cells) {
		// There are many blocks, so append's habit of doubling would waste much memory.
		b.cells = append(slices.Grow([]cell(nil), n+n/16), b.cells...)
	}

	b.cells = slices.Replace(b.cells, from, to, with...)
}

// cut takes off a block the postings from a cell on, or the last where it has fewer
// cells.
func (b *block) cut(half int) block {
	var from, to, begin int

	first, last, slot := b.first, b.first, b.first
	for i, c := range b.cells {
		slot += c.gap()
		if c.weight() == 0 {
			continue
		}

		// The cut follows a whole posting and never divides the steps to one.
		if from, to, first = begin, i+1, slot; from >= half || slot == b.last {
			break
		}

		begin, last = i+1, slot
	}

	off := block{first, b.last, make([]cell, 0, len(b.cells)-to+1)}
	off.cells = appendCells(off.cells, 0, b.cells[to-1].weight())
	off.cells = append(off.cells, b.cells[to:]...)

	// The head is copied, because the array of both would otherwise stay in memory.
	b.cells, b.last = slices.Clone(b.cells[:from]), last

	return off
}

// join puts the postings of the block behind into b.
func (b *block) join(behind *block) {
	cs := appendCells(make([]cell, 0, len(behind.cells)+maxCells), behind.first-b.last, behind.cells[0].weight())
	b.last = behind.last
	b.replace(len(b.cells), len(b.cells), append(cs, behind.cells[1:]...))
}

// insert is slices.Insert, but leaves little room for more.
func insert[E any](s []E, i int, e E) []E {
	if len(s) == cap(s) {
		s = append(make([]E, 0, len(s)+1+len(s)/16), s...)
	}

	return slices.Insert(s, i, e)
}
