package discovery

import (
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/contain"
	"github.com/roster-mesh/roster/directory/directorytest"
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

// A record on which this program panics in the middle of indexing it is left out whole. Those that come with it, before
// and after, are found, and so is the record when it is registered anew with other contents.
//
// Requirement: FORM-006
func TestARecordThatPanicsCostsNoOther(t *testing.T) {
	v := index.NewView(alpha)
	panics := contain.New(slog.New(slog.DiscardHandler))

	f, err := New(Config{View: v, Panics: panics})
	must(t, err)
	defer f.Close()

	// Flags are noted last, so a record with flags panics when the rest of it is in the index.
	must(t, f.CatchUp(t.Context()))

	f.index.flagged = nil

	put := func(n byte, agent, description string) {
		d := directorytest.Document(t, directory.KindAD, `{"base":"https://a.test","description":"`+description+`"}`)
		v.Own().Put(&directory.Entry{
			Origin: alpha, RID: directorytest.RID(n), Agent: agent, Owner: directorytest.Ada, Document: d,
			Packed:    directory.Pack(d, directorytest.Project(t, agent, d)),
			ExpiresAt: time.Now().Add(time.Hour).UnixMilli(), Created: uint64(n), Revision: uint64(n),
		})
	}
	find := func(text string) int {
		t.Helper()

		res, err := f.Find(t.Context(),
			Query{Request: &Request{Query: text, Limit: 9, Constraints: Constraints{MaxAge: -1}}})
		must(t, err)

		return len(res.Candidates)
	}

	put(1, "before", "Plans a route.")
	put(2, "bad", strings.Repeat("route ", 80))
	put(3, "after", "Plans a route.")

	if found := find("route"); found != 2 || f.Size().Registrations != 2 || panics.Count(contain.Discovery) != 1 {
		t.Errorf("%d of the two others are found, %d are indexed, %d panics", found, f.Size().Registrations,
			panics.Count(contain.Discovery))
	}

	put(2, "bad", "Plans a route.")

	if found := find("route"); found != 3 {
		t.Errorf("%d of three are found after the bad record changed", found)
	}

	put(3, "after", strings.Repeat("route ", 80))

	if found := find("route"); found != 2 || f.Size().Registrations != 2 {
		t.Errorf("%d are found after another became bad, %d are indexed", found, f.Size().Registrations)
	}
}
