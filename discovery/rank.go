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
// slots at a time, so that the sums of one stretch stay in the processor's cache,
// and leaves out what cannot be among the best any more (MaxScore).
type gatherer struct {
	sums    [stretch]uint32 // of the slots from base on
	base    uint32
	touched []uint16 // the slots whose sums are not 0 …
	sorted  bool     // … in order, and all in ok
	room    [stretch + 1]uint16
	marks   [stretch / 64]uint64
	leads   []lead
	rest    []uint32 // what the leads from one on can add together
	from    []cursor // where in its list each lead is
	ok      bitset
	hits    hits
	most    int
}

// stretch is how many slots are gathered from together.
const stretch = 1 << 13

var gatherers = sync.Pool{New: func() any { return new(gatherer) }}

// gather returns the best of the slots in ok by what terms weigh in them, at most
// most, the best first.
func (x *index) gather(leads []lead, ok bitset, most int) []hit {
	g := gatherers.Get().(*gatherer)
	defer gatherers.Put(g)
	slices.SortFunc(leads, func(a, b lead) int { return int(b.most) - int(a.most) })
	g.leads, g.ok, g.most = leads, ok, most
	g.rest = append(g.rest[:0], make([]uint32, len(leads)+1)...)
	for i := len(leads) - 1; i >= 0; i-- {
		g.rest[i] = g.rest[i+1] + leads[i].most
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
	bar := g.bar()
	g.touched, g.sorted = g.room[:0], false
	for i := range g.leads {
		switch {
		case g.rest[i] >= bar:
			// A registration that has none of the terms before may still be good enough.
			g.add(i)
		case len(g.touched) == 0:
			return
		default:
			g.prune(bar, g.rest[i])
			g.complete(i)
		}
	}
	for _, low := range g.touched {
		if s := g.sums[low]; s >= bar && g.ok.has(g.base+uint32(low)) {
			g.offer(hit{g.base + uint32(low), s})
		}
		g.sums[low] = 0
	}
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

// add adds what a term weighs in all slots.
func (g *gatherer) add(i int) { g.touched = g.room[:g.weigh(i, 1, ^uint32(0))] }

// weigh adds what a term weighs: to the slots that have a sum, and as much as mask lets
// through to those that have none yet, each of which makes fresh more. It returns how
// many slots are touched then. This and prune are most of what a query costs where
// registrations are many, so it reads cells by itself, and is written for a processor
// that can't guess which slots have a sum already.
func (g *gatherer) weigh(i, fresh int, mask uint32) int {
	c, idf, base, n := &g.from[i], g.leads[i].idf, g.base, len(g.touched)
	for c.skip(base); len(c.blocks) > 0; c.next() {
		slot := c.slot
		cells := c.blocks[0].cells
		for at := c.at; at < len(cells); at++ {
			cell := cells[at]
			weight, step := uint32(cell&maxWeight), uint32(cell>>weightBits)
			if weight == 0 {
				slot += step * stride
				continue
			}
			low := slot + step - base
			if low >= stretch {
				if slot+step >= base { // it lies behind, not before
					c.at, c.slot = at, slot
					return n
				}
				slot += step
				continue
			}
			slot += step
			sum := g.sums[low]
			g.room[n] = uint16(low)
			more := sum + idf*weight
			if sum == 0 {
				n += fresh
				more &= mask
			}
			g.sums[low] = more
		}
	}
	return n
}

// prune forgets the slots that cannot come up to the bar, and those that are not
// wanted.
func (g *gatherer) prune(bar, rest uint32) {
	n := 0
	for _, low := range g.touched {
		sum := g.sums[low]
		g.room[n] = low
		if sum+rest >= bar {
			n++
		} else {
			sum = 0
		}
		g.sums[low] = sum
	}
	g.touched = g.room[:n]
	if !g.sorted {
		g.sift()
	}
}

// sift forgets the slots that are not wanted, and sorts the others.
func (g *gatherer) sift() {
	for _, low := range g.touched {
		g.marks[low>>6] |= 1 << (low & 63)
	}
	n := 0
	for i, marked := range g.marks {
		if marked == 0 {
			continue
		}
		for g.marks[i] = 0; marked != 0; marked &= marked - 1 {
			low := uint16(i<<6 | bits.TrailingZeros64(marked))
			if !g.ok.has(g.base + uint32(low)) {
				g.sums[low] = 0
				continue
			}
			g.room[n] = low
			n++
		}
	}
	g.touched, g.sorted = g.room[:n], true
}

// complete adds what a term weighs in the slots that are touched already.
func (g *gatherer) complete(i int) {
	if fewTouched*len(g.touched)*64*len(g.ok) < g.leads[i].count*stretch {
		g.seek(i)
		return
	}
	g.weigh(i, 0, 0)
}

// seek is complete, slot by slot.
func (g *gatherer) seek(i int) {
	c, idf := &g.from[i], g.leads[i].idf
	at, slot := c.at, c.slot
	for _, low := range g.touched {
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

// fewTouched is how many times more postings a stretch must have than slots are
// touched for these to be looked for one by one: not every block has one then.
const fewTouched = 4

// lead returns a term of a query, whose document frequency is counted among the
// slots in seen; false where none of them has it. all says that seen has every
// slot.
func (x *index) lead(h uint64, seen bitset, all bool, total int) (lead, bool) {
	l, ok := x.terms.get(h)
	if !ok {
		return lead{}, false
	}
	n := 0
	if all {
		n = x.living(l)
	} else {
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

// mark puts the slots of a list into a set.
func (l *list) mark(set *bitset) { l.each(set.set) }

// each calls f with the slots of a list, in order.
func (l *list) each(f func(uint32)) {
	var room batch
	for c := l.cursor(); ; {
		ps := c.read(&room, maxSlots)
		if len(ps) == 0 {
			return
		}
		for _, p := range ps {
			f(p.slot())
		}
	}
}
