package discovery

import (
	"hash/maphash"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/discovery/content"
	"github.com/roster-mesh/roster/discovery/postings"
)

// made is contents of some of a few dozen terms, two of which are labels.
func made(r *rand.Rand) *contents {
	c := &contents{}
	c.Reset()

	for range 1 + r.IntN(8) {
		c.Add(termOf(min(r.IntN(40), r.IntN(40))))[content.FieldDescription] = uint8(1 + r.IntN(content.MaxCount))
	}

	for f := range c.Lengths {
		c.Lengths[f] = 1 + float64(r.IntN(20))
	}

	c.labels = append(c.labels, termOf(100))
	if r.IntN(3) == 0 {
		c.labels = append(c.labels, termOf(101))
	}

	return c
}

// Whatever registrations come, change and go, with the sweep anywhere: how many have a
// term, and which are the best, is as in an index that has never had others; and the
// dead are bounded, and none is left where they are swept.
func TestTheDeadLeaveNoTrace(t *testing.T) {
	const names, steps = 4000, 16_000
	r := rand.New(rand.NewPCG(7, 7))
	empty := func() *termIndex {
		return newIndex(&Config{Class: byVisibility, Generation: func() uint64 { return 0 }}, maphash.MakeSeed(), nil)
	}
	x, model := empty(), map[int]*contents{}
	named := func(i int) *directory.Entry {
		return &directory.Entry{Origin: alpha, RID: directory.NewRID(int64(i), [10]byte{})}
	}

	check := func() {
		t.Helper()

		fresh := empty()
		for i, c := range model {
			fresh.put(named(i), c)
		}

		var leads, afresh []postings.Lead
		for i := range 102 {
			l, ok := x.lead(termOf(i), x.alive, true, x.count)

			want, wanted := fresh.lead(termOf(i), fresh.alive, true, fresh.count)
			if ok != wanted || l.Count != want.Count || l.IDF != want.IDF {
				t.Fatalf("term %d is in %d, %v; want %d, %v", i, l.Count, ok, want.Count, wanted)
			}

			if ok && r.IntN(6) == 0 {
				leads, afresh = append(leads, l), append(afresh, want)
			}
		}

		told := func(x *termIndex, hits []postings.Hit) (all []any) {
			for _, h := range hits {
				all = append(all, x.slots.At(h.Slot).rid, h.Score)
			}

			return all
		}
		got := told(x, x.gather(leads, x.alive, 44))

		want := told(fresh, fresh.gather(afresh, fresh.alive, 44))
		if !slices.Equal(got, want) {
			t.Fatalf("the best of %d terms are %v, want %v", len(leads), got, want)
		}

		if n := x.buried(); n > 2*((x.count+n)/deadShare+deadLeast)+feedBatch {
			t.Fatalf("%d are dead beside %d", n, x.count)
		}
	}
	for step := range steps {
		i := r.IntN(names)
		if going := step > steps*3/4; going || r.IntN(3) == 0 {
			x.remove(alpha, named(i).RID)
			delete(model, i)
		} else {
			model[i] = made(r)
			x.put(named(i), model[i])
		}

		if step%feedBatch == 0 {
			x.tidy()
		}

		if r.IntN(steps/40) == 0 {
			check()
		}
	}

	for i := range model {
		x.remove(alpha, named(i).RID)
	}

	clear(model)
	check()

	for range 6 * deadLeast { // they pay until all are swept
		x.put(named(0), made(r))
		x.remove(alpha, named(0).RID)
		x.tidy()
	}

	if n := x.slots.Len(); n > 2*names {
		t.Errorf("%d slots for at most %d registrations: they are not used again", n, names)
	}

	postings := x.terms.Work() - x.terms.Len()
	if postings > 10*x.buried() || x.terms.Len() > 102 {
		t.Errorf("%d postings of %d terms are left by %d of whom none is there", postings, x.terms.Len(), x.buried())
	}
}
