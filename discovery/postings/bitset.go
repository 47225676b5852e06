package postings

import "math/bits"

// A Bitset is a set of slots.
type Bitset []uint64

func (b Bitset) Has(n uint32) bool { return int(n>>6) < len(b) && b[n>>6]&(1<<(n&63)) != 0 }

func (b *Bitset) Set(n uint32) {
	for int(n>>6) >= len(*b) {
		*b = append(*b, 0)
	}

	(*b)[n>>6] |= 1 << (n & 63)
}

func (b Bitset) Unset(n uint32) {
	if int(n>>6) < len(b) {
		b[n>>6] &^= 1 << (n & 63)
	}
}

func (b Bitset) Count() int {
	n := 0
	for _, w := range b {
		n += bits.OnesCount64(w)
	}

	return n
}

// leave intersects a set with another.
func (b Bitset) leave(other Bitset) {
	n := min(len(b), len(other))
	for i, w := range other[:n] {
		b[i] &= w
	}

	clear(b[n:])
}

// AddTo adds a set to another, as far as that has room.
func (b Bitset) AddTo(other Bitset) {
	for i, w := range b[:min(len(b), len(other))] {
		other[i] |= w
	}
}

// both counts the slots that are in two sets.
func (b Bitset) both(other Bitset) int {
	n := 0
	for i, w := range b[:min(len(b), len(other))] {
		n += bits.OnesCount64(w & other[i])
	}

	return n
}

// bit returns 1 for a slot that is in a set.
func (b Bitset) bit(n uint32) uint32 {
	if int(n>>6) >= len(b) {
		return 0
	}

	return uint32(b[n>>6] >> (n & 63) & 1)
}

// Each calls f with the slots of a set, in order.
func Each(set Bitset, f func(uint32)) {
	for i, w := range set {
		for ; w != 0; w &= w - 1 {
			f(uint32(i)<<6 + uint32(bits.TrailingZeros64(w)))
		}
	}
}
