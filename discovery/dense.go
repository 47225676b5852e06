package discovery

import "math/bits"

// A list is dense where it has postings in one of denseShare slots up to its last. It has
// a set of these slots as well, which takes no more memory than half of the postings do,
// and says at once of any slot whether it has one.
const denseShare = 8

// thicken gives a list its set where it has become dense.
func (l *list) thicken() {
	last := l.blocks[len(l.blocks)-1].last
	if l.dense == nil && l.count > last/denseShare {
		set := make(bitset, last/64+1)
		l.mark(set)
		l.dense = &set
	}
}

// note puts the slot of a new posting into a list's set, or takes the set away where slots
// have come to lie far apart: it would take much more memory than the postings.
func (l *list) note(slot uint32) {
	switch {
	case l.dense == nil:
	case slot/denseShare/2 > l.count:
		l.dense = nil
	default:
		l.dense.set(slot)
	}
}

// thin takes what is dead out of a list's set, or the set away where few postings are left.
func (l *list) thin(alive bitset) {
	switch {
	case l.dense == nil:
	case l.count < uint32(64*len(*l.dense))/denseShare/2:
		l.dense = nil
	default:
		l.dense.leave(alive)
	}
}

// leave leaves in a set what is in another.
func (b bitset) leave(other bitset) {
	n := min(len(b), len(other))
	for i, w := range other[:n] {
		b[i] &= w
	}
	clear(b[n:])
}

// into adds a set to another, as far as that has room.
func (b bitset) into(other bitset) {
	for i, w := range b[:min(len(b), len(other))] {
		other[i] |= w
	}
}

// both counts the slots that are in two sets.
func (b bitset) both(other bitset) int {
	n := 0
	for i, w := range b[:min(len(b), len(other))] {
		n += bits.OnesCount64(w & other[i])
	}
	return n
}

// bit returns 1 for a slot that is in a set.
func (b bitset) bit(n uint32) uint32 {
	if int(n>>6) >= len(b) {
		return 0
	}
	return uint32(b[n>>6] >> (n & 63) & 1)
}
