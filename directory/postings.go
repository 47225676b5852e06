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

// A slot holds the newest entry of a rid. Postings point to slots, so that a
// refresh, which changes no posting, swaps one pointer.
type slot struct {
	key key
	e   *Entry
}

// A posting says that the entry in a slot has a text.
type posting struct {
	text string
	slot *slot
}

// chunk bounds the runs in which postings are kept: what an insertion moves.
const chunk = 512

// postings is a set of postings ordered by text, then by key: the entries of
// one text are a range, and so are those of all texts with one beginning.
type postings struct {
	chunks [][]posting // none is empty
}

// A spot is where a posting is, or would be.
type spot struct{ chunk, at int }

// seek returns the first spot that is not before (text, k).
func (p *postings) seek(text string, k key) spot {
	before := func(o posting) bool {
		c := strings.Compare(o.text, text)
		return c < 0 || c == 0 && o.slot.key.compare(k) < 0
	}
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

// insert adds o, which isn't in p yet.
func (p *postings) insert(o posting) {
	s := p.seek(o.text, o.slot.key)
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
		right := append(make([]posting, 0, chunk), c[chunk/2:]...)
		clear(c[chunk/2:])
		p.chunks[s.chunk] = c[:chunk/2]
		p.chunks = slices.Insert(p.chunks, s.chunk+1, right)
		if s.at > chunk/2 {
			s = spot{s.chunk + 1, s.at - chunk/2}
		}
	}
	p.chunks[s.chunk] = slices.Insert(p.chunks[s.chunk], s.at, o)
}

// remove takes the posting of that text and key out, if it is there.
func (p *postings) remove(text string, k key) {
	s := p.seek(text, k)
	if o, _, ok := p.next(s); !ok || o.text != text || o.slot.key != k {
		return
	}
	p.chunks[s.chunk] = slices.Delete(p.chunks[s.chunk], s.at, s.at+1)
	if len(p.chunks[s.chunk]) == 0 {
		p.chunks = slices.Delete(p.chunks, s.chunk, s.chunk+1)
		return
	}
	p.join(s.chunk)
	p.join(s.chunk - 1)
}

// refer makes the posting of that text and key, if it is there, hold these bytes
// of the text: those that it had belong to a document that is gone.
func (p *postings) refer(text string, k key) {
	s := p.seek(text, k)
	if o, _, ok := p.next(s); ok && o.text == text && o.slot.key == k {
		p.chunks[s.chunk][s.at].text = text
	}
}

// join makes one run of a run and the next one where both are short.
func (p *postings) join(i int) {
	if i < 0 || i+1 >= len(p.chunks) || len(p.chunks[i])+len(p.chunks[i+1]) > chunk/2 {
		return
	}
	p.chunks[i] = append(p.chunks[i], p.chunks[i+1]...)
	p.chunks = slices.Delete(p.chunks, i+1, i+2)
}
