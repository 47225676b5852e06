package index_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/index"
)

// A query that is taken is within its bounds and lookups answer it.
//
// Requirement: AD-028
func FuzzQuery(f *testing.F) {
	for _, raw := range []string{"agent=a*&cap_name=*&tag=x&count=5&page=1", "agent=%FF",
		"after=" + index.Cursor{Origin: beta, RID: rid(1)}.String(), "scope=domain&origin=beta.test",
		"agent=e%CC%81*"} {
		f.Add(raw)
	}

	v := index.NewView(alpha)
	for n := range 50 {
		v.Own().Put(entry(alpha, n, strings.Repeat("a", n+1), &directory.Projection{Tags: []string{"x"}}))
		v.Origin(beta).Put(entry(beta, n, "é", &directory.Projection{}))
	}

	f.Fuzz(func(t *testing.T, raw string) {
		values, err := url.ParseQuery(raw)
		if err != nil {
			return
		}

		q, err := index.ParseQuery(values)
		if err != nil {
			if directory.ProblemOf(err) != directory.BadQuery {
				t.Fatalf("refused as %v", err)
			}

			return
		}

		if q.Count < 1 || q.Count > index.MaxCount || q.Skip < 0 || q.Skip > index.MaxPages*index.MaxCount {
			t.Fatalf("took %+v", q)
		}

		p := v.Lookup(q, nil)
		if len(p.Entries) > q.Count || p.More && len(p.Entries) != q.Count {
			t.Fatalf("answered %d of %d", len(p.Entries), q.Count)
		}

		for _, e := range p.Entries {
			if !asks(q, e) {
				t.Fatalf("%+v found %s", q, e.Agent)
			}
		}
	})
}

// A cursor has one text form.
func FuzzCursor(f *testing.F) {
	for _, c := range []index.Cursor{{Created: 9, RID: rid(1)}, {Origin: beta, RID: rid(1)}} {
		f.Add([]byte(c.String()))
	}

	f.Fuzz(func(t *testing.T, text []byte) {
		var c index.Cursor
		if err := c.UnmarshalText(text); err == nil && c.String() != string(text) {
			t.Fatalf("%q is also written %q", text, c.String())
		}
	})
}
