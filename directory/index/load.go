package index

import (
	"cmp"
	"slices"
	"strings"
	"sync"

	"github.com/roster-mesh/roster/directory"
)

// Build makes ready what load puts into x: then it holds es, of different rids, and
// nothing else. It is for a history read from a snapshot: much less work than Put, and
// readers wait for none of it unless somebody watches. Nobody else may change x while
// it loads; it is not looked at before.
func (x *Index) Build(es []*directory.Entry) (load func()) {
	next := x.built(es)
	return func() { x.take(next, es) }
}

func (x *Index) take(next *Index, es []*directory.Entry) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.minder.minds() {
		for _, slot := range x.stock.slots.All() {
			if slot.e == nil {
				continue
			}
			if stays, _ := next.stock.slot(slot.e.RID); stays == nil {
				x.note(slot.e, nil)
			}
		}
		for _, entry := range es {
			var old *directory.Entry
			if s, _ := x.stock.slot(entry.RID); s != nil {
				old = s.e
			}
			x.note(old, entry)
		}
	}
	x.stock, x.names, x.fields = next.stock, next.names, next.fields
	for i := range x.fields {
		x.fields[i].stock = &x.stock
	}
}

// A keyed entry and a named one are sorted without a look at the entry.
type (
	keyed struct {
		key key
		e   *directory.Entry
	}
	named struct {
		name string
		slot uint32
	}
)

// built returns an index of x's order that holds es. Slots are in that order, so those
// of each text need no sorting.
func (x *Index) built(es []*directory.Entry) *Index {
	next := &Index{byRID: x.byRID}
	next.clear()
	t := &next.stock
	t.byRID.Reserve(len(es))
	inOrder, byName := make([]keyed, len(es)), make([]named, len(es))
	for i, e := range es {
		inOrder[i] = keyed{x.keyOf(e), e}
	}
	slices.SortFunc(inOrder, func(a, b keyed) int { return a.key.compare(b.key) })
	var naming sync.WaitGroup
	naming.Go(func() {
		for i, k := range inOrder {
			byName[i] = named{k.e.Agent, uint32(i)} // an empty stock numbers from 0
		}
		slices.SortFunc(byName, func(a, b named) int {
			return cmp.Or(strings.Compare(a.name, b.name), cmp.Compare(a.slot, b.slot))
		})
	})
	next.fields[fieldCapName].sorted = nil // until all texts are there
	for _, k := range inOrder {
		s, n := t.take(k.key)
		terms := termsOf(&next.terms[0], k.e)
		s.e, s.marks = k.e, marksOf(terms)
		for _, term := range terms {
			if term.field != fieldAgent {
				next.fields[term.field].insert(term.text, n)
			}
		}
	}
	next.fields[fieldCapName].sort()
	naming.Wait()
	next.names = ordered(numbers(byName))
	return next
}

// numbers returns the slots of names.
func numbers(in []named) []uint32 {
	ns := make([]uint32, len(in))
	for i, n := range in {
		ns[i] = n.slot
	}
	return ns
}
