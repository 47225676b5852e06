package postings

import (
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// termOf returns the hash of a made-up term.
func termOf(i int) uint64 { return (uint64(i)*0x9e3779b97f4a7c15 ^ uint64(i)<<17) | 1 }

// Slots near each other and far apart.
func someSlots(t *rapid.T) *rapid.Generator[uint32] {
	width := rapid.SampledFrom([]uint32{300, 5 * Window, MaxSlots - 1}).Draw(t, "width")
	return rapid.Uint32Range(0, width)
}

// A list against a map: whatever comes and is swept, it has what the map has, in
// order.
func TestAListAgainstAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var (
			l     List
			alive Bitset
		)
		model := map[uint32]byte{}
		slots := someSlots(t)
		set := func(slot uint32, weight byte) {
			l.set(NewPosting(slot, weight))
			alive.Set(slot)
			model[slot] = weight
		}

		kill := func(slot uint32) {
			alive.Unset(slot)
			delete(model, slot)
		}
		for range rapid.IntRange(1, 20).Draw(t, "rounds") {
			if from := slots.Draw(t, "from"); rapid.Bool().Draw(t, "in a row") {
				for slot := from; slot < min(from+rapid.Uint32Range(0, 400).Draw(t, "row"),
					MaxSlots); slot += 1 + slot%3 {
					set(slot, 3)
				}
			}

			for range rapid.IntRange(0, 60).Draw(t, "more") {
				set(slots.Draw(t, "slot"), rapid.ByteRange(1, MaxWeight).Draw(t, "weight"))
			}

			for _, slot := range rapid.SliceOfN(slots, 0, 30).Draw(t, "not there, or") {
				kill(slot)
			}

			most := rapid.SampledFrom([]int{0, 0, 1, 50, 1 << 20}).Draw(t, "remove")
			for _, slot := range slices.Sorted(maps.Keys(model))[:min(most, len(model))] {
				kill(slot)
			}

			for next := uint32(0); next < MaxSlots && l.Count > 0; {
				next, _, _ = l.sweep(next, alive)
			}

			same(t, &l, model, slots)
		}
	})
}

func same(t *rapid.T, l *List, model map[uint32]byte, slots *rapid.Generator[uint32]) {
	t.Helper()

	var want []Posting
	for _, slot := range slices.Sorted(maps.Keys(model)) {
		want = append(want, NewPosting(slot, model[slot]))
	}

	if got := slices.Collect(l.All()); !slices.Equal(got, want) || int(l.Count) != len(want) {
		t.Fatalf("%d postings: %v\nwant %d: %v", l.Count, got, len(want), want)
	}

	for slot := range model {
		if !l.Has(slot) || slot+1 < MaxSlots && model[slot+1] == 0 && l.Has(slot+1) {
			t.Fatalf("it has not what the map has at %d", slot)
		}
	}

	sought := l.cursor()
	for _, slot := range slices.Sorted(slices.Values(append(rapid.SliceOfN(slots, 0, 9).Draw(t, "sought"),
		slices.Collect(maps.Keys(model))...))) {
		if got := sought.seek(slot); got != uint32(model[slot]) {
			t.Fatalf("%d weighs %d, want %d", slot, got, model[slot])
		}
	}

	if l.Dense != nil {
		set := Bitset{}
		for slot := range model {
			set.Set(slot)
		}

		if l.Dense.both(set) != len(model) || l.Dense.Count() != len(model) {
			t.Fatalf("its set has %d, want %d", l.Dense.Count(), len(model))
		}
	}

	for i := range l.blocks {
		if n := len(l.blocks[i].cells); n == 0 || n > BlockCells+maxCells {
			t.Fatalf("block %d of %d has %d cells", i, len(l.blocks), n)
		}
	}
}

// Terms that are set together have the postings that they have when set one by one:
// also where one comes twice, and where there is no room for all.
func TestSettingAllIsSettingEach(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.IntRange(0, 40).Draw(t, "most")
		together, alone := Terms{Max: most}, Terms{Max: most}
		slots := someSlots(t)

		hash := rapid.Map(rapid.Uint64Range(0, 60), func(n uint64) uint64 { return termOf(int(n)) })
		for range rapid.IntRange(1, 60).Draw(t, "registrations") {
			slot := slots.Draw(t, "slot")
			hs := rapid.SliceOfN(hash, 0, 30).Draw(t, "terms")
			weight := func(i int) byte { return byte(1 + i%MaxWeight) }

			left := uint64(0)
			for i, h := range hs {
				if !alone.Set(h, NewPosting(slot, weight(i))) {
					left++
				}
			}

			if got := together.SetAll(hs, slot, weight); got != left {
				t.Fatalf("no room for %d, want %d", got, left)
			}
		}

		if together.postings != alone.postings || together.table.Len() != alone.table.Len() {
			t.Fatalf("%d postings of %d terms, want %d of %d", together.postings, together.table.Len(), alone.postings,
				alone.table.Len())
		}

		for n := range 60 {
			got, ok := together.Get(termOf(n))

			want, had := alone.Get(termOf(n))
			if ok != had || ok && !slices.Equal(slices.Collect(got.All()), slices.Collect(want.All())) {
				t.Fatalf("term %d has %v, %v; want %v, %v", n, got, ok, want, had)
			}
		}
	})
}

// The set of a dense list has the slots that its postings have, whatever has died and was
// swept, and goes where few are left.
func TestADenseListsSetHasItsSlots(t *testing.T) {
	var (
		l     List
		alive Bitset
	)
	sweep := func() {
		for next := uint32(0); next < MaxSlots; {
			next, _, _ = l.sweep(next, alive)
		}
	}

	for slot := range uint32(4000) {
		l.set(NewPosting(slot, 3))
		alive.Set(slot)
	}

	for slot := range uint32(4000) {
		if slot%3 > 0 {
			alive.Unset(slot)
		}
	}

	sweep()

	if l.Dense == nil || !slices.Equal(*l.Dense, alive) || l.CountIn(alive) != int(l.Count) {
		t.Fatalf("of %d postings, the set has %v", l.Count, l.Dense)
	}

	for slot := range uint32(3900) {
		alive.Unset(slot)
	}

	if sweep(); l.Dense != nil {
		t.Errorf("a list of %d still has a set of %d", l.Count, l.Dense.Count())
	}
}

// A list that was dense and goes on with few postings has no set any more: the set would
// take far more memory than the postings do.
func TestAListThatThinsOutLosesItsSet(t *testing.T) {
	var l List
	for slot := range uint32(2 * BlockCells) {
		l.set(NewPosting(slot, 3))
	}

	if l.Dense == nil {
		t.Fatal("a list of all slots has no set")
	}

	for slot := uint32(1000); slot < MaxSlots; slot *= 2 {
		l.set(NewPosting(slot, 3))

		if l.Dense != nil && len(*l.Dense)*8 > int(l.Count)*2+8 {
			t.Fatalf("the set of %d postings takes %d bytes", l.Count, len(*l.Dense)*8)
		}
	}
}
