package discovery

import (
	"container/heap"
	"math"
	"math/bits"
	"slices"
	"sync"
)

// maxQueryTerms bounds the different terms of a query that are searched: those
// that tell most.
const maxQueryTerms = 64

// idfUnits is how fine an inverse document frequency is while candidates are
// gathered. All sums are of whole numbers, so that registrations that say the
// same score the same, in whatever order terms are read.
const idfUnits = 256

// A lead is a term of a query while candidates are gathered.
type lead struct {
	list  *list
	count int
	idf   uint32 // in idfUnits
	most  uint32 // no posting adds more
}

// A hit is a candidate as it was gathered.
type hit struct {
	slot  uint32
	score uint32
}

// hits is a heap whose root is the worst.
type hits struct {
	all   []hit
	first func(a, b uint32) bool // which of two slots comes first where scores are the same
}

func (h *hits) Len() int      { return len(h.all) }
func (h *hits) Swap(i, j int) { h.all[i], h.all[j] = h.all[j], h.all[i] }
func (h *hits) Push(v any)    { h.all = append(h.all, v.(hit)) }
func (h *hits) Pop() any {
	last := h.all[len(h.all)-1]
	h.all = h.all[:len(h.all)-1]
	return last
}
func (h *hits) Less(i, j int) bool { return h.worse(h.all[i], h.all[j]) }

func (h *hits) worse(a, b hit) bool {
	if a.score != b.score {
		return a.score < b.score
	}
	return h.first(b.slot, a.slot)
}

// A gatherer finds the best candidates. It goes through the index a stretch of
// slots at a time, so that the sums of one stretch stay in the processor's cache.
// What a query costs where registrations are many is hardly more than this: to add up
// postings, and to look through the sums. So neither asks anything of each whose answer
// a processor cannot guess, and postings are left out only where they are very many and
// can add very little (MaxScore): to find out for which slots others matter costs more
// than to add them to all.
type gatherer struct {
	// sums are of the slots from base on. They begin not at 0 but so far below
	// enough that what is to be looked at reaches it.
	sums   [stretch]uint32
	base   uint32
	zero   uint32   // where sums begin
	likely []uint16 // the slots that may still be good enough, in order
	room   [stretch]uint16
	leads  []lead
	rest   []uint32 // what the leads from one on can add together
	behind []int    // how many postings they have
	from   []cursor // where in its list each lead is
	ok     bitset
	hits   hits
	most   int
}

// stretch is how many slots are gathered from together.
const stretch = 1 << 13

// enough is what sums reach that are good enough: no sum is so high from 0.
const enough = 1 << 31

var gatherers = sync.Pool{New: func() any { return new(gatherer) }}

// gather returns the best of the slots in ok by what terms weigh in them, at most
// most, the best first.
func (x *index) gather(leads []lead, ok bitset, most int) []hit {
	g := gatherers.Get().(*gatherer)
	defer gatherers.Put(g)
	slices.SortFunc(leads, func(a, b lead) int { return int(b.most) - int(a.most) })
	g.leads, g.ok, g.most = leads, ok, most
	g.rest = append(g.rest[:0], make([]uint32, len(leads)+1)...)
	g.behind = append(g.behind[:0], make([]int, len(leads)+1)...)
	for i := len(leads) - 1; i >= 0; i-- {
		g.rest[i], g.behind[i] = g.rest[i+1]+leads[i].most, g.behind[i+1]+int(leads[i].list.count)
	}
	g.from = g.from[:0]
	for i := range leads {
		g.from = append(g.from, leads[i].list.cursor())
	}
	g.hits = hits{first: x.before}
	for g.base = 0; g.base < uint32(64*len(ok)); g.base += stretch {
		g.stretch()
	}
	slices.SortFunc(g.hits.all, func(a, b hit) int {
		if g.hits.worse(b, a) {
			return -1
		}
		return 1
	})
	found := g.hits.all
	clear(g.from)
	g.hits, g.leads, g.ok = hits{}, nil, nil
	return found
}

// before reports whether slot a comes before slot b where scores are the same: by
// origin, then by rid.
func (x *index) before(a, b uint32) bool {
	s, t := x.slots.At(a), x.slots.At(b)
	if s.origin != t.origin {
		return x.origins[s.origin].Name() < x.origins[t.origin].Name()
	}
	return s.rid.Compare(t.rid) < 0
}

// bar returns the score that a candidate must have at least to be kept.
func (g *gatherer) bar() uint32 {
	if len(g.hits.all) < g.most {
		return 1
	}
	return g.hits.all[0].score
}

// stretch gathers from the slots from base on.
func (g *gatherer) stretch() {
	ok := g.ok[g.base/64 : min(int(g.base+stretch)/64, len(g.ok))]
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
	for i := all; i < len(g.leads) && len(g.likely) > 0; i++ {
		g.complete(i)
		g.prune(bar - g.rest[i+1])
	}
	for _, low := range g.likely {
		if s := g.sums[low] - g.zero; s >= g.bar() {
			g.offer(hit{g.base + uint32(low), s})
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

// Terms are left out at first that have so many postings in a stretch together, and
// can add no more than so small a part of the bar: else too many sums are near it.
const (
	manyPostings = stretch / 4
	smallPart    = 8
)

// cut returns how many leads are added to all sums.
func (g *gatherer) cut(bar uint32) int {
	for i := range g.leads {
		if smallPart*g.rest[i] < bar && g.behind[i]*stretch > manyPostings*64*len(g.ok) {
			return i
		}
	}
	return len(g.leads)
}

// fewWanted is how many of 64 slots are wanted where it pays to look at all their sums.
const fewWanted = 8

// look makes a list of the slots in ok whose sums are high enough.
func (g *gatherer) look(ok bitset) {
	n := 0
	for i, wanted := range ok {
		if bits.OnesCount64(wanted) < fewWanted {
			for ; wanted != 0; wanted &= wanted - 1 {
				low := 64*i + bits.TrailingZeros64(wanted)
				g.room[n] = uint16(low)
				n += int(g.sums[low] / enough)
			}
			continue
		}
		sums := (*[64]uint32)(g.sums[64*i:])
		for j := 0; j < len(sums); j += 8 {
			s := (*[8]uint32)(sums[j:])
			if s[0]|s[1]|s[2]|s[3]|s[4]|s[5]|s[6]|s[7] < enough {
				continue
			}
			for k, sum := range s {
				g.room[n] = uint16(64*i + j + k)
				n += int(uint64(sum/enough) & (wanted >> (j + k)))
			}
		}
	}
	g.likely = g.room[:n]
}

func (g *gatherer) offer(h hit) {
	switch {
	case len(g.hits.all) < g.most:
		heap.Push(&g.hits, h)
	case g.hits.worse(g.hits.all[0], h):
		g.hits.all[0] = h
		heap.Fix(&g.hits, 0)
	}
}

// weigh adds what a term weighs in all slots.
func (g *gatherer) weigh(i int) {
	c, idf := &g.from[i], g.leads[i].idf
	for c.skip(g.base); len(c.blocks) > 0 && c.weigh(&g.sums, g.base, idf); {
		c.next()
	}
}

// weigh adds the weights in the first block, times idf, to the sums of the slots from
// base on. It is false where postings are left that lie behind these. It reads cells by
// itself: most of what a query costs is here.
func (c *cursor) weigh(sums *[stretch]uint32, base, idf uint32) bool {
	slot := c.slot - base
	for i, cell := range c.blocks[0].cells[c.at:] {
		step, weight := uint32(cell)>>weightBits, uint32(cell)&maxWeight
		slot += step
		if weight == 0 {
			slot += step * (stride - 1)
			continue
		}
		if slot < stretch {
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

// prune leaves the slots whose sums come up to a bar.
func (g *gatherer) prune(bar uint32) {
	bar += g.zero
	n := 0
	for _, low := range g.likely {
		g.room[n] = low
		if g.sums[low] >= bar {
			n++
		}
	}
	g.likely = g.room[:n]
}

// complete adds what a term weighs at least in the slots that are likely.
func (g *gatherer) complete(i int) {
	if fewLikely*len(g.likely)*64*len(g.ok) < g.leads[i].count*stretch {
		g.seek(i)
		return
	}
	g.weigh(i)
}

// seek is complete, slot by slot.
func (g *gatherer) seek(i int) {
	c, idf := &g.from[i], g.leads[i].idf
	at, slot := c.at, c.slot
	for _, low := range g.likely {
		wanted := g.base + uint32(low)
		for len(c.blocks) > 1 && c.blocks[1].first <= wanted {
			c.next()
			at, slot = c.at, c.slot
		}
		if len(c.blocks) == 0 {
			return
		}
		cells := c.blocks[0].cells
		for at < len(cells) {
			cell := cells[at]
			next := slot + cell.gap()
			if next > wanted {
				break
			}
			at, slot = at+1, next
			if next == wanted && cell.weight() > 0 {
				g.sums[low] += idf * uint32(cell.weight())
				break
			}
		}
	}
	c.at, c.slot = at, slot
}

// fewLikely is how many times more postings a stretch must have than slots are likely
// for these to be looked for one by one: not every block has one then.
const fewLikely = 4

// lead returns a term of a query, whose document frequency is counted among the
// slots in seen; false where none of them has it. all says that seen has every
// slot.
func (x *index) lead(h uint64, seen bitset, all bool, total int) (lead, bool) {
	l, ok := x.terms.get(h)
	if !ok {
		return lead{}, false
	}
	n := 0
	switch {
	case all:
		n = x.living(l)
	case total > 0:
		n = l.among(seen)
	}
	if n == 0 {
		return lead{}, false
	}
	units := uint32(math.Round(idf(n, total) * idfUnits))
	units = max(units, 1)
	return lead{list: l, count: n, idf: units, most: units * uint32(l.most)}, true
}

// among counts the postings whose slots are in a set.
func (l *list) among(set bitset) int {
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

// mark puts the slots of a list into a set, those that it has room for. Slots come in
// order, so each word is written once.
func (l *list) mark(set bitset) {
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
