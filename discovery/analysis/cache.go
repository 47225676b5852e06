package analysis

import "hash/maphash"

// A termCache maps words to the hashes of their terms, which is all that indexing a
// registration needs. The key is the word's own hash: a lookup is one read of memory,
// while a map of texts takes four dependent ones, each a cache miss once there are tens
// of thousands of words.
type termCache struct {
	cells []cachedTerm // a word is in the one that its hash says, or forgotten
	used  int
}

type cachedTerm struct {
	word uint64 // its hash, whose lowest bit is Term.Asks instead
	term uint64 // its term's hash; 0 of a function word
}

// Bounds on the number of cells of a termCache.
const (
	minCached = 1 << 12
	maxCached = 1 << 18
)

// NewIndexing returns an analyser of registrations: terms of words that it reads have no
// texts.
func NewIndexing(seed maphash.Seed) *Analyser {
	a := New(seed)
	a.cache = &termCache{cells: make([]cachedTerm, minCached)}

	return a
}

func (m *termCache) cell(h uint64) *cachedTerm { return &m.cells[h>>1&uint64(len(m.cells)-1)] }

// recall is term for an analyser of registrations.
func (a *Analyser) recall(word string) Term {
	cache, h := a.cache, maphash.String(a.Seed, word)

	term := cache.cell(h)
	if term.word|1 == h|1 {
		return Term{Hash: term.term, Asks: term.word&1 == 1}
	}

	t := a.derive(word)
	t.Text = ""

	if term.word == 0 {
		// In a fuller cache, collisions would forget too many words.
		if cache.used++; cache.used > len(cache.cells)/2 && len(cache.cells) < maxCached {
			cache.grow()
			term = cache.cell(h)
		}
	}

	// Another word in the cell is forgotten: a collision costs one derivation.
	*term = cachedTerm{h &^ 1, t.Hash}
	if t.Asks {
		term.word |= 1
	}

	return t
}

func (m *termCache) grow() {
	old := m.cells

	m.cells, m.used = make([]cachedTerm, 2*len(old)), 1
	for _, w := range old {
		if w.word != 0 {
			*m.cell(w.word) = w
			m.used++
		}
	}
}
