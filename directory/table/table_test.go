package table_test

import (
	"hash/maphash"
	"testing"

	"pgregory.net/rapid"

	"github.com/roster-mesh/roster/directory/table"
)

// A table with a pool against a map, with hashes of which many are the same.
func TestAgainstAMap(t *testing.T) {
	seed := maphash.MakeSeed()
	rapid.Check(t, func(t *rapid.T) {
		same := rapid.SampledFrom([]uint64{0, 7, ^uint64(0)}).Draw(t, "bits of the hash that are always the same")

		var (
			things table.Pool[string]
			byName table.Table
		)
		byName.Reserve(rapid.SampledFrom([]int{0, 1, 5000}).Draw(t, "reserved"))
		model := map[string]uint32{}
		hashOf := func(name string) uint64 { return maphash.String(seed, name) | same }
		hash := func(n uint32) uint64 { return hashOf(*things.At(n)) }

		names := rapid.StringMatching("[a-h][a-z]?")
		for range rapid.IntRange(1, 600).Draw(t, "steps") {
			name := names.Draw(t, "name")

			n, had := model[name]
			if rapid.Bool().Draw(t, "remove") && had {
				byName.Remove(n, hash)
				things.Give(n)
				delete(model, name)
			} else if !had {
				n = things.Take()
				if *things.At(n) != "" {
					t.Fatalf("%d is in use for %q", n, *things.At(n))
				}

				*things.At(n) = name
				byName.Insert(n, hash)
				model[name] = n
			}
		}

		if byName.Len() != len(model) {
			t.Fatalf("%d numbers, want %d", byName.Len(), len(model))
		}

		for range 100 {
			name := names.Draw(t, "name")

			n, ok := byName.Find(hashOf(name), func(n uint32) bool { return *things.At(n) == name })
			if want, had := model[name]; ok != had || n != want {
				t.Fatalf("%q is %d, %v; want %d, %v", name, n, ok, want, had)
			}

			if first, likely := byName.Likely(hashOf(name)); ok && !likely || likely && *things.At(first) == "" {
				t.Fatalf("%q is %d, but looked for at %d, %v", name, n, first, likely)
			}
		}

		held := 0
		for n, name := range things.All() {
			if *name != "" {
				held++

				if model[*name] != n {
					t.Fatalf("%q is %d, want %d", *name, n, model[*name])
				}
			}
		}

		if held != len(model) {
			t.Fatalf("%d elements, want %d", held, len(model))
		}
	})
}
