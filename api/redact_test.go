package api

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

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

const (
	partADRID  = "01K0000000000000000000000A"
	partCuiRID = "01K0000000000000000000000B"
)

// partServer has two agents, of which nobody but their owner sees what says canary.
func partServer(t testing.TB, p partPolicy) *Server {
	t.Helper()

	return newTestServer(t, func(cfg *Config) {
		cfg.Policy, cfg.Records = p, notary{view: cfg.View}
		cfg.Invocable = func(*directory.Entry) bool { return true }

		finder, err := discovery.New(discovery.Config{View: cfg.View, Generation: p.Generation})
		if err != nil {
			t.Fatal(err)
		}

		t.Cleanup(finder.Close)
		cfg.Finder = finder
	},
		entry(t, alpha, partADRID, "planner", 5,
			`{"base":"https://plan.example/","description":"Plans a canary route.","x-canary":"canary",
			"capabilities":[{"name":"canary","type":"tool","tags":["canary"],"description":"canary"}],"tags":["travel"],"vendor":"Travelling"}`),
		entryOf(t, directory.KindAIDIP, alpha, partCuiRID, "guide", 6,
			`{"id":"guide","name":"Travelling guide","version":"1","endpoint":"https://guide.example/","publisher":"canary",
			"description":"canary","capabilities":["canary"],"tags":["travel"],"inputs":{"type":"object"},"outputs":{"type":"object"}}`))
}

var noCanary = directory.Withhold("description", "x-canary", "capabilities", "publisher", directory.MemberRegistrant)

func textOf(t testing.TB, resp *http.Response) string {
	t.Helper()

	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}

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

	wantStatus(t, ask(t, s, reader, "GET", "/ad/r/"+partADRID+"/proof", ""), 403)
	wantStatus(t, ask(t, s, owner, "GET", "/ad/r/"+partADRID+"/proof", ""), 200)

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
