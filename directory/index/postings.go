package index

import (
	"cmp"
	"hash/maphash"
	"slices"
	"strings"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/table"
)

// A sortKey is an entry's place in the order of its index: by the revision of its first
// registration in the own domain's, by rid in others'.
type sortKey struct {
	created uint64
	rid     directory.RID
}

func (k sortKey) compare(o sortKey) int {
	return cmp.Or(cmp.Compare(k.created, o.created), k.rid.Compare(o.rid))
}

// postings maps the texts of one field to the rows that have them. A change finds its text
// by a hash, and then searches the rows of that text alone.
type postings struct {
	entries *entryTable
	texts   table.Pool[textEntries]
	byText  table.Table
	sorted  *sortedRows // the texts' numbers; nil for fields without prefix lookups
}

// A textEntries has the rows of one text.
type textEntries struct {
	text   string
	single uint32      // the entry's row, where it is one …
	many   *sortedRows // … else all, in the order of their keys
}

// size returns how many entries have the text.
func (t *textEntries) size() int {
	if t.many == nil {
		return 1
	}

	return t.many.n
}

// rows returns all rows, for reading.
func (t *textEntries) rows() *sortedRows {
	if t.many == nil {
		return &sortedRows{[][]uint32{{t.single}}, 1}
	}

	return t.many
}

func (p *postings) hash(s string) uint64 { return maphash.String(p.entries.seed, s) }

func (p *postings) hashOf(n uint32) uint64 { return p.hash(p.texts.At(n).text) }

// text returns a text and its number, or nil if no entry has it.
func (p *postings) text(s string) (*textEntries, uint32) {
	n, ok := p.byText.Find(p.hash(s), func(n uint32) bool { return p.texts.At(n).text == s })
	if !ok {
		return nil, 0
	}

	return p.texts.At(n), n
}

// before returns a predicate: whether a text sorts before s.
func (p *postings) before(s string) func(uint32) bool {
	return func(n uint32) bool { return p.texts.At(n).text < s }
}

// insert adds a row to a text that the row does not have yet.
func (p *postings) insert(s string, row uint32) {
	t, _ := p.text(s)
	switch {
	case t == nil:
		n := p.texts.Take()
		*p.texts.At(n) = textEntries{text: strings.Clone(s), single: row} // not a part of some document
		p.byText.Insert(n, p.hashOf)

		if p.sorted != nil {
			p.sorted.insert(n, p.before(s))
		}

		return
	case t.many == nil:
		t.many = t.rows()
	}

	t.many.insert(row, p.entries.before(p.entries.rows.At(row).key))
}

// remove is the reverse of insert.
func (p *postings) remove(s string, row uint32) {
	t, n := p.text(s)
	if t.many == nil {
		if p.sorted != nil {
			p.sorted.remove(p.sorted.first(p.before(s)))
		}

		p.byText.Remove(n, p.hashOf)
		p.texts.Give(n)

		return
	}

	t.many.remove(t.many.first(p.entries.before(p.entries.rows.At(row).key)))

	if t.many.n == 1 {
		t.single, t.many = t.many.runs[0][0], nil
	}
}

// sort begins to keep the texts sorted. All numbers of texts are in use.
func (p *postings) sort() {
	ns := make([]uint32, p.texts.Len())
	for i := range ns {
		ns[i] = uint32(i)
	}

	slices.SortFunc(ns, func(a, b uint32) int { return strings.Compare(p.texts.At(a).text, p.texts.At(b).text) })
	o := newSortedRows(ns)
	p.sorted = &o
}

// beginning returns the texts with the prefix s, from one of them on.
func (p *postings) beginning(s, from string) rowRange {
	return p.sorted.between(p.before(from), p.before(s+lastByte))
}

// sampled bounds the texts of a prefix whose entries are counted.
const sampled = 256

// sizeOf returns how many entries have texts with the prefix s. For more than sampled texts
// it is a lower bound: the entries of the first, and one for each other text.
func (p *postings) sizeOf(s string) int {
	part := p.beginning(s, s)
	n := 0

	counted := 0
	for i := range part.all() {
		if counted == sampled {
			return n + part.size() - counted
		}

		n += p.texts.At(i).size()
		counted++
	}

	return n
}
