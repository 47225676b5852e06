package view

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/contain"
	"github.com/roster-mesh/roster/directory/directorytest"
)

var (
	alpha = spiffeid.RequireTrustDomainFromString("alpha.test")
	beta  = spiffeid.RequireTrustDomainFromString("beta.test")
)

const aDocument = `{"base":"https://agents.example.com/one","protocols":["mcp"]}`

func newTestRenderer() *Renderer {
	return NewRenderer(Config{
		Domain: alpha, PublicURL: "https://ad.alpha.test:8400",
		Service:           func(spiffeid.TrustDomain) string { return "" },
		Frozen:            func() []spiffeid.TrustDomain { return nil },
		DefaultVisibility: func() directory.Visibility { return directory.Visibility{Mesh: true} },
	})
}

// entry makes a living registration of kind ad.
func entry(t testing.TB, origin spiffeid.TrustDomain, rid, agent string, revision uint64, doc string) *directory.Entry {
	t.Helper()
	return entryOf(t, directory.KindAD, origin, rid, agent, revision, doc)
}

func entryOf(t testing.TB, kind directory.Kind, origin spiffeid.TrustDomain, rid, agent string, revision uint64,
	doc string) *directory.Entry {
	t.Helper()

	d := directorytest.Document(t, kind, doc)
	p := directorytest.Project(t, agent, d)

	id, err := directory.ParseRID(rid)
	directorytest.Must(t, err)

	e := &directory.Entry{
		Origin: origin, RID: id, Agent: agent,
		Owner:    directory.IdentityOf(spiffeid.RequireFromPath(alpha, "/agent/ada")),
		Document: d, Packed: directory.Pack(d, p), Visibility: directory.Visibility{Mesh: true}, Lifetime: 86400,
		RegisteredAt: 1, UpdatedAt: 1, ExpiresAt: 86400_001, Created: revision, Revision: revision, Statement: revision,
	}
	if origin != alpha {
		e.Visibility, e.Created = directory.Visibility{}, 0
		e.Received = &directory.Received{At: 1, From: beta, Key: "kid", CheckedAt: 1}
	}

	return e
}

// An item that is kept is what it would be if it were written now: for each kind of
// reader, after a refresh, after the origin has another service, after the agent was
// asked, and where items share a place.
func TestKeptItemsAreAsIfWrittenNow(t *testing.T) {
	service, probe, visibility := "https://one.beta.test", directory.Probe{}, directory.Visibility{Mesh: true}
	r := newTestRenderer()
	r.cfg.DefaultVisibility = func() directory.Visibility { return visibility }
	r.cfg.Probed = func(*directory.Entry) (directory.Probe, bool) { return probe, probe.State != "" }
	r.cfg.Service = func(spiffeid.TrustDomain) string { return service }

	var (
		frozen []spiffeid.TrustDomain
		logged directory.Inclusion
	)

	r.cfg.Frozen = func() []spiffeid.TrustDomain { return frozen }
	r.cfg.Logged = func(*directory.Entry) (directory.Inclusion, bool) { return logged, logged.Log != "" }

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
				for _, l := range []Options{{}, {Registrant: true}, {Brief: true}, {Registrant: true, Brief: true}} {
					if got, want := r.item(e, l).text, r.AppendItem(nil, e, l); string(got) != string(want) {
						t.Fatalf("%s, to %+v: kept %s, want %s", when, l, got, want)
					}
				}
			}
		}
	}
	check("at first")
	service = "https://two.beta.test"
	check("with another service")

	visibility = directory.Visibility{}

	check("with another default of visibility")

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

	frozen = []spiffeid.TrustDomain{beta}

	check("disputed")

	for _, logged = range []directory.Inclusion{{Unconfirmed: true}, {Log: "l", Index: 1}, {Log: "l", Index: 2}} {
		check(fmt.Sprintf("in the ledger: %+v", logged))
	}

	for i, e := range entries {
		marked := *e
		marked.Confusable = true

		if got := r.item(&marked, Options{}).text; !strings.Contains(string(got), `"confusable"`) {
			t.Fatalf("one reader's mark is missing in %s", got)
		}

		refreshed := *e
		refreshed.ExpiresAt += int64(i)
		refreshed.Revision++
		entries[i] = &refreshed
	}

	check("refreshed")
}

// An entry that makes this program panic is left out of a list, which has the others.
//
// Requirement: FORM-006
func TestAListLeavesOutAnEntryThatPanics(t *testing.T) {
	gamma := spiffeid.RequireTrustDomainFromString("gamma.test")
	r := newTestRenderer()
	r.cfg.Panics = contain.New(slog.New(slog.DiscardHandler))
	r.cfg.Service = func(td spiffeid.TrustDomain) string {
		if td == gamma {
			panic("a mistake that one entry finds")
		}

		return ""
	}

	var entries []*directory.Entry
	for i, origin := range []spiffeid.TrustDomain{alpha, gamma, beta} {
		entries = append(entries, entry(t, origin, fmt.Sprintf("01JWNTC000000000000000000%d", i), "a", 1, aDocument))
	}

	list, hash := r.AppendItems(nil, entries, Options{})
	want, wantHash := r.AppendItems(nil, []*directory.Entry{entries[0], entries[2]}, Options{})

	if string(list) != string(want) || hash != wantHash || bytes.Count(list, []byte(`"href"`)) != 2 ||
		r.cfg.Panics.Count(contain.Listing) != 1 {
		t.Errorf("%d panics, shown is %s", r.cfg.Panics.Count(contain.Listing), list)
	}

	if _, one := r.AppendItems(nil, entries[:1], Options{}); one == hash {
		t.Error("a shorter list has the same hash")
	}
}

// What is kept keeps its entry, which may be of a registration that is no more: so
// nothing of a large document is kept.
func TestNoItemOfALargeDocumentIsKept(t *testing.T) {
	r := newTestRenderer()
	for size, want := range map[int]bool{10: true, directory.MaxDocument - 1000: false} {
		doc := strings.Replace(aDocument, "{", `{"notes":"`+strings.Repeat("x", size)+`",`, 1)

		e := entry(t, alpha, "01JWNTC0000000000000000001", "agent", 1, doc)
		if len(r.item(e, Options{}).text) >= directory.MaxDocument/2 {
			t.Fatal("an item has all of its document")
		}

		if kept := r.items[placeOf(e, Options{})].Load(); (kept != nil && kept.entry == e) != want {
			t.Errorf("of a document of %d bytes: kept %v", len(e.Document.Bytes()), kept != nil)
		}
	}
}
