package content

// A Counts term has how often it stands in each field, at most maxCount times:
// to say a thing more often than that adds nothing.
type Counts [FieldCount]uint8

const MaxCount = 3

// A termBag counts the terms of one registration, by their hashes. It is used again
// and again.
type termBag struct {
	cells  []uint16 // number in hashes + 1, by hash; 0 if empty
	Hashes []uint64
	Counts []Counts
}

// bagSize is how many cells a bag has at first.
const bagSize = 1 << 10

func (b *termBag) Reset() {
	if b.cells == nil {
		b.cells = make([]uint16, bagSize)
	}

	clear(b.cells)
	b.Hashes, b.Counts = b.Hashes[:0], b.Counts[:0]
}

// cell returns where a hash is, or would be.
func (b *termBag) cell(h uint64) *uint16 {
	mask := uint64(len(b.cells) - 1)

	i := h & mask
	for b.cells[i] != 0 && b.Hashes[b.cells[i]-1] != h {
		i = (i + 1) & mask
	}

	return &b.cells[i]
}

// Add returns the counts of a term, which may be new.
func (b *termBag) Add(h uint64) *Counts {
	c := b.cell(h)
	if *c == 0 {
		b.Hashes, b.Counts = append(b.Hashes, h), append(b.Counts, Counts{})

		*c = uint16(len(b.Hashes))
		if 2*len(b.Hashes) > len(b.cells) {
			b.grow()
		}

		return &b.Counts[len(b.Counts)-1]
	}

	return &b.Counts[*c-1]
}

// get returns the counts of a term; all 0 if it isn't there.
func (b *termBag) get(h uint64) Counts {
	if len(b.Hashes) == 0 {
		return Counts{}
	}

	if c := *b.cell(h); c != 0 {
		return b.Counts[c-1]
	}

	return Counts{}
}

func (b *termBag) grow() {
	b.cells = make([]uint16, 2*len(b.cells))
	for i, h := range b.Hashes {
		*b.cell(h) = uint16(i + 1)
	}
}
