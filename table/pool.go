package table

import "iter"

// pageSize is how many elements one page of a paged list holds.
const pageSize = 1 << 9

// A Paged is a list that grows without being copied. The zero value is empty.
type Paged[T any] struct {
	pages []*[pageSize]T
	n     uint32
}

// Len returns how many elements there are, and so the next one's number.
func (p *Paged[T]) Len() uint32 { return p.n }

// At returns an element, where it stays.
func (p *Paged[T]) At(i uint32) *T { return &p.pages[i/pageSize][i%pageSize] }

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

// Take returns the number of an element that nobody uses; it is zero.
func (p *Pool[T]) Take() uint32 {
	if n := len(p.free); n > 0 {
		i := p.free[n-1]
		p.free = p.free[:n-1]
		return i
	}
	return p.Add()
}

// Give makes an element zero, for somebody else to take.
func (p *Pool[T]) Give(i uint32) {
	var zero T
	*p.At(i) = zero
	p.free = append(p.free, i)
}
