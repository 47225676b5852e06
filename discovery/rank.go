package discovery

import (
	"container/heap"
	"math"
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
	touched []uint16
	leads   []lead
	rest    []uint32 // what the leads from one on can add together
	from    []cursor // where in its list each lead is
	room    batch
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
		if s := g.sums[low]; s >= bar && s > 0 {
			g.offer(hit{g.base + uint32(low), s})
		}
		g.sums[low] = 0
	}
	g.touched = g.touched[:0]
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

// add adds what a term weighs in all slots that are wanted.
func (g *gatherer) add(i int) {
	c, idf, base := &g.from[i], g.leads[i].idf, g.base
	for c.skip(base); ; {
		ps := c.read(&g.room, base+stretch)
		if len(ps) == 0 {
			return
		}
		for _, p := range ps {
			slot := p.slot()
			low := slot - base
			switch {
			case low >= stretch: // it lies before
			case g.sums[low] > 0:
				g.sums[low] += idf * uint32(p.weight())
			case g.ok.has(slot):
				g.sums[low] = idf * uint32(p.weight())
				g.touched = append(g.touched, uint16(low))
			}
		}
	}
}

// prune forgets the slots that cannot come up to the bar.
func (g *gatherer) prune(bar, rest uint32) {
	kept := g.touched[:0]
	for _, low := range g.touched {
		if g.sums[low]+rest >= bar {
			kept = append(kept, low)
		} else {
			g.sums[low] = 0
		}
	}
	g.touched = kept
}

// complete adds what a term weighs in the slots that are touched already.
func (g *gatherer) complete(i int) {
	c, l, base := &g.from[i], &g.leads[i], g.base
	c.skip(base)
	if fewTouched*len(g.touched)*64*len(g.ok) < l.count*stretch {
		slices.Sort(g.touched)
		for _, low := range g.touched {
			g.sums[low] += l.idf * uint32(c.weigh(base+uint32(low)))
		}
		return
	}
	for {
		ps := c.read(&g.room, base+stretch)
		if len(ps) == 0 {
			return
		}
		for _, p := range ps {
			if low := p.slot() - base; low < stretch && g.sums[low] > 0 {
				g.sums[low] += l.idf * uint32(p.weight())
			}
		}
	}
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
	n := 0
	l.each(func(slot uint32) {
		if set.has(slot) {
			n++
		}
	})
	return n
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
