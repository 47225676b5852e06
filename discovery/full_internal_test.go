package discovery

import (
	"slices"
	"testing"

	"github.com/roster-mesh/roster/directory/index"
)

// A mesh that makes up words without end fills no memory without end: words beyond
// the bound are left out and counted, answers say so, and what was there before is
// found as ever.
//
// Requirement: XU-030
func TestTermsAreBounded(t *testing.T) {
	v := index.NewView(alpha)

	f, err := New(Config{View: v})
	must(t, err)
	defer f.Close()
	w := newWriter(1)
	first := w.entry(1)
	v.Own().Put(first)

	find := func(text string) *Result {
		t.Helper()

		res, err := f.Find(t.Context(),
			Query{Request: &Request{Query: text, Limit: 3, Constraints: Constraints{MaxAge: -1}}})
		must(t, err)

		return res
	}
	if res := find(first.Agent); len(res.Candidates) != 1 || len(res.Warnings) > 0 {
		t.Fatalf("before: %d candidates, %q", len(res.Candidates), res.Warnings)
	}

	held := f.Size()
	f.index.terms.Max = held.Terms
	made := w.entry(2)
	v.Own().Put(made)

	if res := find("0000002"); len(res.Candidates) != 0 || !slices.Equal(res.Warnings, []string{WarnFull}) {
		t.Errorf("a word too many finds %d candidates, and warns %q", len(res.Candidates), res.Warnings)
	}

	if now := f.Size(); now.Terms != held.Terms || now.LeftOut == 0 || now.Registrations != 2 {
		t.Errorf("the index has %+v, before %+v", now, held)
	}

	if res := find("agent"); len(res.Candidates) != 2 {
		t.Errorf("a word that was there finds %d, want both", len(res.Candidates))
	}

	v.Own().Delete(made.RID)

	if res := find("0000001"); len(res.Candidates) != 1 || res.Candidates[0].Entry.RID != first.RID {
		t.Errorf("what was there before is found %d times", len(res.Candidates))
	}
}
