package directory

import (
	"cmp"
	"slices"
	"strings"
	"sync"
)

// Build makes ready what load puts into x: then it holds es, of different rids, and
// nothing else. It is for a history read from a snapshot: much less work than Put, and
// readers wait for none of it unless somebody watches. Nobody else may change x while
// it loads; it is not looked at before.
func (x *Index) Build(es []*Entry) (load func()) {
	next := x.built(es)
	return func() { x.take(next, es) }
}

func (x *Index) take(next *Index, es []*Entry) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.minder.minds() {
		for _, s := range x.stock.slots.All() {
			if s.e == nil {
				continue
			}
			if stays, _ := next.stock.slot(s.e.RID); stays == nil {
				x.note(s.e, nil)
			}
		}
		for _, e := range es {
			var old *Entry
			if s, _ := x.stock.slot(e.RID); s != nil {
				old = s.e
			}
			x.note(old, e)
		}
	}
	x.stock = next.stock
	for i := range x.fields {
		x.fields[i].chunks = next.fields[i].chunks
	}
}

// A keyed entry and a named one are sorted without a look at the entry.
type (
	keyed struct {
		key key
		e   *Entry
	}
	named struct {
		name string
		slot uint32
	}
)

// built returns an index of x's order that holds es. Slots are in that order, so the
// postings of each text need no sorting.
func (x *Index) built(es []*Entry) *Index {
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
	var byText [fieldCount][][]posting // by the number of the text
	for _, k := range inOrder {
		e := k.e
		s, n := t.take(k.key)
		terms := termsOf(e)
		s.e, s.marks = e, marksOf(terms)
		for _, term := range terms {
			if term.field == fieldAgent {
				continue
			}
			o, f := posting{t.use(term.text), n}, &byText[term.field]
			if more := int(o.text) + 1 - len(*f); more > 0 {
				*f = append(*f, make([][]posting, more)...)
			}
			(*f)[o.text] = append((*f)[o.text], o)
		}
	}
	naming.Wait()
	next.fields[fieldAgent].fill(names(byName))
	for f := range byText {
		lists := slices.DeleteFunc(byText[f], func(l []posting) bool { return len(l) == 0 })
		slices.SortFunc(lists, func(a, b []posting) int { return strings.Compare(t.text(a[0]), t.text(b[0])) })
		for _, l := range lists {
			next.fields[f].fill(l)
		}
	}
	return next
}

// names returns the postings of names that are in order.
func names(in []named) []posting {
	os := make([]posting, len(in))
	for i, n := range in {
		os[i] = posting{ownName, n.slot}
	}
	return os
}
