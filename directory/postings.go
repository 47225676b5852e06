package directory

import (
	"cmp"
	"slices"
	"sort"
	"strings"
)

// A key is an entry's place in the order of its index: by the revision of its
// first registration in the own domain's, by rid in others'.
type key struct {
	created uint64
	rid     RID
}

func (k key) compare(o key) int {
	return cmp.Or(cmp.Compare(k.created, o.created), k.rid.Compare(o.rid))
}

// A posting says that the entry in a slot has a text, both by their numbers.
type posting struct{ text, slot uint32 }

// chunk bounds the runs in which postings are kept: what an insertion moves.
const chunk = 512

// postings is a set of postings ordered by text, then by key: the entries of
// one text are a range, and so are those of all texts with one beginning.
type postings struct {
	stock  *stock
	chunks [][]posting // none is empty
}

// text returns the text of a posting.
func (p *postings) text(o posting) string { return p.stock.text(o) }

// keyOf returns the key of a posting.
func (p *postings) keyOf(o posting) key { return p.stock.slots.At(o.slot).key }

// A spot is where a posting is, or would be.
type spot struct{ chunk, at int }

// seek returns the first spot that is not before (text, k).
func (p *postings) seek(text string, k key) spot {
	before := func(o posting) bool {
		c := strings.Compare(p.text(o), text)
		return c < 0 || c == 0 && p.keyOf(o).compare(k) < 0
	}
	return p.first(before)
}

// first returns the first spot of a posting that isn't before.
func (p *postings) first(before func(posting) bool) spot {
	c := sort.Search(len(p.chunks), func(i int) bool { return !before(p.chunks[i][len(p.chunks[i])-1]) })
	if c == len(p.chunks) {
		return spot{c, 0}
	}
	return spot{c, sort.Search(len(p.chunks[c]), func(i int) bool { return !before(p.chunks[c][i]) })}
}

// next returns the posting at s and the spot behind it; false at the end.
func (p *postings) next(s spot) (posting, spot, bool) {
	if s.chunk >= len(p.chunks) {
		return posting{}, s, false
	}
	o := p.chunks[s.chunk][s.at]
	if s.at++; s.at == len(p.chunks[s.chunk]) {
		s = spot{s.chunk + 1, 0}
	}
	return o, s, true
}

// between counts the postings from one spot to another, which isn't before it.
func (p *postings) between(from, to spot) int {
	n := to.at - from.at
	for _, c := range p.chunks[from.chunk:to.chunk] {
		n += len(c)
	}
	return n
}

// place is where o belongs. What is of the same text is known by its number, and the
// end is looked at first: names often ascend, and revisions always do.
func (p *postings) place(o posting) spot {
	text, k := p.text(o), p.keyOf(o)
	before := func(x posting) bool {
		c := 0
		if x.text != o.text || x.text == ownName {
			c = strings.Compare(p.text(x), text)
		}
		return c < 0 || c == 0 && p.keyOf(x).compare(k) < 0
	}
	if last := len(p.chunks) - 1; last < 0 || before(p.chunks[last][len(p.chunks[last])-1]) {
		return spot{last + 1, 0}
	}
	return p.first(before)
}

// insert adds o, which isn't in p yet.
func (p *postings) insert(o posting) {
	s := p.place(o)
	if s.chunk == len(p.chunks) {
		// Behind everything: fill the last run whole, since many sets only grow at their end.
		if s.chunk == 0 || len(p.chunks[s.chunk-1]) >= chunk {
			p.chunks = append(p.chunks, []posting{o})
			return
		}
		p.chunks[s.chunk-1] = append(p.chunks[s.chunk-1], o)
		return
	}
	if c := p.chunks[s.chunk]; len(c) == chunk {
		// Where a text's postings end and grow is a better place than the middle.
		at := min(max(s.at, chunk/8), chunk-chunk/8)
		p.chunks = slices.Insert(p.chunks, s.chunk+1, slices.Clone(c[at:]))
		p.chunks[s.chunk] = c[:at]
		if s.at > at {
			s = spot{s.chunk + 1, s.at - at}
		}
	}
	p.chunks[s.chunk] = slices.Insert(p.chunks[s.chunk], s.at, o)
}

// fill adds postings that are in order and behind all others.
func (p *postings) fill(os []posting) {
	for len(os) > 0 {
		last := len(p.chunks) - 1
		if last < 0 || len(p.chunks[last]) == chunk {
			p.chunks, last = append(p.chunks, make([]posting, 0, min(chunk, len(os)))), last+1
		}
		n := min(chunk-len(p.chunks[last]), len(os))
		p.chunks[last] = append(p.chunks[last], os[:n]...)
		os = os[n:]
	}
}

// remove takes the posting of that text and key out, if it is there.
func (p *postings) remove(text string, k key) {
	s := p.seek(text, k)
	o, _, ok := p.next(s)
	if !ok || p.text(o) != text || p.keyOf(o) != k {
		return
	}
	p.stock.drop(o)
	p.chunks[s.chunk] = slices.Delete(p.chunks[s.chunk], s.at, s.at+1)
	if len(p.chunks[s.chunk]) == 0 {
		p.chunks = slices.Delete(p.chunks, s.chunk, s.chunk+1)
		return
	}
	p.join(s.chunk)
	p.join(s.chunk - 1)
}

// join makes one run of a run and the next one where both are short.
func (p *postings) join(i int) {
	if i < 0 || i+1 >= len(p.chunks) || len(p.chunks[i])+len(p.chunks[i+1]) > chunk/2 {
		return
	}
	p.chunks[i] = append(p.chunks[i], p.chunks[i+1]...)
	p.chunks = slices.Delete(p.chunks, i+1, i+2)
}
