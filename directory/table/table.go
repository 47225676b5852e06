// Package table keeps millions of things by number, at a few bytes of overhead
// for each and nearly nothing for the garbage collector. A [Pool] gives numbers
// to things that come and go; a [Table] finds them by a key:
//
//	var things table.Pool[thing]
//	var byName table.Table
//	hash := func(n uint32) uint64 { return maphash.String(seed, things.At(n).name) }
//	n := things.Take()
//	*things.At(n) = thing{name: "x"}
//	byName.Insert(n, hash)
//	n, ok := byName.Find(maphash.String(seed, "x"), func(n uint32) bool { return things.At(n).name == "x" })
//
// Nothing is copied as a whole when it grows, so no caller waits for that however
// much there is. Nothing of it is safe for concurrent use.
package table

import "math"

// parts is the number of parts of a table, each of which grows by itself: by a quarter, so that
// little of it is empty. A part of few cells is doubled, because growing hashes all its
// elements again and a megabyte is negligible.
const (
	parts = 256
	few   = 1024
)

// A Table finds numbers by the hash of their things: open addressing with linear probing,
// four bytes for a cell. The caller maps numbers to things, and hashes with a secret seed.
// The zero value is empty.
type Table struct {
	parts []part // nil until there is a number
	used  int
}

// Len returns how many numbers are in t.
func (t *Table) Len() int { return t.used }

// Find returns the number of hash h for which same returns true.
func (t *Table) Find(h uint64, same func(uint32) bool) (uint32, bool) {
	if t.parts == nil {
		return 0, false
	}

	return t.of(h).find(h, same)
}

// Likely returns the first number that Find would compare for a hash, which may be of
// another thing.
func (t *Table) Likely(h uint64) (uint32, bool) {
	if t.parts == nil {
		return 0, false
	}

	part := t.of(h)
	if len(part.cells) == 0 {
		return 0, false
	}

	n := part.cells[part.home(h)]

	return n - 1, n != 0
}

// Reserve allocates an empty table for n numbers, which are then placed once and not again
// each time that a part grows.
func (t *Table) Reserve(n int) {
	// Parts of few cells grow at next to no cost.
	if t.used > 0 || n < 16*parts {
		return
	}

	t.parts = make([]part, parts)
	for i := range t.parts { // full at three quarters; one of thousands is hardly ever a tenth larger than others
		t.parts[i].cells = make([]uint32, n/parts*3/2)
	}
}

// Insert adds a number that is not in t. hash returns that of any number in t.
func (t *Table) Insert(n uint32, hash func(uint32) uint64) {
	if t.parts == nil {
		t.parts = make([]part, parts)
	}

	h := hash(n)
	t.of(h).insert(n, h, hash)
	t.used++
}

// Remove takes out a number that is in t.
func (t *Table) Remove(n uint32, hash func(uint32) uint64) {
	h := hash(n)
	t.of(h).remove(n, h, hash)
	t.used--
}

func (t *Table) of(h uint64) *part { return &t.parts[h>>56] }

// A part has the numbers whose hashes have the same highest bits.
type part struct {
	cells []uint32 // number+1; 0 if empty
	used  int
}

func (p *part) find(h uint64, same func(uint32) bool) (uint32, bool) {
	if len(p.cells) == 0 {
		return 0, false
	}

	for i := p.home(h); p.cells[i] != 0; i = p.after(i) {
		if n := p.cells[i] - 1; same(n) {
			return n, true
		}
	}

	return 0, false
}

func (p *part) insert(n uint32, h uint64, hash func(uint32) uint64) {
	// A quarter of the cells stays empty, so that probing stays short.
	if p.used*4 >= len(p.cells)*3 {
		p.grow(hash)
	}

	p.place(n, h)
	p.used++
}

// home is the first cell for a hash.
func (p *part) home(h uint64) int { return int(h & math.MaxUint32 * uint64(len(p.cells)) >> 32) }

// after is the next cell.
func (p *part) after(i int) int {
	if i++; i == len(p.cells) {
		return 0
	}

	return i
}

// steps is the distance from one cell to another.
func (p *part) steps(from, to int) int {
	if to < from {
		to += len(p.cells)
	}

	return to - from
}

func (p *part) place(n uint32, h uint64) {
	i := p.home(h)
	for p.cells[i] != 0 {
		i = p.after(i)
	}

	p.cells[i] = n + 1
}

func (p *part) grow(hash func(uint32) uint64) {
	old := p.cells

	more := len(old) / 4
	if len(old) < few {
		more = max(4, len(old))
	}

	p.cells = make([]uint32, len(old)+more)
	for _, c := range old {
		if c != 0 {
			p.place(c-1, hash(c-1))
		}
	}
}

// remove closes the gap that it leaves.
func (p *part) remove(n uint32, h uint64, hash func(uint32) uint64) {
	i := p.home(h)
	for p.cells[i] != n+1 {
		i = p.after(i)
	}

	for j := p.after(i); p.cells[j] != 0; j = p.after(j) {
		// The element at j may move to i unless its own place lies behind i.
		if home := p.home(hash(p.cells[j] - 1)); p.steps(home, j) >= p.steps(i, j) {
			p.cells[i] = p.cells[j]
			i = j
		}
	}

	p.cells[i] = 0
	p.used--
}
