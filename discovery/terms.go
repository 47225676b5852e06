package discovery

import (
	"hash/maphash"
)

// A termInfo is what the index knows of one term.
type termInfo struct {
	text  uint32 // where its text begins in the arena
	count uint32 // of its postings
	at    uint32 // the posting itself where it is the only one, else the number of its list
	most  byte   // no posting of it weighs more
}

// terms has the postings of all terms. The texts lie in an arena, so that a
// million of them are nothing to the garbage collector.
type terms struct {
	seed  maphash.Seed
	table table
	infos pool[termInfo]
	lists pool[list]
	arena arena
}

func newTerms() terms { return terms{seed: maphash.MakeSeed()} }

func (t *terms) hash(n uint32) uint64 { return maphash.Bytes(t.seed, t.arena.text(t.infos.at(n).text)) }

// find returns the number of a term that has postings.
func (t *terms) find(text string) (uint32, bool) {
	return t.table.find(maphash.String(t.seed, text), func(n uint32) bool {
		return string(t.arena.text(t.infos.at(n).text)) == text
	})
}

// set says that a term weighs so much in a slot.
func (t *terms) set(text string, p posting) {
	n, ok := t.find(text)
	if !ok {
		n = t.infos.take()
		*t.infos.at(n) = termInfo{text: t.arena.add(text), count: 1, at: uint32(p), most: p.weight()}
		t.table.insert(n, t.hash)
		return
	}
	i := t.infos.at(n)
	i.most = max(i.most, p.weight())
	if i.count == 1 {
		if only := posting(i.at); only.slot() == p.slot() {
			i.at = uint32(p)
			return
		}
		at := t.lists.take()
		t.lists.at(at).set(posting(i.at))
		i.at = at
	}
	if t.lists.at(i.at).set(p) {
		i.count++
	}
}

// remove says that a term is not in a slot any more.
func (t *terms) remove(text string, slot uint32) {
	n, ok := t.find(text)
	if !ok {
		return
	}
	i := t.infos.at(n)
	if i.count == 1 {
		if posting(i.at).slot() == slot {
			t.table.remove(n, t.hash)
			t.arena.drop(i.text)
			t.infos.give(n)
			t.tidy()
		}
		return
	}
	l := t.lists.at(i.at)
	if !l.remove(slot, int(i.count)-1) {
		return
	}
	if i.count--; i.count == 1 {
		only := l.flat[0]
		t.lists.give(i.at)
		i.at, i.most = uint32(only), only.weight()
	}
}

// tidy makes the arena anew once more of it is waste than not.
func (t *terms) tidy() {
	if t.arena.waste < arenaPage || t.arena.waste*2 < t.arena.size {
		return
	}
	var fresh arena
	for _, c := range t.table.cells {
		if c != 0 {
			i := t.infos.at(c - 1)
			i.text = fresh.add(string(t.arena.text(i.text)))
		}
	}
	t.arena = fresh
}

// get returns the postings of a term: a list, or the only one.
func (t *terms) get(text string) (info termInfo, l *list, ok bool) {
	n, ok := t.find(text)
	if !ok {
		return termInfo{}, nil, false
	}
	info = *t.infos.at(n)
	if info.count == 1 {
		return info, &list{flat: []posting{posting(info.at)}}, true
	}
	return info, t.lists.at(info.at), true
}

// arenaPage is the size of one piece of an arena, in bytes.
const arenaPage = 1 << 16

// An arena holds short texts, each behind its length.
type arena struct {
	pages       [][]byte
	size, waste int
}

// maxTerm bounds a term's text in bytes.
const maxTerm = 255

// add returns where a text of at most maxTerm bytes is now.
func (a *arena) add(text string) uint32 {
	n := len(a.pages) - 1
	if n < 0 || len(a.pages[n])+1+len(text) > arenaPage {
		a.pages = append(a.pages, make([]byte, 0, arenaPage))
		n++
	}
	at := uint32(n*arenaPage + len(a.pages[n]))
	a.pages[n] = append(append(a.pages[n], byte(len(text))), text...)
	a.size += 1 + len(text)
	return at
}

func (a *arena) text(at uint32) []byte {
	p := a.pages[at/arenaPage]
	i := int(at % arenaPage)
	return p[i+1 : i+1+int(p[i])]
}

func (a *arena) drop(at uint32) { a.waste += 1 + len(a.text(at)) }
