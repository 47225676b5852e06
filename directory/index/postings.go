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
// by a hash, and then searches the rows of that text alone. A text that a single entry has costs
// twelve bytes and its place in byText: many texts are one registration's alone.
type postings struct {
	entries *entryTable
	texts   table.Pool[textEntries]
	lists   table.Pool[sortedRows] // the rows of texts with several, in the order of their keys
	byText  table.Table

	// Of a field with prefix lookups, whose texts are kept:
	words  *table.Paged[string] // by their numbers; nil for other fields
	sorted *sortedRows          // the texts' numbers, in their order; nil while an index is filled
}

// A textEntries has the rows of one text. The text is identified by 64 bits of a hash with a secret
// seed: of a million texts, two have the same hash in one of thirty million nodes, and have their
// rows together there.
type textEntries struct {
	low, high uint32 // the hash
	// at is the row of a text that has one, or with inList the number of its list.
	at uint32
}

const inList = 1 << 31

func (t *textEntries) hash() uint64 { return uint64(t.high)<<32 | uint64(t.low) }

// row returns the row of a text that has one.
func (t *textEntries) row() (uint32, bool) { return t.at, t.at&inList == 0 }

// list returns the rows of a text that has several.
func (p *postings) list(t *textEntries) *sortedRows { return p.lists.At(t.at &^ inList) }

// size returns how many entries have the text.
func (p *postings) size(t *textEntries) int {
	if _, single := t.row(); single {
		return 1
	}

	return p.list(t).n
}

// rows returns all rows, for reading.
func (p *postings) rows(t *textEntries) *sortedRows {
	if row, single := t.row(); single {
		return &sortedRows{[][]uint32{{row}}, 1}
	}

	return p.list(t)
}

func (p *postings) hash(s string) uint64 { return maphash.String(p.entries.seed, s) }

func (p *postings) hashOf(n uint32) uint64 { return p.texts.At(n).hash() }

// text returns a text and its number, or nil if no entry has it.
func (p *postings) text(s string) (*textEntries, uint32) {
	h := p.hash(s)

	n, ok := p.byText.Find(h, func(n uint32) bool { return p.texts.At(n).hash() == h })
	if !ok {
		return nil, 0
	}

	return p.texts.At(n), n
}

// before returns a predicate: whether a text sorts before s.
func (p *postings) before(s string) func(uint32) bool {
	return func(n uint32) bool { return *p.words.At(n) < s }
}

// insert adds a row to a text that the row does not have yet.
func (p *postings) insert(s string, row uint32) {
	t, _ := p.text(s)
	if t == nil {
		p.add(s, row)
		return
	}

	before := p.entries.before(p.entries.rows.At(row).key)

	if only, single := t.row(); single {
		n := p.lists.Take()
		*p.lists.At(n) = sortedRows{[][]uint32{{only}}, 1}
		t.at = inList | n
	}

	p.list(t).insert(row, before)
}

// add adds a text that no other row has.
func (p *postings) add(s string, row uint32) {
	h, n := p.hash(s), p.texts.Take()
	*p.texts.At(n) = textEntries{low: uint32(h), high: uint32(h >> 32), at: row}
	p.byText.Insert(n, p.hashOf)

	if p.words == nil {
		return
	}

	// A number that was given back has its place in words already.
	if n == p.words.Len() {
		p.words.Add()
	}

	*p.words.At(n) = strings.Clone(s) // not a part of some document

	if p.sorted != nil {
		p.sorted.insert(n, p.before(s))
	}
}

// remove is the reverse of insert.
func (p *postings) remove(s string, row uint32) {
	t, n := p.text(s)
	if _, single := t.row(); single {
		// The place in the order is found by the text, so the text is cleared after it.
		if p.sorted != nil {
			p.sorted.remove(p.sorted.first(p.before(s)))
		}

		p.byText.Remove(n, p.hashOf)
		p.texts.Give(n)

		if p.words != nil {
			*p.words.At(n) = ""
		}

		return
	}

	list := p.list(t)
	list.remove(list.first(p.entries.before(p.entries.rows.At(row).key)))

	// Most texts have one row, and such a text has no list.
	if list.n == 1 {
		only := list.runs[0][0]
		p.lists.Give(t.at &^ inList)
		t.at = only
	}
}

// sort begins to keep the texts sorted. All numbers of texts are in use.
func (p *postings) sort() {
	ns := make([]uint32, p.texts.Len())
	for i := range ns {
		ns[i] = uint32(i)
	}

	slices.SortFunc(ns, func(a, b uint32) int { return strings.Compare(*p.words.At(a), *p.words.At(b)) })
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

		n += p.size(p.texts.At(i))
		counted++
	}

	return n
}
