package api

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/api/catalog"
	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/api/response"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/index"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/discovery"
)

// A partPolicy shows everybody a part of everything, but for its owner.
type partPolicy struct {
	houseRules
	now *atomic.Pointer[partRules]
}

type partRules struct {
	sight   directory.Redaction
	hidden  string // an agent that nobody sees
	changed chan struct{}
	version uint64
}

func newPartPolicy(sight directory.Redaction) partPolicy {
	p := partPolicy{now: new(atomic.Pointer[partRules])}
	p.now.Store(&partRules{sight: sight, changed: make(chan struct{})})

	return p
}

// set replaces what is shown.
func (p partPolicy) set(r partRules) {
	old := p.now.Load()
	r.changed, r.version = make(chan struct{}), old.version+1
	p.now.Store(&r)
	close(old.changed)
}

func (p partPolicy) Read(_ directory.Identity, e *directory.Entry) directory.Decision {
	r := p.now.Load()
	return directory.Decision{Allow: e.Agent != r.hidden, Redaction: r.sight}
}

func (p partPolicy) Generation() uint64       { return p.now.Load().version }
func (p partPolicy) Changed() <-chan struct{} { return p.now.Load().changed }

// A notary makes the records of what a view has, without signatures.
type notary struct {
	view *index.View
}

func (n notary) Record(_ context.Context, origin spiffeid.TrustDomain, rid directory.RID) (string, error) {
	e, _ := n.view.Get(origin, rid)
	c := &signed.Change{Issuer: origin, RID: rid, Op: signed.OpPut, Epoch: 1, Revision: e.Statement, IssuedAt: 1,
		Since: 1,
		Agent: e.Agent, Owner: e.Owner, Document: e.Document}
	ds := c.Disclosures()
	payload, err := signed.Statement(signed.StatementFormat, c, ds)

	r := signed.Record{JWS: "e30." + directory.B64.EncodeToString(payload) + ".AA"}
	for _, d := range ds {
		r.Disclosures = append(r.Disclosures, d.Text)
	}

	return r.String(), err
}

func (notary) Proof(context.Context, spiffeid.TrustDomain, directory.RID) ([]byte, error) {
	return []byte(`{"record":"e30.e30.AA~","page":"e30.e30.AA","keys":"e30.e30.AA","bundle":{"keys":[]}}`), nil
}

func (notary) Staple(spiffeid.TrustDomain, directory.RID) ([]byte, error) {
	return []byte(`{"record":"e30.e30.AA~","page":"e30.e30.AA","attestation":"e30.e30.AA"}`), nil
}

const (
	partADRID  = "01K0000000000000000000000A"
	partCuiRID = "01K0000000000000000000000B"
)

// partServer has two agents, of which nobody but their owner sees what says canary.
func partServer(t testing.TB, p partPolicy) *Server {
	t.Helper()

	return partServerWith(t, p, "canary", "/agent/ada", time.Now())
}

// partServerWith is partServer with another word to withhold, another owner, a time of
// registration, and more agents.
func partServerWith(t testing.TB, p partPolicy, word, owner string, at time.Time, more ...*directory.Entry) *Server {
	t.Helper()

	replaceWord := func(document string) string {
		return strings.ReplaceAll(strings.ReplaceAll(document, "canary", word), "x-"+word, "x-canary")
	}
	entries := []*directory.Entry{
		entry(t, alpha, partADRID, "planner", 5, replaceWord(
			`{"base":"https://plan.example/","description":"Plans a canary route.","x-canary":"canary",
			"capabilities":[{"name":"canary","type":"tool","tags":["canary"],"description":"canary"}],"tags":["travel"],"vendor":"Travelling"}`)),
		entryOf(t, directory.KindAIDIP, alpha, partCuiRID, "guide", 6, replaceWord(
			`{"id":"guide","name":"Travelling guide","version":"1","endpoint":"https://guide.example/","publisher":"canary",
			"description":"canary","capabilities":["canary"],"tags":["travel"],"inputs":{"type":"object"},"outputs":{"type":"object"}}`)),
	}

	entries = append(entries, more...)
	for _, e := range entries {
		e.Owner = directory.IdentityOf(spiffeid.RequireFromPath(alpha, owner))
		e.RegisteredAt, e.UpdatedAt, e.ExpiresAt = at.UnixMilli(), at.UnixMilli(), at.Add(24*time.Hour).UnixMilli()
	}

	return newTestServer(t, func(cfg *Config) {
		cfg.Policy, cfg.Records = p, notary{view: cfg.View}
		cfg.Invocable = func(*directory.Entry) bool { return true }

		finder, err := discovery.New(discovery.Config{View: cfg.View, Generation: p.Generation})
		must(t, err)

		t.Cleanup(finder.Close)
		cfg.Finder = finder
	}, entries...)
}

var noCanary = directory.Withhold("description", "x-canary", "capabilities", "publisher", directory.MemberRegistrant)

func textOf(t testing.TB, resp *http.Response) string {
	t.Helper()

	b, err := io.ReadAll(resp.Body)
	must(t, err)

	return string(b)
}

// Who sees a part of a registration gets no byte of the rest, by whatever way, and
// finds nothing by it; its owner sees all of it, with another validator.
//
// Requirement: AD-035, AD-043, AI-015, XU-020
func TestMembersAreWithheldEverywhere(t *testing.T) {
	s := partServer(t, newPartPolicy(noCanary))

	const reader, owner = "/client/reader", "/agent/ada"
	for _, path := range []string{
		"/ad/l", "/ad/l?tag=travel", "/ad/r/" + partADRID, "/ad/r/" + partCuiRID, "/ad/r/planner", "/agents",
		"/agents/guide", "/agents/planner",
		"/discovery/agents/planner", "/discovery/agents/guide", "/ad/r/" + partADRID + "/record",
		"/ad/r/" + partCuiRID + "/record", catalog.WebOfAgentsPath,
	} {
		for _, who := range []string{reader, ""} {
			resp := ask(t, s, who, "GET", path, "")

			body := textOf(t, resp)
			if resp.StatusCode != 200 || strings.Contains(body, "canary") || strings.Contains(body, "agent/ada") ||
				!strings.Contains(body, `"redacted":true`) && !strings.HasSuffix(path, "/record") &&
					path != catalog.WebOfAgentsPath {
				t.Errorf("%s as %q: %d %s", path, who, resp.StatusCode, body)
			}

			for _, d := range strings.Split(body, "~")[1:] {
				if text, _ := directory.B64.DecodeString(d); strings.Contains(string(text), "canary") ||
					strings.Contains(string(text), "ada") {
					t.Errorf("%s discloses %s", path, text)
				}
			}

			if path == catalog.WebOfAgentsPath {
				continue // is nobody's own
			}

			whole := ask(t, s, owner, "GET", path, "")
			if textOf(t, whole) == body || whole.Header.Get("ETag") == resp.Header.Get("ETag") {
				t.Errorf("%s: its owner sees the same, or with the same validator", path)
			}

			if resp := ask(t, s, who, "GET", path, "", "If-None-Match",
				whole.Header.Get("ETag")); resp.StatusCode != 200 {
				t.Errorf("%s: the owner's validator holds for %q: %d", path, who, resp.StatusCode)
			}
		}
	}

	for format, toOwner := range map[string]int{"": 200, "?format=staple": 200, "?format=tlog-proof": 503} {
		wantStatus(t, ask(t, s, reader, "GET", "/ad/r/"+partADRID+"/proof"+format, ""), 403)
		wantStatus(t, ask(t, s, owner, "GET", "/ad/r/"+partADRID+"/proof"+format, ""), toOwner)
	}

	wantStatus(t, ask(t, s, owner, "GET", "/ad/r/"+partADRID+"/proof?format=other", ""), 400)

	// The choice between the registrations of two domains shows no more of them.
	const twin = `{"base":"https://twin.example/","description":"canary"}`

	several := partServerWith(t, newPartPolicy(noCanary), "canary", owner, time.Now(),
		entry(t, beta, rid(1), "twin", 7, twin), entry(t, gamma, rid(2), "twin", 8, twin))

	choice := ask(t, several, reader, "GET", "/ad/r/twin", "")
	if body := textOf(t, choice); choice.StatusCode != 300 || strings.Contains(body, "canary") ||
		strings.Contains(body, "agent/ada") || !strings.Contains(body, `"redacted":true`) {
		t.Errorf("a name that two domains have: %d %s", choice.StatusCode, body)
	}

	for _, filter := range []string{"cap_name=canary", "cap_name=can*", "tag=canary", "cap_type=tool"} {
		if body := textOf(t, ask(t, s, reader, "GET", "/ad/l?"+filter, "")); strings.Contains(body, "planner") ||
			strings.Contains(body, "guide") {
			t.Errorf("%s finds %s", filter, body)
		}

		if body := textOf(t, ask(t, s, owner, "GET", "/ad/l?"+filter, "")); !strings.Contains(body, "planner") {
			t.Errorf("%s: its owner finds %s", filter, body)
		}
	}

	for _, q := range []struct {
		method, path, body string
		finds              bool
	}{
		{"GET", "/agents?capabilities=canary", "", false},
		{"POST", "/agents/search", `{"query":"canary"}`, false},
		{"POST", "/agents/search", `{"filters":{"capabilities":["canary"]}}`, false},
		{"POST", "/agents/search", `{"query":"travelling"}`, true},
		{"POST", "/agents/resolve", `{"intent":"canary"}`, false},
		{"POST", "/agents/resolve", `{"intent":"travelling","context":{"capabilities":["canary"]}}`, false},
		{"POST", "/agents/resolve", `{"intent":"travelling"}`, true},
		{"POST", "/discovery/query", `{"query":"canary","include_evidence":true}`, false},
		{"POST", "/discovery/query", `{"query":"travelling","required_tags":["canary"]}`, false},
		{"POST", "/discovery/query", `{"query":"travelling guide","detail":"full","include_evidence":true}`, true},
		{"POST", "/discovery/query", `{"query":"canary","explain":"planner"}`, false},
	} {
		body := textOf(t, ask(t, s, reader, q.method, q.path, q.body))
		if finds := strings.Contains(body, "planner") || strings.Contains(body, "guide"); finds != q.finds ||
			strings.Count(body, "canary") > strings.Count(q.body, "canary") || strings.Contains(body, "agent/ada") {
			t.Errorf("%s %s %s: %s", q.method, q.path, q.body, body)
		}

		if body := textOf(t, ask(t, s, owner, q.method, q.path, q.body)); !strings.Contains(body, "planner") &&
			!strings.Contains(body, "guide") {
			t.Errorf("%s %s %s: its owner finds %s", q.method, q.path, q.body, body)
		}
	}

	for tool, arguments := range map[string]string{
		"lookup_agents": `{}`, "get_agent": `{"agent":"planner"}`,
		"discover_agents": `{"query":"travelling","detail":"full"}`,
	} {
		r := use(t, s, reader, tool, arguments)
		if text := string(response.Encode(r)); strings.Contains(text, "canary") || !strings.Contains(text, "redacted") {
			t.Errorf("%s: %s", tool, text)
		}
	}
}

// Whoever sees a registration whole learns who registered it, except for callers without an identity.
//
// Requirement: SEC-008
func TestStrangersLearnNoRegistrant(t *testing.T) {
	s := partServer(t, newPartPolicy(directory.Redaction{}))

	for _, q := range []struct{ method, path, body string }{
		{"GET", "/ad/l", ""}, {"GET", "/ad/r/planner", ""}, {"GET", "/agents", ""}, {"GET", "/agents/planner", ""},
		{"GET", "/discovery/agents/planner", ""}, {"POST", "/agents/search", `{}`},
		{"POST", "/discovery/query", `{"query":"travelling"}`},
	} {
		for caller, learns := range map[string]bool{"": false, "/client/reader": true} {
			body := textOf(t, ask(t, s, caller, q.method, q.path, q.body))
			if !strings.Contains(body, "planner") || strings.Contains(body, "agent/ada") != learns {
				t.Errorf("%s %s by %q: %s", q.method, q.path, caller, body)
			}
		}
	}
}

// The identity to which a registration is offered sees all of it while it may accept: until the
// registration changes.
//
// Requirement: TRUST-008
func TestAnOfferShowsTheWhole(t *testing.T) {
	planner := entry(t, alpha, rid(1), "planner", 5, `{"base":"https://plan.example/","description":"canary"}`)

	for _, changed := range []bool{false, true} {
		s := newTestServer(t, func(cfg *Config) {
			cfg.Policy = newPartPolicy(noCanary)
			cfg.Registry = cutOff{offer: directory.Offer{
				RID: planner.RID, Owner: planner.Owner, To: identity("/agent/bob"), Changed: changed,
			}}
		}, planner)

		for caller, offered := range map[string]bool{"/agent/bob": true, "/agent/eve": false} {
			body := textOf(t, ask(t, s, caller, "GET", "/ad/r/planner", ""))
			if strings.Contains(body, "canary") != (offered && !changed) {
				t.Errorf("%s, of an offer to bob that has changed (%t), sees %s", caller, changed, body)
			}
		}
	}
}

// Two directories that differ in what a reader may not see give it the same answers, byte
// for byte: results, counts, excluded reasons, hints, refusals and validators, whatever it
// asks for. Each request is made with the withheld word and owner of either.
//
// Requirement: SEC-014
func TestWithheldValuesChangeNoAnswer(t *testing.T) {
	now := time.Now()
	one := partServerWith(t, newPartPolicy(noCanary), "canary", "/agent/ada", now)
	other := partServerWith(t, newPartPolicy(noCanary), "finch", "/agent/bob", now)

	type request struct{ method, path, body string }

	requests := []request{
		{"GET", catalog.WebOfAgentsPath, ""}, {"GET", "/ad/l?count=1", ""}, {"GET", "/ad/l?sort=agent", ""},
		{"GET", "/agents", ""},
	}
	for _, id := range []string{partADRID, partCuiRID, "planner", "guide", "plannr"} {
		for _, surface := range []string{"/ad/r/", "/agents/", "/discovery/agents/"} {
			requests = append(requests, request{"GET", surface + id, ""})
		}

		requests = append(requests, request{"GET", "/ad/r/" + id + "/proof", ""})
	}

	for _, word := range []string{"canary", "finch", "sparrow"} {
		requests = append(requests,
			request{"GET", "/ad/l?cap_name=" + word, ""}, request{"GET", "/ad/l?cap_name=" + word[:3] + "*", ""},
			request{"GET", "/ad/l?tag=" + word, ""}, request{"GET", "/ad/l?tag=travel&cap_name=" + word, ""},
			request{"GET", "/agents?capabilities=" + word, ""},
			request{"POST", "/agents/search", `{"query":"` + word + ` travelling"}`},
			request{"POST", "/agents/search", `{"filters":{"capabilities":["` + word + `"]}}`},
			request{"POST", "/agents/resolve", `{"intent":"travelling ` + word + `"}`},
			request{"POST", "/agents/resolve", `{"intent":"travelling","context":{"capabilities":["` + word + `"]}}`},
			request{"POST", "/agents/resolve", `{"intent":"travelling","policy":{"excluded_tags":["` + word + `"]}}`},
			request{"POST", "/discovery/query", `{"query":"` + word + `","include_evidence":true}`},
			request{"POST", "/discovery/query", `{"query":"travelling","required_tags":["` + word + `"]}`},
			request{"POST", "/discovery/query", `{"query":"travelling ` + word + `","explain":"planner"}`})
	}

	for _, owner := range []string{"ada", "bob", "eve"} {
		id := "spiffe://alpha.test/agent/" + owner
		requests = append(requests,
			request{"GET", "/ad/l?owner=" + id, ""}, request{"GET", "/ad/l?registrant=" + id, ""},
			request{"POST", "/agents/resolve", `{"intent":"travelling","policy":{"allowed_owners":["` + id + `"]}}`},
			request{"POST", "/discovery/query", `{"query":"travelling","constraints":{"owners":["` + id + `"]}}`})
	}

	for _, r := range requests {
		for _, who := range []string{"/client/reader", ""} {
			a, b := ask(t, one, who, r.method, r.path, r.body), ask(t, other, who, r.method, r.path, r.body)

			got, want := textOf(t, a), textOf(t, b)
			if a.StatusCode != b.StatusCode || stable(got) != stable(want) ||
				a.Header.Get("ETag") != b.Header.Get("ETag") {
				t.Errorf("%s %s %s as %q: %d\n%.2000s\nand\n%d\n%.2000s", r.method, r.path, r.body, who,
					a.StatusCode, got, b.StatusCode, want)
			}
		}
	}
}

// A name that looks like an earlier one is flagged on each surface for who sees the earlier one,
// and on none for others: they would find hidden names by trying lookalikes.
//
// Requirement: SEC-014, SEC-015
func TestALookalikeOfAHiddenNameIsNotFlagged(t *testing.T) {
	const lookalike = "pl\u0430nner" // with a Cyrillic letter

	p := newPartPolicy(directory.Redaction{})
	s := partServerWith(t, p, "canary", "/agent/ada", time.Now(),
		entry(t, alpha, "01K00000000000000000000009", lookalike, 4, `{"base":"https://first.example/"}`))

	for _, hidden := range []string{"", lookalike} {
		p.set(partRules{hidden: hidden})

		for _, q := range []struct{ method, path, body string }{
			{"GET", "/ad/l", ""}, {"GET", "/ad/r/" + partADRID, ""}, {"GET", "/ad/r/planner", ""},
			{"GET", "/agents", ""}, {"GET", "/agents/planner", ""}, {"GET", "/discovery/agents/planner", ""},
			{"POST", "/agents/search", `{"query":"travelling"}`},
			{"POST", "/agents/resolve", `{"intent":"travelling"}`},
			{"POST", "/discovery/query", `{"query":"travelling","detail":"full"}`},
			{"GET", catalog.WebOfAgentsPath, ""},
		} {
			body := textOf(t, ask(t, s, "/client/reader", q.method, q.path, q.body))
			if !strings.Contains(body, "planner") || strings.Contains(body, "confusable") != (hidden == "") {
				t.Errorf("%s %s with %q hidden: %s", q.method, q.path, hidden, body)
			}
		}

		for tool, arguments := range map[string]string{
			"lookup_agents": `{}`, "get_agent": `{"agent":"planner"}`,
			"discover_agents": `{"query":"travelling","detail":"full"}`,
		} {
			text := string(response.Encode(use(t, s, "/client/reader", tool, arguments)))
			if !strings.Contains(text, "planner") || strings.Contains(text, "confusable") != (hidden == "") {
				t.Errorf("%s with %q hidden: %s", tool, hidden, text)
			}
		}
	}

	p.set(partRules{})

	for _, path := range []string{"/ad/r/", "/ad/l?agent=", "/agents/", "/discovery/agents/"} {
		body := textOf(t, ask(t, s, "/client/reader", "GET", path+url.PathEscape(lookalike), ""))
		if !strings.Contains(body, `"flags":["mixed_script"]`) {
			t.Errorf("%s of a name in two scripts: %s", path, body)
		}
	}
}

// stable removes from an answer what differs from one request to the next: its identifiers
// and times.
func stable(text string) string {
	return regexp.MustCompile(`"(age_seconds|correlation_id|instance|query_id|request_id|took_ms|generated_at|at|as_of|`+
		`expires_at|registered_at|updated_at|refreshed_at|checked_at)":("[^"]*"|[0-9.]+)`).ReplaceAllString(text, "")
}

// A watch begins anew when policy decides anew what its caller sees: what is hidden
// is gone, and what is withheld is not told.
//
// Requirement: AD-035, TRUST-013
func TestWatchFollowsPolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPartPolicy(directory.Redaction{})
		s := partServer(t, p)
		client := inBubble(t, s)("/client/reader")
		w := watching(t, client, apiclient.LookupOptions{}, "")
		defer w.Close()
		wantTold(t, read(t, w, 4), "reset (new), added planner, added guide, current")
		p.set(partRules{sight: noCanary, hidden: "guide"})
		events := read(t, w, 3)
		wantTold(t, events, "reset (policy), added planner, current")

		if a := events[1].Item; a == nil || !a.Redacted || strings.Contains(string(response.Encode(a)), "canary") {
			t.Errorf("told: %+v", a)
		}

		last := events[2].ID
		p.set(partRules{hidden: "planner"}) // while nobody listens
		w.Close()
		again := watching(t, client, apiclient.LookupOptions{}, last)
		defer again.Close()
		wantTold(t, read(t, again, 3), "reset (lost), added guide, current")
	})
}

// A search by the owner finds nothing of an owner that is withheld: the answer would disclose it.
//
// Requirement: SEC-006
func TestAWithheldOwnerIsNotSearchedBy(t *testing.T) {
	for member, want := range map[string]int{"description": 1, directory.MemberRegistrant: 0} {
		s := newTestServer(t, func(cfg *Config) { cfg.Policy = newPartPolicy(directory.Withhold(member)) },
			entry(t, alpha, "01JWNTC0000000000000000AD1", "agent", 1, aDocument))

		resp := ask(t, s, "/agent/bob", "POST", "/agents/search",
			`{"filters":{"owner":"spiffe://alpha.test/agent/ada"}}`, "Content-Type", "application/json")

		body, err := io.ReadAll(resp.Body)
		if n := strings.Count(string(body), `"id"`); err != nil || resp.StatusCode != 200 || n != want {
			t.Errorf("with %s withheld: found %s, %v", member, body, err)
		}
	}
}

// gammaHidden are rules by which nobody reads what gamma has registered.
type gammaHidden struct{ houseRules }

func (gammaHidden) Read(_ directory.Identity, e *directory.Entry) directory.Decision {
	return directory.Decision{Allow: e.Origin != gamma}
}

// A name that several domains have is not ambiguous for a caller who may read one of them: otherwise the answer
// would tell that there are others.
func TestAHiddenNamesakeMakesNoNameAmbiguous(t *testing.T) {
	var twins []*directory.Entry
	for i, td := range []spiffeid.TrustDomain{beta, gamma} {
		twin := profileEntry(t, byte('A'+i), "twin", ``)
		twin.Origin = td
		twins = append(twins, twin)
	}

	for status, rules := range map[int]Policy{200: gammaHidden{}, 0: houseRules{}} {
		s := newTestServer(t, func(cfg *Config) { cfg.Policy = rules }, twins...)

		for _, of := range []struct{ method, target, body string }{
			{"GET", "/agents/twin", ""}, {"GET", "/ad/r/twin", ""}, {"GET", "/discovery/agents/twin", ""},
			{"POST", "/discovery/query", `{"query":"translates invoices","explain":"twin"}`},
		} {
			got := ask(t, s, "/agent/eve", of.method, of.target, of.body)
			if (got.StatusCode == 200) != (status == 200) {
				t.Errorf("%s %s: %d", of.method, of.target, got.StatusCode)
			}
		}
	}
}
