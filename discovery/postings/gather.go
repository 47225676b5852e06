package postings

import (
	"container/heap"
	"math/bits"
	"slices"
	"sync"
)

// A Lead is a term of a query while candidates are gathered.
type Lead struct {
	List  *List
	Count int
	IDF   uint32 // in idfUnits
	Max   uint32 // no posting adds more
}

// A Hit is a candidate as it was gathered.
type Hit struct {
	Slot  uint32
	Score uint32
}

// hits is a heap whose root is the worst.
type hits struct {
	all   []Hit
	first func(a, b uint32) bool // which of two slots comes first where scores are the same
}

func (h *hits) Len() int      { return len(h.all) }
func (h *hits) Swap(i, j int) { h.all[i], h.all[j] = h.all[j], h.all[i] }
func (h *hits) Push(v any)    { h.all = append(h.all, v.(Hit)) }
func (h *hits) Pop() any {
	last := h.all[len(h.all)-1]
	h.all = h.all[:len(h.all)-1]

	return last
}
func (h *hits) Less(i, j int) bool { return h.worse(h.all[i], h.all[j]) }

func (h *hits) worse(hit, b Hit) bool {
	if hit.Score != b.Score {
		return hit.Score < b.Score
	}

	return h.first(b.Slot, hit.Slot)
}

// A gatherer finds the best candidates. It goes through the index a stretch of slots at a time,
// so that the sums of one stretch stay in the processor's cache. With many registrations,
// nearly all of a query's cost is adding up postings and scanning the sums, so neither loop has
// an unpredictable branch for each slot. Half of all postings belong to a few common terms with
// little weight. If these are a small part of the best scores (MaxScore), they are not added
// up but sought in the few slots that come near the bar.
type gatherer struct {
	// sums are of the slots from base on. They begin not at 0 but so far below enough that a
	// slot worth looking at reaches it.
	sums   [Window]uint32
	base   uint32
	zero   uint32   // where sums begin
	likely []uint16 // the slots that may still be good enough, in order
	room   [Window]uint16
	leads  []Lead   // the dense last, and of these those that add least
	dense  int      // the first that is
	rest   []uint32 // the most that the leads from one on can add together
	from   []cursor // where in its list each lead is
	ok     Bitset
	hits   hits
	most   int
}

// Window is how many slots are gathered from together.
const Window = 1 << 13

// enough is the sum of a slot that is good enough. No sum reaches it from 0.
const enough = 1 << 31

var gatherers = sync.Pool{New: func() any { return new(gatherer) }}

// Gather returns the best of the slots in ok by the weights of their terms, at most most, the
// best first. before orders two slots of equal score.
func Gather(leads []Lead, ok Bitset, most int, before func(a, b uint32) bool) []Hit {
	g := gatherers.Get().(*gatherer)
	defer gatherers.Put(g)
	slices.SortFunc(leads, func(lead, b Lead) int {
		if lead.isDense() != b.isDense() {
			if b.isDense() {
				return -1
			}

			return 1
		}

		return int(b.Max) - int(lead.Max)
	})
	g.leads, g.ok, g.most, g.dense = leads, ok, most, len(leads)

	g.rest = append(g.rest[:0], make([]uint32, len(leads)+1)...)
	for i := len(leads) - 1; i >= 0; i-- {
		g.rest[i] = g.rest[i+1] + leads[i].Max
		if leads[i].isDense() {
			g.dense = i
		}
	}

	g.from = g.from[:0]
	for i := range leads {
		g.from = append(g.from, leads[i].List.cursor())
	}

	g.hits = hits{first: before}
	for g.base = 0; g.base < uint32(64*len(ok)); g.base += Window {
		g.window()
	}

	slices.SortFunc(g.hits.all, func(a, b Hit) int {
		if g.hits.worse(b, a) {
			return -1
		}

		return 1
	})
	found := g.hits.all

	// A pooled gatherer must not keep the index's lists in memory.
	clear(g.from)
	g.hits = hits{}
	g.leads = nil
	g.ok = nil

	return found
}

// bar returns the score that a candidate must have at least to be kept.
func (g *gatherer) bar() uint32 {
	if len(g.hits.all) < g.most {
		return 1
	}

	return g.hits.all[0].Score
}

// window gathers from the slots from base on.
func (g *gatherer) window() {
	ok := g.ok[g.base/64 : min(int(g.base+Window)/64, len(g.ok))]
	if slices.Max(ok) == 0 {
		return
	}

	bar := g.bar()
	all := g.cut(bar)
	g.zero = enough - (bar - g.rest[all])
	g.begin()

	for i := range all {
		g.weigh(i)
	}

	g.look(ok)

	// Each sought term counts with its most at first, which leaves few slots for the search of its weight.
	for i := all; i < len(g.leads); i++ {
		g.suppose(i, bar-g.rest[i+1])
	}

	for i := all; i < len(g.leads); i++ {
		g.correct(i, bar)
	}

	for _, low := range g.likely {
		// The bar rises with each candidate that is kept.
		if s := g.sums[low] - g.zero; s >= g.bar() {
			g.offer(Hit{g.base + uint32(low), s})
		}
	}
}

// begin begins all sums.
func (g *gatherer) begin() {
	g.sums[0] = g.zero
	for n := 1; n < len(g.sums); n *= 2 {
		copy(g.sums[n:], g.sums[:n])
	}
}

// cut returns the number of leads that are added to all sums. The possible sum of the others
// must be a small part of the bar, because otherwise too many sums are near it.
func (g *gatherer) cut(bar uint32) int {
	i := g.dense
	for i < len(g.leads) && 2*g.rest[i] >= bar {
		i++
	}

	return i
}

// fewWanted is the number of wanted slots of 64 from which on it pays to look at all their sums.
const fewWanted = 8

// look makes a list of the slots in ok whose sums are high enough. It finds out eight by
// eight where there may be some, then takes them from there.
func (g *gatherer) look(ok Bitset) {
	n := 0
	for at := 0; at < len(ok); at += 8 {
		near := ok[at:min(at+8, len(ok))]
		for eights := g.eights(near, at); eights != 0; eights &= eights - 1 {
			i := bits.TrailingZeros64(eights)

			low, wanted := 64*at+8*i, near[i/8]>>(8*(i%8))
			for k, sum := range (*[8]uint32)(g.sums[low:]) {
				// Each number is written and only the wanted ones are kept: a branch would often be mispredicted.
				g.room[n] = uint16(low + k)
				n += int(uint64(sum/enough) & (wanted >> k))
			}
		}
	}

	g.likely = g.room[:n]
}

// eights returns of which eights of slots some may be wanted whose sums are high enough,
// of those in up to eight words of a set.
func (g *gatherer) eights(ok Bitset, at int) (all uint64) {
	for i, wanted := range ok {
		if bits.OnesCount64(wanted) < fewWanted {
			for ; wanted != 0; wanted &= wanted - 1 {
				all |= 1 << (8*i + bits.TrailingZeros64(wanted)/8)
			}

			continue
		}

		sums := (*[64]uint32)(g.sums[64*(at+i):])
		for j := range 8 {
			s := (*[8]uint32)(sums[8*j:])
			all |= uint64((s[0]|s[1]|s[2]|s[3]|s[4]|s[5]|s[6]|s[7])/enough) << (8*i + j)
		}
	}

	return all
}

func (g *gatherer) offer(hit Hit) {
	switch {
	case len(g.hits.all) < g.most:
		heap.Push(&g.hits, hit)
	case g.hits.worse(g.hits.all[0], hit):
		g.hits.all[0] = hit
		heap.Fix(&g.hits, 0)
	}
}

// weigh adds the weights of a term in all slots.
func (g *gatherer) weigh(i int) {
	c, idf := &g.from[i], g.leads[i].IDF
	for c.skip(g.base); len(c.blocks) > 0 && c.weigh(&g.sums, g.base, idf); {
		c.next()
	}
}

// weigh adds the weights in the first block, times idf, to the sums of the slots from base on.
// It returns false if postings behind these are left. It decodes cells inline because most of a
// query's cost is here.
func (c *cursor) weigh(sums *[Window]uint32, base, idf uint32) bool {
	// For a place before the window the difference wraps around and is beyond Window.
	slot := c.slot - base
	for i, cell := range c.blocks[0].cells[c.at:] {
		step, weight := uint32(cell)>>weightBits, uint32(cell)&MaxWeight

		slot += step
		if weight == 0 {
			slot += step * (stride - 1)
			continue
		}

		if slot < Window {
			sums[slot] += idf * weight
			continue
		}

		if int32(slot) >= 0 { // it lies behind, not before
			c.at, c.slot = c.at+i, base+slot-step
			return false
		}
	}

	return true
}

// suppose adds the most that a dense term can weigh to the sums of the likely slots that
// have it, and leaves those that come up to a bar.
func (g *gatherer) suppose(i int, bar uint32) {
	has, most := *g.leads[i].List.Dense, g.leads[i].Max
	bar += g.zero

	n := 0
	for _, low := range g.likely {
		s := g.sums[low] + most*has.bit(g.base+uint32(low))
		g.sums[low] = s

		g.room[n] = low
		if s >= bar {
			n++
		}
	}

	g.likely = g.room[:n]
}

// correct replaces the assumed weight of a dense term by its actual weight.
func (g *gatherer) correct(i int, bar uint32) {
	lead, cursor := &g.leads[i], &g.from[i]
	bar += g.zero

	n := 0
	for _, low := range g.likely {
		if slot := g.base + uint32(low); lead.List.Dense.Has(slot) {
			g.sums[low] -= lead.Max - lead.IDF*cursor.seek(slot)
		}

		g.room[n] = low
		if g.sums[low] >= bar {
			n++
		}
	}

	g.likely = g.room[:n]
}

func (l *Lead) isDense() bool { return l.List.Dense != nil }

// CountIn counts the postings whose slots are in a set of live slots.
func (l *List) CountIn(set Bitset) int {
	if l.Dense != nil {
		return l.Dense.both(set)
	}

	n := uint64(0)
	for i := range l.blocks {
		slot := l.blocks[i].first
		for _, c := range l.blocks[i].cells {
			slot += c.gap()
			if c.weight() > 0 && int(slot>>6) < len(set) {
				n += set[slot>>6] >> (slot & 63) & 1
			}
		}
	}

	return int(n)
}

// AddTo puts the slots of a list into a set, those that it has room for. Slots come in
// order, so each word is written once.
func (l *List) AddTo(set Bitset) {
	at, word := 0, uint64(0)
	for i := range l.blocks {
		slot := l.blocks[i].first
		for _, c := range l.blocks[i].cells {
			slot += c.gap()
			if c.weight() == 0 {
				continue
			}

			if n := int(slot >> 6); n != at {
				if n >= len(set) {
					break
				}

				set[at] |= word
				at, word = n, 0
			}

			word |= 1 << (slot & 63)
		}
	}

	if at < len(set) {
		set[at] |= word
	}
}
