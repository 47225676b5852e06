package discovery

import "sync"

// What many requests filter by, such as a protocol, many registrations have: to read all
// postings of such a label costs a query more than to rank what is left. So the sets of
// the labels that are asked for, and are not rare, are remembered, and brought up to date
// by the slots that have changed since, as readers' sets are.

const (
	// maxLabelSets bounds the sets that are remembered.
	maxLabelSets = 16
	// rareLabel is which part of all slots a label has at most whose postings are read.
	rareLabel = 64
)

// labelSets are the sets that are remembered. Its lock comes after the finder's.
type labelSets struct {
	mu  sync.Mutex
	all []*labelSet // the last used first
}

// A labelSet is the slots that have a label, and some dead ones. While the finder's lock
// is held for reading it doesn't change once it is up to date.
type labelSet struct {
	hash uint64

	mu      sync.Mutex
	slots   bitset
	version uint64 // of the index
	made    bool
}

// mark puts the slots that have a label into a set.
func (x *index) mark(label string, set bitset) {
	h := x.hash(label)
	l, ok := x.terms.get(h)
	switch {
	case !ok:
	case l.count < x.slots.Len()/rareLabel:
		l.mark(set)
	default:
		for i, w := range x.labels.of(x, h, l)[:min(len(set), len(x.alive))] {
			set[i] |= w
		}
	}
}

// of returns the set of a label with such postings, up to date: as long as the index's
// set of the living. The caller holds the finder's lock.
func (ls *labelSets) of(x *index, h uint64, l *list) bitset {
	s := ls.take(h)
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.slots) < len(x.alive) {
		s.slots = append(s.slots, 0)
	}
	switch behind := x.version - s.version; {
	case !s.made, behind > changesKept, behind*seekCost > uint64(l.count):
		clear(s.slots)
		l.mark(s.slots)
	default:
		for v := s.version; v < x.version; v++ {
			if n := x.changes[v%changesKept]; l.has(n) {
				s.slots.set(n)
			} else {
				s.slots.unset(n)
			}
		}
	}
	s.version, s.made = x.version, true
	return s.slots
}

// take returns the set of a label, which is now the last used.
func (ls *labelSets) take(h uint64) *labelSet {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	i := 0
	for i < len(ls.all) && ls.all[i].hash != h {
		i++
	}
	switch {
	case i == len(ls.all) && i < maxLabelSets:
		ls.all = append(ls.all, &labelSet{hash: h})
	case i == len(ls.all):
		i--
		ls.all[i] = &labelSet{hash: h}
	}
	s := ls.all[i]
	copy(ls.all[1:i+1], ls.all[:i])
	ls.all[0] = s
	return s
}
