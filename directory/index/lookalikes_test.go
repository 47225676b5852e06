package index_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/index"
	"github.com/roster-mesh/roster/directory/names"
)

var plain = &directory.Projection{Status: "active"}

// A registration is confusable with an earlier one of its domain that the reader sees, and
// with no later, hidden, ended or removed one.
//
// Requirement: SEC-015
func TestALaterNameThatLooksLikeAnEarlierOneIsConfusable(t *testing.T) {
	v := index.NewView(alpha)
	first, second := entry(alpha, 1, "paypal", plain), entry(alpha, 2, "p\u0430ypal", plain)
	third, other := entry(alpha, 3, "paypa1", plain), entry(alpha, 4, "weather", plain)

	for _, e := range []*directory.Entry{third, other, second, first} { // in any order
		v.Own().Put(e)
	}

	all := func(*directory.Entry) bool { return true }
	but := func(hidden ...*directory.Entry) func(*directory.Entry) bool {
		return func(e *directory.Entry) bool { return !slices.Contains(hidden, e) }
	}

	for _, c := range []struct {
		name string
		e    *directory.Entry
		sees func(*directory.Entry) bool
		want bool
	}{
		{"the first", first, all, false},
		{"the second", second, all, true},
		{"the third", third, all, true},
		{"another", other, all, false},
		{"the second, the first hidden", second, but(first), false},
		{"the third, the first hidden", third, but(first), true},
		{"the third, both hidden", third, but(first, second), false},
		{"one of a domain that is gone meanwhile", entry(beta, 5, "paypal", plain), all, false},
	} {
		if got := v.IsConfusable(c.e, c.sees); got != c.want {
			t.Errorf("%s: %t, want %t", c.name, got, c.want)
		}
	}

	v.Own().Delete(first.RID)

	if v.IsConfusable(second, all) || !v.IsConfusable(third, all) {
		t.Error("after the removal of the first, the second is the earliest")
	}
}

// After any changes the answers are those of a comparison of all pairs, whether the index was
// changed one by one or loaded.
//
// Requirement: SEC-015
func TestLookalikesFollowTheIndex(t *testing.T) {
	variants := []string{"bill", "biII", "bi11", "b1ll", "weather", "vv", "w", "rn", "m", "соре", "cope"}
	rng := rand.New(rand.NewPCG(1, 2))
	all := func(*directory.Entry) bool { return true }
	v := index.NewView(alpha)

	held := map[int]*directory.Entry{}
	for step := range 2000 {
		n := 1 + rng.IntN(40)
		if e := held[n]; e != nil && rng.IntN(2) == 0 {
			v.Own().Delete(e.RID)
			delete(held, n)
		} else if e == nil {
			held[n] = entry(alpha, n, variants[rng.IntN(len(variants))], &directory.Projection{})
			v.Own().Put(held[n])
		}

		if step%50 != 0 {
			continue
		}

		loaded := index.NewView(alpha)

		var es []*directory.Entry
		for _, e := range held {
			es = append(es, e)
		}

		loaded.Own().Build(es)()

		for _, e := range held {
			want := slices.ContainsFunc(es, func(o *directory.Entry) bool {
				return o.Created < e.Created && names.Alike(o.Agent, e.Agent)
			})
			if got, gotLoaded := v.IsConfusable(e, all), loaded.IsConfusable(e, all); got != want || gotLoaded != want {
				t.Fatalf("step %d, %s: %t, loaded %t, want %t", step, e.Agent, got, gotLoaded, want)
			}
		}
	}
}
