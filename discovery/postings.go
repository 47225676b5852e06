package discovery

import (
	"slices"
	"sort"
)

// A slot is the number of a registration in the index, below maxSlots.
const (
	slotBits = 24
	maxSlots = 1 << slotBits
)

// A posting says how much a term weighs in a registration: the slot and, in the
// lowest byte, the weight in steps of 1/255. Postings of one term sort by slot.
type posting uint32

func newPosting(slot uint32, weight byte) posting { return posting(slot<<8 | uint32(weight)) }

func (p posting) slot() uint32 { return uint32(p) >> 8 }
func (p posting) weight() byte { return byte(p) }

// flatMost is how many postings of a term are kept in one run; those of a term
// that has more are kept by the upper bits of their slots, three bytes each.
const flatMost = 1024

// A list is the postings of a term that has several.
type list struct {
	flat  []posting // sorted; empty where there are runs
	runs  []run     // sorted, none is empty
	count uint32
	most  byte // no posting weighs more
}

// A run is the postings of the 65,536 slots that have the same upper bits.
type run struct {
	upper   uint32
	low     []uint16 // sorted
	weights []byte   // of low's slots
}

// set puts a posting in, or in the place of the one of its slot.
func (l *list) set(p posting) {
	l.most = max(l.most, p.weight())
	if len(l.runs) == 0 {
		i, had := l.find(p.slot())
		switch {
		case had:
			l.flat[i] = p
			return
		case len(l.flat) < flatMost:
			l.flat = insert(l.flat, i, p)
			l.count++
			return
		}
		l.split()
	}
	if l.setRun(p) {
		l.count++
	}
}

// find returns where the posting of a slot is in flat, or would be.
func (l *list) find(slot uint32) (int, bool) {
	from, to := 0, len(l.flat)
	for from < to {
		if mid := int(uint(from+to) >> 1); l.flat[mid] < posting(slot<<8) {
			from = mid + 1
		} else {
			to = mid
		}
	}
	return from, from < len(l.flat) && l.flat[from].slot() == slot
}

// insert is slices.Insert, but leaves little room for more.
func insert[E any](s []E, i int, e E) []E {
	if len(s) == cap(s) {
		s = append(make([]E, 0, len(s)+1+len(s)/16), s...)
	}
	return slices.Insert(s, i, e)
}

// split makes runs of flat.
func (l *list) split() {
	for from := 0; from < len(l.flat); {
		upper := l.flat[from].slot() >> 16
		to := from
		for to < len(l.flat) && l.flat[to].slot()>>16 == upper {
			to++
		}
		r := run{upper, make([]uint16, to-from), make([]byte, to-from)}
		for i, p := range l.flat[from:to] {
			r.low[i], r.weights[i] = uint16(p.slot()), p.weight()
		}
		l.runs = append(l.runs, r)
		from = to
	}
	l.flat = nil
}

// join is the reverse of split.
func (l *list) join() {
	l.flat = make([]posting, 0, flatMost/2)
	for i := range l.runs {
		r := &l.runs[i]
		for j, low := range r.low {
			l.flat = append(l.flat, newPosting(r.upper<<16|uint32(low), r.weights[j]))
		}
	}
	l.runs = nil
}

func (l *list) findRun(upper uint32) (int, bool) {
	i := sort.Search(len(l.runs), func(i int) bool { return l.runs[i].upper >= upper })
	return i, i < len(l.runs) && l.runs[i].upper == upper
}

// setRun is set where there are runs; it reports whether the slot had no posting.
func (l *list) setRun(p posting) bool {
	low := uint16(p.slot())
	i, ok := l.findRun(p.slot() >> 16)
	if !ok {
		l.runs = slices.Insert(l.runs, i, run{upper: p.slot() >> 16})
	}
	r := &l.runs[i]
	j, had := slices.BinarySearch(r.low, low)
	if had {
		r.weights[j] = p.weight()
		return false
	}
	r.low, r.weights = insert(r.low, j, low), insert(r.weights, j, p.weight())
	return true
}

// remove takes the posting of a slot out, if there is one.
func (l *list) remove(slot uint32) {
	if len(l.runs) == 0 {
		if i, ok := l.find(slot); ok {
			l.flat = slices.Delete(l.flat, i, i+1)
			l.count--
		}
		return
	}
	i, ok := l.findRun(slot >> 16)
	if !ok {
		return
	}
	r := &l.runs[i]
	j, ok := slices.BinarySearch(r.low, uint16(slot))
	if !ok {
		return
	}
	r.low, r.weights = slices.Delete(r.low, j, j+1), slices.Delete(r.weights, j, j+1)
	if len(r.low) == 0 {
		l.runs = slices.Delete(l.runs, i, i+1)
	}
	if l.count--; l.count <= flatMost/2 {
		l.join()
	}
}
