package discovery

// A counted term has how often it stands in each field, at most maxCount times:
// to say a thing more often than that adds nothing.
type counted [fieldCount]uint8

const maxCount = 3

// A bag counts the terms of one registration, by their hashes. It is used again
// and again.
type bag struct {
	cells  []uint16 // number in hashes + 1, by hash; 0 where there is none
	hashes []uint64
	counts []counted
}

// bagSize is how many cells a bag has at first.
const bagSize = 1 << 10

func (b *bag) clear() {
	if b.cells == nil {
		b.cells = make([]uint16, bagSize)
	}
	clear(b.cells)
	b.hashes, b.counts = b.hashes[:0], b.counts[:0]
}

// cell returns where a hash is, or would be.
func (b *bag) cell(h uint64) *uint16 {
	mask := uint64(len(b.cells) - 1)
	i := h & mask
	for b.cells[i] != 0 && b.hashes[b.cells[i]-1] != h {
		i = (i + 1) & mask
	}
	return &b.cells[i]
}

// add returns the counts of a term, which may be new.
func (b *bag) add(h uint64) *counted {
	c := b.cell(h)
	if *c == 0 {
		b.hashes, b.counts = append(b.hashes, h), append(b.counts, counted{})
		*c = uint16(len(b.hashes))
		if 2*len(b.hashes) > len(b.cells) {
			b.grow()
		}
		return &b.counts[len(b.counts)-1]
	}
	return &b.counts[*c-1]
}

// get returns the counts of a term; all 0 where it isn't there.
func (b *bag) get(h uint64) counted {
	if len(b.hashes) == 0 {
		return counted{}
	}
	if c := *b.cell(h); c != 0 {
		return b.counts[c-1]
	}
	return counted{}
}

func (b *bag) grow() {
	b.cells = make([]uint16, 2*len(b.cells))
	for i, h := range b.hashes {
		*b.cell(h) = uint16(i + 1)
	}
}
