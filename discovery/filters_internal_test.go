package discovery

import (
	"hash/maphash"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/discovery/content"
	"github.com/roster-mesh/roster/discovery/postings"
)

// However registrations come and go between, who asks for a label, common or rare, finds
// those that live and have it.
func TestALabelIsFoundAsTheIndexChanges(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 1))
	x := newIndex(&Config{}, maphash.MakeSeed(), nil)

	labels := make([]string, 19)
	for i := range labels {
		labels[i] = content.MarkTag + string(rune('a'+i))
	}

	has := map[uint32]uint32{} // the bits of the labels of what lives
	add := func() {
		n, bits := x.slots.Take(), r.Uint32()
		if r.IntN(20) > 0 {
			bits &= 1<<10 - 1 // the others are rare
		}

		x.alive.Set(n)

		for i, l := range labels {
			if bits>>i&1 == 1 {
				x.terms.Set(x.hash(l), postings.NewPosting(n, 1))
			}
		}

		has[n] = bits
	}

	var gone []uint32
	remove := func() {
		for n := range has {
			x.alive.Unset(n)
			delete(has, n)
			gone = append(gone, n)

			return
		}
	}
	sweep := func() {
		for at := (postings.SweepPosition{}); !x.terms.Sweep(&at, x.alive, 1<<20); {
		}

		for _, n := range gone {
			x.slots.Give(n)
		}

		gone = nil
	}
	ask := func(i int) {
		set := make(postings.Bitset, len(x.alive))
		x.mark(labels[i], set)

		for n, w := range set {
			set[n] = w & x.alive[n]
		}

		want := make(postings.Bitset, len(x.alive))
		for n, bits := range has {
			if bits>>i&1 == 1 {
				want.Set(n)
			}
		}

		if !slices.Equal(set, want) {
			t.Errorf("label %d has %d, want %d", i, set.Count(), want.Count())
		}
	}

	for range 9000 {
		add()
	}

	for round := range 60 {
		for range r.IntN([]int{3, 30, 300}[round%3]) {
			if r.IntN(2) == 0 {
				remove()
			} else {
				add()
			}
		}

		if round%20 == 19 {
			sweep()
		}

		var asked sync.WaitGroup
		for range 3 {
			i := r.IntN([]int{2, len(labels)}[round%2])
			asked.Go(func() { ask(i) })
		}

		asked.Wait()
	}
}

// The age of a registration counts from its last refresh at its origin, not from its
// receipt here.
//
// Requirement: XU-009
func TestAgeCountsFromTheOriginsRefresh(t *testing.T) {
	now := time.Unix(1_780_000_000, 0)
	entry := &directory.Entry{
		Lifetime:  600,
		ExpiresAt: now.Add(100 * time.Second).UnixMilli(), // refreshed 500 s ago
		UpdatedAt: now.Add(-time.Hour).UnixMilli(),
		Received:  &directory.Received{At: now.Add(-time.Second).UnixMilli(), CheckedAt: now.UnixMilli()},
	}

	if age := ageOf(entry, now); age != 500 {
		t.Errorf("the age is %d s, want 500", age)
	}

	if entry.Lifetime = 0; ageOf(entry, now) != 3600 {
		t.Errorf("without a lifetime the age is %d s, want 3600", ageOf(entry, now))
	}
}
