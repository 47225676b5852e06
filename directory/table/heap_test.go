package table_test

import (
	"cmp"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/roster-mesh/roster/directory/table"
)

type rank int

func (r rank) Compare(o rank) int { return cmp.Compare(r, o) }

// A heap against a list that is sorted.
func TestHeap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var (
			h     table.Heap[rank]
			model []rank
		)
		for range rapid.IntRange(1, 1500).Draw(t, "steps") {
			if len(model) > 0 && rapid.IntRange(0, 2).Draw(t, "pop") == 0 {
				first := h.First()
				if got := h.Pop(); first != model[0] || got != first {
					t.Fatalf("popped %d behind %d, want %d", got, first, model[0])
				}

				model = model[1:]

				continue
			}

			v := rank(rapid.IntRange(0, 100).Draw(t, "item"))
			at, _ := slices.BinarySearch(model, v)
			model = slices.Insert(model, at, v)
			h.Push(v)
		}

		all := h.Items()
		slices.Sort(all)

		if h.Len() != len(model) || !slices.Equal(all, model) {
			t.Fatalf("%v, want %v", all, model)
		}
	})
}

// What was shared stays as it was, whatever becomes of the list.
func TestShare(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var p table.Pool[int]

		type moment struct {
			shared table.Paged[int]
			want   []int
		}
		list := func(of *table.Paged[int]) (all []int) {
			for _, v := range of.All() {
				all = append(all, *v)
			}

			return all
		}

		var moments []moment

		for range rapid.IntRange(0, 1200).Draw(t, "elements at first") {
			*p.Edit(p.Take()) = 1
		}

		for step := range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch i := rapid.Uint32Range(0, p.Len()).Draw(t, "element"); rapid.IntRange(0, 3).Draw(t, "step") {
			case 0:
				moments = append(moments, moment{p.Share(), list(&p.Paged)})
			case 1:
				*p.Edit(p.Take()) = step
			case 2:
				if i < p.Len() && *p.At(i) != 0 {
					p.Give(i)
				}
			case 3:
				if i < p.Len() && *p.At(i) != 0 {
					*p.Edit(i) = step + 2
				}
			}
		}

		for i, m := range moments {
			if got := list(&m.shared); !slices.Equal(got, m.want) {
				t.Fatalf("the list that was shared as the %d. has changed", i+1)
			}
		}
	})
}
