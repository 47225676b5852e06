package discovery

// A table finds numbers by the hash of what they stand for: open addressing with
// linear probing, four bytes for a cell and none for the garbage collector. The
// caller knows what a number stands for.
type table struct {
	cells []uint32 // number+1; 0 where there is none
	used  int
}

// find returns the number of hash h that same says yes to.
func (t *table) find(h uint64, same func(uint32) bool) (uint32, bool) {
	if len(t.cells) == 0 {
		return 0, false
	}
	mask := uint64(len(t.cells) - 1)
	for i := h & mask; t.cells[i] != 0; i = (i + 1) & mask {
		if n := t.cells[i] - 1; same(n) {
			return n, true
		}
	}
	return 0, false
}

// insert adds a number that is not in t. hash returns that of any number in t.
func (t *table) insert(n uint32, hash func(uint32) uint64) {
	if t.used*4 >= len(t.cells)*3 {
		t.grow(hash)
	}
	t.place(n, hash(n))
	t.used++
}

func (t *table) place(n uint32, h uint64) {
	mask := uint64(len(t.cells) - 1)
	i := h & mask
	for t.cells[i] != 0 {
		i = (i + 1) & mask
	}
	t.cells[i] = n + 1
}

func (t *table) grow(hash func(uint32) uint64) {
	old := t.cells
	t.cells = make([]uint32, max(64, 2*len(old)))
	for _, c := range old {
		if c != 0 {
			t.place(c-1, hash(c-1))
		}
	}
}

// remove takes out a number that is in t, and closes the gap.
func (t *table) remove(n uint32, hash func(uint32) uint64) {
	mask := uint64(len(t.cells) - 1)
	i := hash(n) & mask
	for t.cells[i] != n+1 {
		i = (i + 1) & mask
	}
	for j := (i + 1) & mask; t.cells[j] != 0; j = (j + 1) & mask {
		// What is at j may move to i unless its own place lies behind i.
		if home := hash(t.cells[j]-1) & mask; (j-home)&mask >= (j-i)&mask {
			t.cells[i] = t.cells[j]
			i = j
		}
	}
	t.cells[i] = 0
	t.used--
}

// pageSize is how many elements one page of a paged list holds.
const pageSize = 1 << 12

// A paged is a list that grows without being copied.
type paged[T any] struct {
	pages []*[pageSize]T
	n     uint32
}

func (p *paged[T]) at(i uint32) *T { return &p.pages[i/pageSize][i%pageSize] }

// add returns the number of a new element, which is zero.
func (p *paged[T]) add() uint32 {
	if p.n%pageSize == 0 && int(p.n/pageSize) == len(p.pages) {
		p.pages = append(p.pages, new([pageSize]T))
	}
	p.n++
	return p.n - 1
}

// A pool is a paged list whose elements come and go.
type pool[T any] struct {
	paged[T]
	free []uint32
}

// take returns the number of an element that nobody uses; it is zero.
func (p *pool[T]) take() uint32 {
	if n := len(p.free); n > 0 {
		i := p.free[n-1]
		p.free = p.free[:n-1]
		return i
	}
	return p.add()
}

// give returns an element to the pool.
func (p *pool[T]) give(i uint32) {
	var zero T
	*p.at(i) = zero
	p.free = append(p.free, i)
}
