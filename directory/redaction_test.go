package directory_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/roster-mesh/roster/directory"
)

// Sights combine as the sets do that they stand for.
func TestSightsAreSets(t *testing.T) {
	names := []string{"description", "tags", "constraints", directory.MemberRegistrant}
	object := func(name string) (string, string) {
		if name == directory.MemberRegistrant {
			return "reg", "owner"
		}

		return "doc", name
	}
	rapid.Check(t, func(t *rapid.T) {
		draw := func(label string) directory.Redaction {
			of := rapid.SliceOf(rapid.SampledFrom(names)).Draw(t, label)
			if rapid.Bool().Draw(t, label+" is without") {
				return directory.Withhold(of...)
			}

			return directory.ShowOnly(of...)
		}

		a, b := draw("a"), draw("b")
		for _, name := range append(names, "another") {
			o, n := object(name)

			shows := func(s directory.Redaction) bool { return s.Allows(directory.KindAD, o, n) }
			if shows(a.And(b)) != (shows(a) && shows(b)) || shows(a.Or(b)) != (shows(a) || shows(b)) {
				t.Fatalf("%q of %+v and %+v", name, a, b)
			}
		}

		if a.And(a) != a || a.Or(a) != a || a.And(directory.Redaction{}) != a ||
			!a.Or(directory.Redaction{}).ShowsAll() {
			t.Fatalf("%+v with itself, or with all", a)
		}
	})
}
