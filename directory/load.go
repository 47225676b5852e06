package directory

import (
	"slices"
	"strings"
)

// Load makes x hold es, of different rids, and nothing else: what it held before
// goes. It is for a history read from a snapshot: much less work than Put, and
// readers wait for none of it unless somebody watches. Nobody else may change x
// meanwhile. The order of es is lost.
func (x *Index) Load(es []*Entry) {
	slices.SortFunc(es, func(a, b *Entry) int { return x.keyOf(a).compare(x.keyOf(b)) })
	next := x.built(es)
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

// built returns an index of x's order that holds es, which are in that order: so
// their slots are, and the postings of each text need no sorting.
func (x *Index) built(es []*Entry) *Index {
	next := &Index{byRID: x.byRID}
	next.clear()
	t := &next.stock
	var byText [fieldCount][][]posting // by the number of the text
	byName := make([]posting, len(es))
	for _, e := range es {
		s, n := t.take(x.keyOf(e))
		byName[n] = posting{ownName, n}
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
	slices.SortFunc(byName, func(a, b posting) int {
		if c := strings.Compare(t.text(a), t.text(b)); c != 0 {
			return c
		}
		return int(a.slot) - int(b.slot)
	})
	next.fields[fieldAgent].fill(byName)
	for f := range byText {
		lists := slices.DeleteFunc(byText[f], func(l []posting) bool { return len(l) == 0 })
		slices.SortFunc(lists, func(a, b []posting) int { return strings.Compare(t.text(a[0]), t.text(b[0])) })
		for _, l := range lists {
			next.fields[f].fill(l)
		}
	}
	return next
}
