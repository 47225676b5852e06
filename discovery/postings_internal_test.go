package discovery

import (
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Slots near each other and far apart.
func someSlots(t *rapid.T) *rapid.Generator[uint32] {
	width := rapid.SampledFrom([]uint32{300, 5 * stretch, maxSlots - 1}).Draw(t, "width")
	return rapid.Uint32Range(0, width)
}

// A list against a map: whatever comes and is swept, it has what the map has, in
// order.
func TestAListAgainstAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l list
		var alive bitset
		model := map[uint32]byte{}
		slots := someSlots(t)
		set := func(slot uint32, weight byte) {
			l.set(newPosting(slot, weight))
			alive.set(slot)
			model[slot] = weight
		}
		kill := func(slot uint32) {
			alive.unset(slot)
			delete(model, slot)
		}
		for range rapid.IntRange(1, 20).Draw(t, "rounds") {
			if from := slots.Draw(t, "from"); rapid.Bool().Draw(t, "in a row") {
				for slot := from; slot < min(from+rapid.Uint32Range(0, 400).Draw(t, "row"), maxSlots); slot += 1 + slot%3 {
					set(slot, 3)
				}
			}
			for range rapid.IntRange(0, 60).Draw(t, "more") {
				set(slots.Draw(t, "slot"), rapid.ByteRange(1, maxWeight).Draw(t, "weight"))
			}
			for _, slot := range rapid.SliceOfN(slots, 0, 30).Draw(t, "not there, or") {
				kill(slot)
			}
			most := rapid.SampledFrom([]int{0, 0, 1, 50, 1 << 20}).Draw(t, "remove")
			for _, slot := range slices.Sorted(maps.Keys(model))[:min(most, len(model))] {
				kill(slot)
			}
			for next := uint32(0); next < maxSlots && l.count > 0; {
				next, _, _ = l.sweep(next, alive)
			}
			same(t, &l, model, slots)
		}
	})
}

func same(t *rapid.T, l *list, model map[uint32]byte, slots *rapid.Generator[uint32]) {
	t.Helper()
	var want []posting
	for _, slot := range slices.Sorted(maps.Keys(model)) {
		want = append(want, newPosting(slot, model[slot]))
	}
	if got := all(l); !slices.Equal(got, want) || int(l.count) != len(want) {
		t.Fatalf("%d postings: %v\nwant %d: %v", l.count, got, len(want), want)
	}
	for slot := range model {
		if !l.has(slot) || slot+1 < maxSlots && model[slot+1] == 0 && l.has(slot+1) {
			t.Fatalf("it has not what the map has at %d", slot)
		}
	}
	sought := l.cursor()
	for _, slot := range slices.Sorted(slices.Values(append(rapid.SliceOfN(slots, 0, 9).Draw(t, "sought"), slices.Collect(maps.Keys(model))...))) {
		if got := sought.seek(slot); got != uint32(model[slot]) {
			t.Fatalf("%d weighs %d, want %d", slot, got, model[slot])
		}
	}
	if l.dense != nil {
		set := bitset{}
		for slot := range model {
			set.set(slot)
		}
		if l.dense.both(set) != len(model) || l.dense.count() != len(model) {
			t.Fatalf("its set has %d, want %d", l.dense.count(), len(model))
		}
	}
	for i := range l.blocks {
		if n := len(l.blocks[i].cells); n == 0 || n > blockMost+maxCells {
			t.Fatalf("block %d of %d has %d cells", i, len(l.blocks), n)
		}
	}
}

// Terms that are set together have the postings that they have when set one by one:
// also where one comes twice, and where there is no room for all.
func TestSettingAllIsSettingEach(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.IntRange(0, 40).Draw(t, "most")
		together, alone := terms{most: most}, terms{most: most}
		slots := someSlots(t)
		hash := rapid.Map(rapid.Uint64Range(0, 60), func(n uint64) uint64 { return termOf(int(n)) })
		for range rapid.IntRange(1, 60).Draw(t, "registrations") {
			slot, hs := slots.Draw(t, "slot"), rapid.SliceOfN(hash, 0, 30).Draw(t, "terms")
			weight := func(i int) byte { return byte(1 + i%maxWeight) }
			left := uint64(0)
			for i, h := range hs {
				if !alone.set(h, newPosting(slot, weight(i))) {
					left++
				}
			}
			if got := together.setAll(hs, slot, weight); got != left {
				t.Fatalf("no room for %d, want %d", got, left)
			}
		}
		if together.postings != alone.postings || together.table.Len() != alone.table.Len() {
			t.Fatalf("%d postings of %d terms, want %d of %d", together.postings, together.table.Len(), alone.postings, alone.table.Len())
		}
		for n := range 60 {
			got, ok := together.get(termOf(n))
			want, had := alone.get(termOf(n))
			if ok != had || ok && !slices.Equal(all(got), all(want)) {
				t.Fatalf("term %d has %v, %v; want %v, %v", n, got, ok, want, had)
			}
		}
	})
}

func all(l *list) (ps []posting) {
	for i := range l.blocks {
		slot := l.blocks[i].first
		for _, c := range l.blocks[i].cells {
			if slot += c.gap(); c.weight() > 0 {
				ps = append(ps, newPosting(slot, c.weight()))
			}
		}
	}
	return ps
}

// The set of a dense list has the slots that its postings have, whatever has died and was
// swept, and goes where few are left.
func TestADenseListsSetHasItsSlots(t *testing.T) {
	var l list
	var alive bitset
	sweep := func() {
		for next := uint32(0); next < maxSlots; {
			next, _, _ = l.sweep(next, alive)
		}
	}
	for slot := range uint32(4000) {
		l.set(newPosting(slot, 3))
		alive.set(slot)
	}
	for slot := range uint32(4000) {
		if slot%3 > 0 {
			alive.unset(slot)
		}
	}
	sweep()
	if l.dense == nil || !slices.Equal(*l.dense, alive) || l.among(alive) != int(l.count) {
		t.Fatalf("of %d postings, the set has %v", l.count, l.dense)
	}
	for slot := range uint32(3900) {
		alive.unset(slot)
	}
	if sweep(); l.dense != nil {
		t.Errorf("a list of %d still has a set of %d", l.count, l.dense.count())
	}
}

// A list that was dense and goes on with few postings has no set any more: the set would
// take far more memory than the postings do.
func TestAListThatThinsOutLosesItsSet(t *testing.T) {
	var l list
	for slot := range uint32(2 * blockMost) {
		l.set(newPosting(slot, 3))
	}
	if l.dense == nil {
		t.Fatal("a list of all slots has no set")
	}
	for slot := uint32(1000); slot < maxSlots; slot *= 2 {
		l.set(newPosting(slot, 3))
		if l.dense != nil && len(*l.dense)*8 > int(l.count)*2+8 {
			t.Fatalf("the set of %d postings takes %d bytes", l.count, len(*l.dense)*8)
		}
	}
}
