package directory_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/roster-mesh/roster/directory"
)

// Sights combine as the sets do that they stand for.
func TestSightsAreSets(t *testing.T) {
	names := []string{"description", "tags", "constraints", directory.SightRegistrant}
	object := func(name string) (string, string) {
		if name == directory.SightRegistrant {
			return "reg", "owner"
		}
		return "doc", name
	}
	rapid.Check(t, func(t *rapid.T) {
		draw := func(label string) directory.Sight {
			of := rapid.SliceOf(rapid.SampledFrom(names)).Draw(t, label)
			if rapid.Bool().Draw(t, label+" is without") {
				return directory.SightWithout(of...)
			}
			return directory.SightOf(of...)
		}
		a, b := draw("a"), draw("b")
		for _, name := range append(names, "another") {
			o, n := object(name)
			shows := func(s directory.Sight) bool { return s.Allows(directory.KindAD, o, n) }
			if shows(a.And(b)) != (shows(a) && shows(b)) || shows(a.Or(b)) != (shows(a) || shows(b)) {
				t.Fatalf("%q of %+v and %+v", name, a, b)
			}
		}
		if a.And(a) != a || a.Or(a) != a || a.And(directory.Sight{}) != a || !a.Or(directory.Sight{}).IsWhole() {
			t.Fatalf("%+v with itself, or with all", a)
		}
	})
}

// What a Sight withholds is in nothing of what is shown, and what a registration
// can't be without is there.
func TestSightWithholds(t *testing.T) {
	d := mustDocument(t, directory.KindAD, `{"base":"https://one.example/","description":"canary","tags":["canary"],"status":"draining","x":"canary","protocols":["mcp"]}`)
	p, err := directory.Project("one", d)
	if err != nil {
		t.Fatal(err)
	}
	owner, err := directory.ParseIdentity("spiffe://alpha.test/agent/canary")
	if err != nil {
		t.Fatal(err)
	}
	e := &directory.Entry{Origin: alpha, Agent: "one", Owner: owner, Document: d, Packed: directory.Pack(d, p)}
	v := directory.SightOf("protocols").See(e)
	q := v.Projection()
	if !v.Redacted || !v.Owner.IsZero() || strings.Contains(string(v.Document.Bytes()), "canary") || q.Description+strings.Join(q.Tags, "") != "" {
		t.Errorf("seen: %+v, %s", v, v.Document.Bytes())
	}
	if q.Base != "https://one.example/" || q.Status != "draining" || len(q.Protocols) != 1 || e.Redacted {
		t.Errorf("seen: %+v", q)
	}
	if directory.SightWithout("another").See(e) != e || (directory.Sight{}).See(e) != e {
		t.Error("what has nothing that is withheld is another")
	}
	if g := directory.GrantOf(directory.Mesh, directory.SightWithout("x", directory.SightRegistrant), d); !g.Complete(directory.KindAD) || g.Allows("doc", "x") || g.Allows("reg", "owner") || !g.Allows("doc", "tags") {
		t.Errorf("granted: %+v", g)
	}
}
