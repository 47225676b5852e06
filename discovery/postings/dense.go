package postings

// A list is dense where it has postings in one of denseShare slots up to its last. It has
// a set of these slots as well, which takes no more memory than half of the postings do,
// and says at once of any slot whether it has one.
const denseShare = 8

// thicken gives a list its set where it has become dense.
func (l *List) thicken() {
	last := l.blocks[len(l.blocks)-1].last
	if l.Dense == nil && l.Count > last/denseShare {
		set := make(Bitset, last/64+1)
		l.AddTo(set)
		l.Dense = &set
	}
}

// note puts the slot of a new posting into a list's set, or takes the set away where slots
// have come to lie far apart: it would take much more memory than the postings.
func (l *List) note(slot uint32) {
	switch {
	case l.Dense == nil:
	case slot/denseShare/2 > l.Count:
		l.Dense = nil
	default:
		l.Dense.Set(slot)
	}
}

// thin removes dead slots from a list's set, or the whole set if few postings are left.
func (l *List) thin(alive Bitset) {
	switch {
	case l.Dense == nil:
	case l.Count < uint32(64*len(*l.Dense))/denseShare/2:
		l.Dense = nil
	default:
		l.Dense.leave(alive)
	}
}
