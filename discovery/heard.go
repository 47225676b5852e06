package discovery

import "hash/maphash"

// What reads registrations wants of a word no more than its term's hash. heard remembers
// that by the word's own hash, as terms are known by theirs: one read of memory for a
// word, where a map of texts takes four that wait for each other, and where there are
// tens of thousands of words, none of them is near.
type heard struct {
	cells []heardWord // a word is in the one that its hash says, or forgotten
	used  int
}

type heardWord struct {
	word uint64 // its hash, but for the lowest bit: people ask by it
	term uint64 // its term's hash; 0 of a function word
}

// Bounds of heard.cells.
const (
	fewHeard  = 1 << 12
	mostHeard = 1 << 18
)

// newReader returns an analyser of registrations: terms of words that it reads have no
// texts.
func newReader(seed maphash.Seed) *analyser {
	a := newAnalyser(seed)
	a.heard = &heard{cells: make([]heardWord, fewHeard)}
	return a
}

func (m *heard) cell(h uint64) *heardWord { return &m.cells[h>>1&uint64(len(m.cells)-1)] }

// recall is term for an analyser of registrations.
func (a *analyser) recall(word string) term {
	m, h := a.heard, maphash.String(a.seed, word)
	c := m.cell(h)
	if c.word|1 == h|1 {
		return term{hash: c.term, asks: c.word&1 == 1}
	}
	t := a.derive(word)
	t.text = ""
	if c.word == 0 {
		if m.used++; m.used > len(m.cells)/2 && len(m.cells) < mostHeard {
			m.grow()
			c = m.cell(h)
		}
	}
	*c = heardWord{h &^ 1, t.hash}
	if t.asks {
		c.word |= 1
	}
	return t
}

func (m *heard) grow() {
	old := m.cells
	m.cells, m.used = make([]heardWord, 2*len(old)), 1
	for _, w := range old {
		if w.word != 0 {
			*m.cell(w.word) = w
			m.used++
		}
	}
}
