package discovery

import (
	"hash/maphash"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/discovery/postings"
)

// Whatever is left out on the way, the best are those that scoring every registration
// by every term gives, in the same order: with terms in nearly all registrations and in
// hardly any, with filters that leave many, few and none, among several stretches of slots.
func TestGatheringFindsWhatScoringAllFinds(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 1))

	rounds := 60
	if testing.Short() {
		rounds = 15
	}

	for round := range rounds {
		x := newIndex(&Config{}, maphash.MakeSeed(), nil)
		x.origins = append(x.origins, alpha)

		n := uint32(1 + r.IntN([]int{50, 3 * postings.Window, 5 * postings.Window}[round%3]))
		for i := range n {
			x.alive.Set(x.slots.Take())
			x.slots.At(i).rid = directory.NewRID(r.Int64N(1<<40), [10]byte{byte(i), byte(i >> 8)})
		}

		ok := slices.Clone(x.alive)
		for share := r.IntN(4); share > 0; share-- {
			for i := range ok {
				ok[i] &= r.Uint64()
			}
		}

		switch r.IntN(6) {
		case 0: // the last slots are not wanted
			ok = ok[:r.IntN(len(ok)+1)]
		case 1: // none of the first
			clear(ok[:min(len(ok), r.IntN(2*postings.Window/64))])
		}

		var leads []postings.Lead

		sums := make([]uint32, n)
		for term, spread := range spreads(r) {
			end := n
			if r.IntN(3) == 0 {
				end = r.Uint32N(n)
			}

			for at := uint32(r.IntN(spread.step + postings.BlockCells)); at < end; at += uint32(1 +
				r.IntN(spread.step)) {
				x.terms.Set(termOf(term), postings.NewPosting(at, byte(max(spread.least, 1+r.IntN(spread.most)))))
			}

			l, has := x.lead(termOf(term), x.alive, true, int(n))
			if !has {
				continue
			}

			leads = append(leads, l)
			if r.IntN(8) == 0 { // as one tag is that two ask for
				l.IDF, l.Max = 1, postings.MaxWeight
				leads = append(leads, l)
			}

			for _, l := range leads[slices.IndexFunc(leads, func(o postings.Lead) bool { return o.List == l.List }):] {
				for p := range l.List.All() {
					sums[p.Slot()] += l.IDF * uint32(p.Weight())
				}
			}
		}

		var want []postings.Hit
		for slot, sum := range sums {
			if sum > 0 && ok.Has(uint32(slot)) {
				want = append(want, postings.Hit{Slot: uint32(slot), Score: sum})
			}
		}

		slices.SortFunc(want, func(a, b postings.Hit) int {
			if a.Score != b.Score {
				return int(b.Score) - int(a.Score)
			}

			return x.slots.At(a.Slot).rid.Compare(x.slots.At(b.Slot).rid)
		})
		most := []int{1, 44, 500}[r.IntN(3)]

		want = want[:min(most, len(want))]
		if got := x.gather(leads, ok, most); !slices.Equal(got, want) {
			t.Fatalf("round %d: of %d with %d terms, the best are\n%v, want\n%v", round, n, len(leads), got, want)
		}
	}
}

// A spread is how often a term is said, at most so many slots apart, and how much it
// weighs there.
type spread struct{ step, least, most int }

// spreads returns those of the terms of a query: of any, of as many as are searched, or
// of one that very many have alike and some in nearly all, which are left out at first.
func spreads(r *rand.Rand) (all []spread) {
	few := 1 + r.IntN(12)
	switch r.IntN(4) {
	case 0:
		all = append(all, spread{1 + r.IntN(3), postings.MaxWeight, 1}, spread{1 + r.IntN(200), postings.MaxWeight, 1})
		for range few / 3 {
			all = append(all, spread{1, 1, 1 + r.IntN(postings.MaxWeight)})
		}

		return all
	case 1:
		few = maxQueryTerms
	}

	for range few {
		all = append(all, spread{1 + r.IntN([]int{2, 10, 300, 20_000}[r.IntN(4)]), 1, 1 + r.IntN(postings.MaxWeight)})
	}

	return all
}
