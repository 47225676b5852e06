package index

import (
	"cmp"
	"slices"
	"strings"

	"github.com/roster-mesh/roster/directory"
)

// Build prepares load, which replaces the content of x by es, entries of different rids. It
// is for a history from a snapshot: it costs much less than Put, and readers don't wait for
// it unless the view is watched. x must not change between Build and load.
func (x *Index) Build(es []*directory.Entry) (load func()) {
	next := x.buildFrom(es)
	return func() { x.load(next, es) }
}

func (x *Index) load(next *Index, es []*directory.Entry) {
	x.mu.Lock()
	defer x.mu.Unlock()

	if x.expiries.isActive() {
		for _, row := range x.entries.rows.All() {
			if row.entry == nil {
				continue
			}

			if stays, _ := next.entries.find(row.entry.RID); stays == nil {
				x.recordChange(row.entry, nil)
			}
		}

		for _, entry := range es {
			var old *directory.Entry
			if s, _ := x.entries.find(entry.RID); s != nil {
				old = s.entry
			}

			x.recordChange(old, entry)
		}
	}

	x.entries = next.entries
	x.names = next.names
	x.alike = next.alike

	x.fields = next.fields

	// The postings refer to the table of the index that they came from.
	for i := range x.fields {
		x.fields[i].entries = &x.entries
	}
}

// A keyed entry and a named one are sorted without a look at the entry.
type (
	keyed struct {
		key sortKey
		e   *directory.Entry
	}
	named struct {
		name string
		row  uint32
	}
)

// buildFrom returns an index of x's order that holds es. Rows are numbered in that order, so
// those of each text need no sorting.
func (x *Index) buildFrom(es []*directory.Entry) *Index {
	next := &Index{byRID: x.byRID}
	next.clear()
	t := &next.entries
	t.byRID.Reserve(len(es))

	inOrder, byName := make([]keyed, len(es)), make([]named, len(es))
	for i, e := range es {
		inOrder[i] = keyed{x.sortKeyOf(e), e}
	}

	slices.SortFunc(inOrder, func(a, b keyed) int { return a.key.compare(b.key) })

	// Names, lookalikes and postings depend on the order alone, so they are built side by side.
	sorted := aside(func() {
		for i, k := range inOrder {
			byName[i] = named{k.e.Agent, uint32(i)} // an empty stock numbers from 0
		}

		slices.SortFunc(byName, func(a, b named) int {
			return cmp.Or(strings.Compare(a.name, b.name), cmp.Compare(a.row, b.row))
		})
	})

	likened := aside(func() { next.alike.build(inOrder) })

	next.fields[fieldCapName].sorted = nil // until all texts are there
	for _, k := range inOrder {
		s, n := t.add(k.key)
		terms := termsOf(&next.terms[0], k.e)

		s.entry, s.mask = k.e, maskOf(terms)
		for _, term := range terms {
			if term.field != fieldAgent {
				next.fields[term.field].insert(term.text, n)
			}
		}
	}

	next.fields[fieldCapName].sort()
	sorted()
	likened()
	next.names = newSortedRows(numbers(byName))

	return next
}

// aside runs f on another goroutine. wait returns when f has, and panics if f did: a panic
// on foreign names is for the caller to contain.
func aside(f func()) (wait func()) {
	done := make(chan any, 1)
	go func() {
		defer func() { done <- recover() }()
		f()
	}()

	return func() {
		if value := <-done; value != nil {
			panic(value)
		}
	}
}

// build adds entries to lookalikes that are empty; rows are numbered in the given order.
func (l *lookalikes) build(inOrder []keyed) {
	l.single = make(map[uint32]uint32, len(inOrder))
	for i := range inOrder {
		l.insert(uint32(i), inOrder[i].e.Agent, func(uint32) bool { return true })
	}
}

// numbers returns the rows of names.
func numbers(in []named) []uint32 {
	ns := make([]uint32, len(in))
	for i, n := range in {
		ns[i] = n.row
	}

	return ns
}
