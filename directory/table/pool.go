package table

import (
	"iter"
	"slices"
)

// pageSize is how many elements one page of a paged list holds.
const pageSize = 1 << 9

// A Paged is a list that grows without being copied. The zero value is empty.
type Paged[T any] struct {
	pages  []*[pageSize]T
	n      uint32
	shared []bool // of the first pages: those that a Share has as well
}

// Len returns the number of elements, which is the number of the next one.
func (p *Paged[T]) Len() uint32 { return p.n }

// At returns an element, which does not move. After Share it is for reading alone.
func (p *Paged[T]) At(i uint32) *T { return &p.pages[i/pageSize][i%pageSize] }

// Edit is At for writing, also after Share. The element and its neighbours do not move until
// the next Share.
func (p *Paged[T]) Edit(i uint32) *T {
	if k := i / pageSize; int(k) < len(p.shared) && p.shared[k] {
		page := *p.pages[k]
		p.pages[k], p.shared[k] = &page, false
	}

	return p.At(i)
}

// Share returns the current list, for reading alone. Others may read it while p changes, if p
// is written to only by Edit, which copies shared pages. It takes a few bytes and nanoseconds
// for each page of elements.
func (p *Paged[T]) Share() Paged[T] {
	p.shared = make([]bool, len(p.pages))
	for i := range p.shared {
		p.shared[i] = true
	}

	return Paged[T]{pages: slices.Clone(p.pages), n: p.n}
}

// Add returns the number of a new element, which is zero.
func (p *Paged[T]) Add() uint32 {
	if p.n%pageSize == 0 && int(p.n/pageSize) == len(p.pages) {
		p.pages = append(p.pages, new([pageSize]T))
	}

	p.n++

	return p.n - 1
}

// All yields the elements and their numbers, in the order of these. It may be
// added to meanwhile.
func (p *Paged[T]) All() iter.Seq2[uint32, *T] {
	return func(yield func(uint32, *T) bool) {
		for i := range p.n {
			if !yield(i, p.At(i)) {
				return
			}
		}
	}
}

// A Pool is a paged list whose elements come and go. The zero value is empty.
type Pool[T any] struct {
	Paged[T]
	free []uint32
}

// Take returns the number of an unused element, which is zero.
func (p *Pool[T]) Take() uint32 {
	if n := len(p.free); n > 0 {
		i := p.free[n-1]
		p.free = p.free[:n-1]

		return i
	}

	return p.Add()
}

// Give zeroes an element and frees its number.
func (p *Pool[T]) Give(i uint32) {
	var zero T
	*p.Edit(i) = zero
	p.free = append(p.free, i)
}
