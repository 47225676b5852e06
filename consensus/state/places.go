package state

import (
	"iter"
	"slices"
	"sort"

	"github.com/roster-mesh/roster/directory"
)

// A place is where a change of a registration is in a stream.
type place struct {
	revision uint64
	rid      directory.RID
}

// Places are a stream's, by revision, ascending. They are kept in runs, so
// that stale places are dropped from a few runs at a time and nobody waits until
// 10^6 of them were looked at.
type places struct {
	runs [][]place // none is empty
	next int       // the run that is thinned next
}

// A full run is followed by a new one, and four older ones are thinned then:
// even where all are half full, at most every other place is stale.
const (
	runLength = 512
	thinned   = 4
)

// add appends a place, whose revision is above all others.
func (o *places) add(p place, stale func(place) bool) {
	if last := len(o.runs) - 1; last >= 0 && len(o.runs[last]) < runLength {
		o.runs[last] = append(o.runs[last], p)
		return
	}
	for n := 0; n < thinned && len(o.runs) > 0; n++ {
		o.thin(stale)
	}
	o.runs = append(o.runs, []place{p})
}

// thin drops the stale places of one run, and makes one of it and the one before
// where they are short.
func (o *places) thin(stale func(place) bool) {
	if o.next >= len(o.runs) {
		o.next = 0
	}
	i := o.next
	run := slices.DeleteFunc(o.runs[i], stale)
	if i > 0 && len(o.runs[i-1])+len(run) <= runLength {
		o.runs[i-1] = append(o.runs[i-1], run...)
		run = nil
	}
	if len(run) == 0 {
		o.runs = slices.Delete(o.runs, i, i+1)
		return
	}
	o.runs[i] = run
	o.next++
}

// above yields the places whose revision is above since.
func (o *places) above(since uint64) iter.Seq[place] {
	return func(yield func(place) bool) {
		i := sort.Search(len(o.runs), func(i int) bool { return o.runs[i][len(o.runs[i])-1].revision > since })
		for ; i < len(o.runs); i++ {
			for _, p := range o.runs[i] {
				if p.revision > since && !yield(p) {
					return
				}
			}
		}
	}
}
