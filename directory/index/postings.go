package index

import (
	"cmp"
	"hash/maphash"
	"slices"
	"strings"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/table"
)

// A key is an entry's place in the order of its index: by the revision of its
// first registration in the own domain's, by rid in others'.
type key struct {
	created uint64
	rid     directory.RID
}

func (k key) compare(o key) int {
	return cmp.Or(cmp.Compare(k.created, o.created), k.rid.Compare(o.rid))
}

// postings tells which entries, by the numbers of their slots, have which texts of
// one field: a change looks for its text by a hash, and then among the entries of
// that text alone.
type postings struct {
	stock  *stock
	texts  table.Pool[text]
	byText table.Table
	sorted *order // the texts' numbers; nil where nobody asks for beginnings of texts
}

// A text is what entries have in a field.
type text struct {
	s    string
	only uint32 // the entry's slot, where it is one …
	many *order // … else all, in the order of their keys
}

// size returns how many entries have the text.
func (t *text) size() int {
	if t.many == nil {
		return 1
	}
	return t.many.n
}

// slots returns all entries, to be read.
func (t *text) slots() *order {
	if t.many == nil {
		return &order{[][]uint32{{t.only}}, 1}
	}
	return t.many
}

func (p *postings) hash(s string) uint64 { return maphash.String(p.stock.seed, s) }

func (p *postings) hashOf(n uint32) uint64 { return p.hash(p.texts.At(n).s) }

// text returns a text that some entry has, and its number; nil where none has it.
func (p *postings) text(s string) (*text, uint32) {
	n, ok := p.byText.Find(p.hash(s), func(n uint32) bool { return p.texts.At(n).s == s })
	if !ok {
		return nil, 0
	}
	return p.texts.At(n), n
}

// before reports whether a text's place is before s.
func (p *postings) before(s string) func(uint32) bool {
	return func(n uint32) bool { return p.texts.At(n).s < s }
}

// insert says that a slot has a text, which it hasn't yet.
func (p *postings) insert(s string, slot uint32) {
	t, _ := p.text(s)
	switch {
	case t == nil:
		n := p.texts.Take()
		*p.texts.At(n) = text{s: strings.Clone(s), only: slot} // not a part of some document
		p.byText.Insert(n, p.hashOf)
		if p.sorted != nil {
			p.sorted.insert(n, p.before(s))
		}
		return
	case t.many == nil:
		t.many = t.slots()
	}
	t.many.insert(slot, p.stock.before(p.stock.slots.At(slot).key))
}

// remove takes back what insert said.
func (p *postings) remove(s string, slot uint32) {
	t, n := p.text(s)
	if t.many == nil {
		if p.sorted != nil {
			p.sorted.remove(p.sorted.first(p.before(s)))
		}
		p.byText.Remove(n, p.hashOf)
		p.texts.Give(n)
		return
	}
	t.many.remove(t.many.first(p.stock.before(p.stock.slots.At(slot).key)))
	if t.many.n == 1 {
		t.only, t.many = t.many.runs[0][0], nil
	}
}

// sort begins to have the texts in order. All numbers of texts are in use.
func (p *postings) sort() {
	ns := make([]uint32, p.texts.Len())
	for i := range ns {
		ns[i] = uint32(i)
	}
	slices.SortFunc(ns, func(a, b uint32) int { return strings.Compare(p.texts.At(a).s, p.texts.At(b).s) })
	o := ordered(ns)
	p.sorted = &o
}

// beginning returns the texts that begin with s, from one of them on.
func (p *postings) beginning(s, from string) stretch {
	return p.sorted.stretch(p.before(from), p.before(s+lastByte))
}

// sampled is of how many texts the entries are counted.
const sampled = 256

// sizeOf returns how many entries have texts that begin with s; or where those texts are
// many, how many have the first of them, and one for each other: no fewer have.
func (p *postings) sizeOf(s string) int {
	part, n, counted := p.beginning(s, s), 0, 0
	for i := range part.all() {
		if counted == sampled {
			return n + part.size() - counted
		}
		n += p.texts.At(i).size()
		counted++
	}
	return n
}
