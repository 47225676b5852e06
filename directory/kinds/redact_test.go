package kinds_test

import (
	"strings"
	"testing"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/kinds"
)

// What a Redaction withholds is in nothing of what is shown, and what a registration
// can't be without is there.
func TestSightWithholds(t *testing.T) {
	d := mustDocument(t, directory.KindAD,
		`{"base":"https://one.example/","description":"canary","tags":["canary"],"status":"draining","x":"canary","protocols":["mcp"]}`)

	p, err := kinds.Project("one", d)
	must(t, err)

	owner, err := directory.ParseIdentity("spiffe://alpha.test/agent/canary")
	must(t, err)

	e := &directory.Entry{Origin: alpha, Agent: "one", Owner: owner, Document: d, Packed: directory.Pack(d, p)}
	v := kinds.Redact(e, directory.ShowOnly("protocols"))

	q := v.Projection()
	if !v.Redacted || !v.Owner.IsZero() || strings.Contains(string(v.Document.Bytes()), "canary") ||
		q.Description+strings.Join(q.Tags, "") != "" {
		t.Errorf("seen: %+v, %s", v, v.Document.Bytes())
	}

	if q.Base != "https://one.example/" || q.Status != "draining" || len(q.Protocols) != 1 || e.Redacted {
		t.Errorf("seen: %+v", q)
	}

	if kinds.Redact(e, directory.Withhold("another")) != e || kinds.Redact(e, directory.Redaction{}) != e {
		t.Error("what has nothing that is withheld is another")
	}

	// An entry that came without some members loses its owner, too.
	came := *e
	came.Redacted = true
	came.Provenance = &directory.Provenance{ImportedFrom: "https://registry.example"}

	seen := kinds.Redact(&came, directory.Withhold(directory.MemberRegistrant))
	if !seen.Owner.IsZero() || seen.Provenance != nil {
		t.Errorf("the owner or the provenance of a redacted entry is shown: %s, %+v", seen.Owner, seen.Provenance)
	}

	if g := directory.GrantOf(directory.Mesh, directory.Withhold("x", directory.MemberRegistrant),
		d); !g.Complete(directory.KindAD) || g.Allows("doc", "x") || g.Allows("reg", "owner") ||
		!g.Allows("doc", "tags") {
		t.Errorf("granted: %+v", g)
	}
}
