package analysis

import (
	"hash/maphash"
	"slices"
	"strings"
	"unsafe"
)

// Bounds of the texts that an analyser remembers.
const (
	minPassage = 64      // bytes; a shorter one is read as fast
	metTexts   = 1 << 12 // how many are known to have been met
	maxRetold  = 2 << 20 // bytes of all that are remembered: texts and tokens
)

// passages are whole texts that occurred more than once. The instances of one agent have nearly
// the same text, and an update changes little of it. Finding a text again costs a fiftieth of
// reading it.
type passages struct {
	met    [metTexts]uint64 // the hash of a text that was met, where its hash says
	known  map[string]passage
	weight int // of known, in bytes
}

type passage struct {
	tokens  []Token
	dropped int
}

// ReadCached is read of a text that may have been met before.
func (a *Analyser) ReadCached(text string) []Token {
	if len(text) < minPassage {
		return a.Read(text)
	}

	if a.passages == nil {
		a.passages = &passages{known: map[string]passage{}}
	}

	ps := a.passages
	if p, ok := ps.known[text]; ok {
		a.Dropped += p.dropped
		return p.tokens
	}

	h := maphash.String(a.Seed, text)

	// A text is remembered when it comes a second time, because most texts come once.
	if met := &ps.met[h%metTexts]; *met != h {
		*met = h
		return a.Read(text)
	}

	text = strings.Clone(text) // tokens may be parts of it, and it is a part of a whole registration
	before := a.Dropped
	tokens := a.Read(text)

	weight := len(text) + len(tokens)*int(unsafe.Sizeof(Token{}))

	// This text alone would displace all others.
	if weight > maxRetold {
		return tokens
	}

	if ps.weight += weight; ps.weight > maxRetold {
		clear(ps.known)
		ps.weight = weight
	}

	ps.known[text] = passage{slices.Clone(tokens), a.Dropped - before}

	return tokens
}
