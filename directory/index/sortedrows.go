package index

import (
	"iter"
	"slices"
	"sort"
)

// sortedRows are numbers in the order of the rows or texts that they stand for. Callers pass
// that order as a predicate: whether a number sorts before the wanted place.
type sortedRows struct {
	runs [][]uint32 // none is empty
	n    int
}

// maxRun bounds a run, and so how many numbers an insertion moves.
const maxRun = 512

// A place is where a number is, or would be.
type place struct{ run, at int }

// first returns the first place whose number does not sort before.
func (o *sortedRows) first(before func(uint32) bool) place {
	r := sort.Search(len(o.runs), func(i int) bool { return !before(o.runs[i][len(o.runs[i])-1]) })
	if r == len(o.runs) {
		return o.end()
	}

	return place{r, sort.Search(len(o.runs[r]), func(i int) bool { return !before(o.runs[r][i]) })}
}

// end is the place after all numbers.
func (o *sortedRows) end() place { return place{len(o.runs), 0} }

// A rowRange is a part of a sortedRows, for reading.
type rowRange struct {
	of       *sortedRows
	from, to place // to isn't before from
}

// between returns the numbers from one place up to another.
func (o *sortedRows) between(from, to func(uint32) bool) rowRange {
	return rowRange{o, o.first(from), o.first(to)}
}

// size returns how many numbers there are.
func (p rowRange) size() int {
	n := p.to.at - p.from.at
	for _, r := range p.of.runs[p.from.run:p.to.run] {
		n += len(r)
	}

	return n
}

// all yields the numbers. The sortedRows must not change meanwhile.
func (p rowRange) all() iter.Seq[uint32] {
	return func(yield func(uint32) bool) {
		for s := p.from; s != p.to; {
			n := p.of.runs[s.run][s.at]
			if s.at++; s.at == len(p.of.runs[s.run]) {
				s = place{s.run + 1, 0}
			}

			if !yield(n) {
				return
			}
		}
	}
}

// insert adds a number. It tries the end first: names often ascend, and revisions always do.
func (o *sortedRows) insert(n uint32, before func(uint32) bool) {
	o.n++

	last := len(o.runs) - 1
	if last < 0 || before(o.runs[last][len(o.runs[last])-1]) {
		o.append(n)
		return
	}

	s := o.first(before)
	if r := o.runs[s.run]; len(r) == maxRun {
		// A boundary between different texts that grows is a better place than the middle.
		at := min(max(s.at, maxRun/8), maxRun-maxRun/8)

		// The tail is a copy, because the head grows in the array of both.
		o.runs = slices.Insert(o.runs, s.run+1, slices.Clone(r[at:]))

		o.runs[s.run] = r[:at]
		if s.at > at {
			s = place{s.run + 1, s.at - at}
		}
	}

	o.runs[s.run] = slices.Insert(o.runs[s.run], s.at, n)
}

// append adds a number at the end. It fills the last run completely, since many orders grow
// only there.
func (o *sortedRows) append(n uint32) {
	last := len(o.runs) - 1
	if last < 0 || len(o.runs[last]) == maxRun {
		o.runs = append(o.runs, []uint32{n})
		return
	}

	o.runs[last] = append(o.runs[last], n)
}

// newSortedRows returns a sortedRows of numbers that are sorted already.
func newSortedRows(ns []uint32) sortedRows {
	sorted := sortedRows{n: len(ns)}
	for run := range slices.Chunk(ns, maxRun) {
		sorted.runs = append(sorted.runs, run)
	}

	return sorted
}

// remove removes the number at a place.
func (o *sortedRows) remove(spot place) {
	o.n--

	o.runs[spot.run] = slices.Delete(o.runs[spot.run], spot.at, spot.at+1)
	if len(o.runs[spot.run]) == 0 {
		o.runs = slices.Delete(o.runs, spot.run, spot.run+1)
		return
	}

	o.join(spot.run)
	o.join(spot.run - 1)
}

// join merges a run and the next one if both are short.
func (o *sortedRows) join(i int) {
	if i < 0 || i+1 >= len(o.runs) || len(o.runs[i])+len(o.runs[i+1]) > maxRun/2 {
		return
	}

	o.runs[i] = append(o.runs[i], o.runs[i+1]...)
	o.runs = slices.Delete(o.runs, i+1, i+2)
}
