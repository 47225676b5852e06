package sorting_test

import (
	"cmp"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/roster-mesh/roster/directory/sorting"
)

type item struct{ key, place int }

func byKey(a, b item) int { return cmp.Compare(a.key, b.key) }

func byBoth(a, b item) int { return cmp.Or(byKey(a, b), cmp.Compare(a.place, b.place)) }

func TestListsAreSortedAsBySlices(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		keys := rapid.SliceOfN(rapid.IntRange(0, 9), 0, 200).Draw(t, "keys")

		var list []item
		for place, key := range keys {
			list = append(list, item{key, place})
		}

		want := slices.SortedStableFunc(slices.Values(list), byKey)

		stable := slices.Clone(list)
		sorting.StableFunc(stable, byKey)

		if !slices.Equal(stable, want) {
			t.Fatalf("StableFunc: %v, want %v", stable, want)
		}

		// An order without equal elements has one result.
		if got := sorting.Collect(slices.Values(list), byBoth); !slices.Equal(got, want) {
			t.Fatalf("Collect: %v, want %v", got, want)
		}
	})
}
