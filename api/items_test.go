package api

import (
	"fmt"
	"strings"
	"testing"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
)

// An item that is kept is what it would be if it were written now: for each kind of
// reader, after a refresh, after the origin has another service, after the agent was
// asked, and where items share a place.
func TestKeptItemsAreAsIfWrittenNow(t *testing.T) {
	service, probe := "https://one.beta.test", directory.Probe{}
	s := newTestServer(t, func(cfg *Config) {
		cfg.Probed = func(*directory.Entry) (directory.Probe, bool) { return probe, probe.State != "" }
		cfg.Service = func(spiffeid.TrustDomain) string { return service }
	})
	var entries []*directory.Entry
	for i := range 300 {
		origin := alpha
		if i%3 == 0 {
			origin = beta
		}
		e := entry(t, origin, fmt.Sprintf("01JWNTC00000000000%08d", i), fmt.Sprint("agent-", i), uint64(i+1), aDocument)
		e.Redacted = i%5 == 0
		entries = append(entries, e)
	}
	check := func(when string) {
		t.Helper()
		for range 2 {
			for _, e := range entries {
				for _, l := range []look{{}, {registrant: true}, {brief: true}, {registrant: true, brief: true}} {
					if got, want := s.item(e, l).text, s.appendItem(nil, e, l); string(got) != string(want) {
						t.Fatalf("%s, to %+v: kept %s, want %s", when, l, got, want)
					}
				}
			}
		}
	}
	check("at first")
	service = "https://two.beta.test"
	check("with another service")
	for _, probe = range []directory.Probe{
		{State: directory.ProbeVerified, At: 1000},
		{State: directory.ProbeVerified, At: 2000},
		{State: directory.ProbeMismatch, Members: []string{"base"}, At: 2000},
		{State: directory.ProbeMismatch, Members: []string{"name"}, At: 2000},
		{State: directory.ProbeUnreachable, Reason: "network", At: 3000},
		{State: directory.ProbeUnreachable, Reason: "time", At: 3000},
		{},
	} {
		check(fmt.Sprintf("asked: %+v", probe))
	}
	for i, e := range entries {
		refreshed := *e
		refreshed.ExpiresAt += int64(i)
		refreshed.Revision++
		entries[i] = &refreshed
	}
	check("refreshed")
}

// What is kept keeps its entry, which may be of a registration that is no more: so
// nothing of a large document is kept.
func TestNoItemOfALargeDocumentIsKept(t *testing.T) {
	s := newTestServer(t, nil)
	for size, want := range map[int]bool{10: true, directory.MaxDocument - 1000: false} {
		doc := strings.Replace(aDocument, "{", `{"notes":"`+strings.Repeat("x", size)+`",`, 1)
		e := entry(t, alpha, "01JWNTC0000000000000000001", "agent", 1, doc)
		if len(s.item(e, look{}).text) >= directory.MaxDocument/2 {
			t.Fatal("an item has all of its document")
		}
		if kept := s.items[placeOf(e, look{})].Load(); (kept != nil && kept.entry == e) != want {
			t.Errorf("of a document of %d bytes: kept %v", len(e.Document.Bytes()), kept != nil)
		}
	}
}
