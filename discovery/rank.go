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

// A gatherer finds the best candidates. It goes through the index 65,536 slots
// at a time, so that the sums of one stretch stay in the processor's cache, and
// leaves out what cannot be among the best any more (MaxScore).
type gatherer struct {
	sums    [1 << 16]uint32
	touched []uint16
	leads   []lead
	rest    []uint32 // what the leads from one on can add together
	from    []int    // where in its flat list, or its runs, each lead is
	ok      bitset
	hits    hits
	most    int
}

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
	g.from = append(g.from[:0], make([]int, len(leads))...)
	g.hits = hits{first: x.before}
	for upper := range uint32(len(ok)+1023) / 1024 {
		g.stretch(upper)
	}
	slices.SortFunc(g.hits.all, func(a, b hit) int {
		if g.hits.worse(b, a) {
			return -1
		}
		return 1
	})
	found := g.hits.all
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

// stretch gathers from the slots with the same upper bits.
func (g *gatherer) stretch(upper uint32) {
	bar := g.bar()
	for i := range g.leads {
		switch {
		case g.rest[i] >= bar:
			// A registration that has none of the terms before may still be good enough.
			g.add(i, upper)
		case len(g.touched) == 0:
			return
		default:
			g.prune(bar, g.rest[i])
			g.complete(i, upper)
		}
	}
	base := upper << 16
	for _, low := range g.touched {
		if s := g.sums[low]; s >= bar && s > 0 {
			g.offer(hit{base | uint32(low), s})
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
func (g *gatherer) add(i int, upper uint32) {
	l := &g.leads[i]
	if flat := l.list.flat; len(flat) > 0 {
		for _, p := range g.flat(i, upper) {
			g.bump(uint16(p.slot()), p.slot(), l.idf*uint32(p.weight()))
		}
		return
	}
	r := g.run(i, upper)
	if r == nil {
		return
	}
	base, weights := upper<<16, r.weights
	ok := g.ok[min(int(upper)*1024, len(g.ok)):]
	for j, low := range r.low {
		if w := int(low >> 6); w >= len(ok) || ok[w]&(1<<(low&63)) == 0 {
			continue
		}
		g.bump(low, base|uint32(low), l.idf*uint32(weights[j]))
	}
}

func (g *gatherer) bump(low uint16, slot, by uint32) {
	if s := g.sums[low]; s > 0 {
		g.sums[low] = s + by
		return
	}
	if g.ok.has(slot) {
		g.sums[low] = by
		g.touched = append(g.touched, low)
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
func (g *gatherer) complete(i int, upper uint32) {
	l := &g.leads[i]
	if len(l.list.flat) > 0 {
		for _, p := range g.flat(i, upper) {
			if low := uint16(p.slot()); g.sums[low] > 0 {
				g.sums[low] += l.idf * uint32(p.weight())
			}
		}
		return
	}
	r := g.run(i, upper)
	switch {
	case r == nil:
	case len(r.low) > 16*len(g.touched):
		for _, low := range g.touched {
			if j, ok := slices.BinarySearch(r.low, low); ok {
				g.sums[low] += l.idf * uint32(r.weights[j])
			}
		}
	default:
		for j, low := range r.low {
			if g.sums[low] > 0 {
				g.sums[low] += l.idf * uint32(r.weights[j])
			}
		}
	}
}

// flat returns the postings of a short list in a stretch. Stretches are asked for
// in order; one may be left out.
func (g *gatherer) flat(i int, upper uint32) []posting {
	flat := g.leads[i].list.flat
	from := g.from[i]
	for from < len(flat) && flat[from].slot()>>16 < upper {
		from++
	}
	to := from
	for to < len(flat) && flat[to].slot()>>16 == upper {
		to++
	}
	g.from[i] = to
	return flat[from:to]
}

// run returns the postings of a long list in a stretch, or nil.
func (g *gatherer) run(i int, upper uint32) *run {
	runs := g.leads[i].list.runs
	for g.from[i] < len(runs) && runs[g.from[i]].upper < upper {
		g.from[i]++
	}
	if g.from[i] < len(runs) && runs[g.from[i]].upper == upper {
		return &runs[g.from[i]]
	}
	return nil
}

// lead returns a term of a query, whose document frequency is counted among the
// slots in seen; false where none of them has it. all says that seen has every
// slot.
func (x *index) lead(h uint64, seen bitset, all bool, total int) (lead, bool) {
	l, ok := x.terms.get(h)
	if !ok {
		return lead{}, false
	}
	n := int(l.count)
	if !all {
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
	for _, p := range l.flat {
		if set.has(p.slot()) {
			n++
		}
	}
	for i := range l.runs {
		base := l.runs[i].upper << 16
		for _, low := range l.runs[i].low {
			if set.has(base | uint32(low)) {
				n++
			}
		}
	}
	return n
}

// mark puts the slots of a list into a set.
func (l *list) mark(set *bitset) {
	for _, p := range l.flat {
		set.set(p.slot())
	}
	for i := range l.runs {
		base := l.runs[i].upper << 16
		for _, low := range l.runs[i].low {
			set.set(base | uint32(low))
		}
	}
}
