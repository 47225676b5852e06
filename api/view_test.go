package api

import (
	"bytes"
	"errors"
	"os"
	"reflect"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/roster-mesh/roster/api/view"
	"github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/directory"
)

// A golden is one registration and how the goldenSurfaces show it (spec/views.json, and
// for mcp and oasf our own).
type golden struct {
	Kind     directory.Kind `json:"-"`
	RID      string         `json:"rid"`
	Revision uint64         `json:"revision"`
	Owner    string         `json:"owner"`
	Agent    string         `json:"agent"`
	Document jsontext.Value `json:"document"`
	Resource map[string]any `json:"resource"`
	Item     map[string]any `json:"item"`
	// How AIDIP's shows it, in full and in lists.
	Metadata map[string]any `json:"agent_metadata"`
	Summary  map[string]any `json:"agent_summary"`
	// How the discovery profile's shows it, and as a candidate.
	Profile   map[string]any `json:"profile_metadata"`
	Candidate map[string]any `json:"candidate"`
	// How the Web of Agents document lists it where the gateway fronts it.
	Fronted map[string]any `json:"fronted"`
}

func goldens(t *testing.T) map[string]golden {
	t.Helper()

	b, err := os.ReadFile("testdata/views.json")
	must(t, err)

	var out map[string]golden
	must(t, json.Unmarshal(b, &out))

	for kind, g := range out {
		g.Kind = directory.Kind(kind)
		out[kind] = g
	}

	return out
}

func (g golden) entry(t *testing.T) *directory.Entry {
	t.Helper()
	e := entryOf(t, g.Kind, alpha, g.RID, g.Agent, g.Revision, string(g.Document))

	owner, err := directory.ParseIdentity(g.Owner)
	must(t, err)

	e.Owner = owner
	at := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC).UnixMilli()
	e.Lifetime = uint32(g.Resource["lt"].(float64))
	e.RegisteredAt, e.UpdatedAt, e.ExpiresAt = at, at, at+1000*int64(e.Lifetime)

	return e
}

func parse(t *testing.T, b []byte) map[string]any {
	t.Helper()

	var v map[string]any
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatalf("%s: %v", b, err)
	}

	return v
}

func same(t *testing.T, what string, got, want any) {
	t.Helper()

	if !reflect.DeepEqual(got, want) {
		g, _ := json.Marshal(got, jsontext.Multiline(true), json.Deterministic(true))
		w, _ := json.Marshal(want, jsontext.Multiline(true), json.Deterministic(true))
		t.Errorf("%s is\n%s\nwant\n%s", what, g, w)
	}
}

// Requirement: AD-004, AD-016, AD-019, AD-031, AD-051, AD-054, AD-063, AI-001, AI-024, AI-029,
// WOA-001, WOA-002, WOA-017, WOA-022
func TestViewsAreTheGoldens(t *testing.T) {
	for kind, g := range goldens(t) {
		t.Run(kind, func(t *testing.T) {
			e := g.entry(t)
			s := newTestServer(t, func(cfg *Config) { cfg.Invocable = func(*directory.Entry) bool { return true } }, e)
			l := view.Options{Registrant: true}
			same(t, "the resource", parse(t, render(s).AD().Append(nil, e, l)), g.Resource)
			same(t, "the item", parse(t, render(s).AppendItem(nil, e, l)), g.Item)

			if g.Metadata == nil {
				return // the drafts' authors gave no golden of it
			}

			same(t, "AIDIP's metadata", parse(t, render(s).AIDIP().Append(nil, e, l)), g.Metadata)
			same(t, "AIDIP's summary", parse(t, render(s).AppendSummary(nil, e, l, view.Match{})), g.Summary)
			same(t, "the Web of Agents'", parse(t, render(s).AppendHosted(nil, e)), g.Fronted)
		})
	}
}

// A foreign registration is shown with this node's mirror of it, and with where
// it came from (spec: "A federated copy").
func TestFederatedCopy(t *testing.T) {
	e := entry(t, beta, "01JWNTC0000000000000000AD1", "foreign", 17, aDocument)
	e.Owner, e.Redacted = directory.Identity{}, true
	at := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC).UnixMilli()
	e.RegisteredAt, e.UpdatedAt, e.ExpiresAt = at, at, at+86400_000
	e.Received = &directory.Received{At: at + 1, From: gamma, Key: "kid", CheckedAt: at + 2}
	s := newTestServer(t, nil, e)
	want := parse(t, []byte(`{
		"agent": "foreign", "base": "https://agents.example.com/one", "protocols": ["mcp"], "capabilities": [],
		"href": "/ad/r/beta.test/01JWNTC0000000000000000AD1",
		"redacted": true,
		"provenance": {
			"origin_authority": "beta.test",
			"origin_service": "https://ad.beta.test:8401",
			"origin_href": "https://ad.beta.test:8401/ad/r/01JWNTC0000000000000000AD1",
			"origin_signature": "/ad/r/beta.test/01JWNTC0000000000000000AD1/record",
			"revision": 17,
			"registered_at": "2026-06-01T12:00:00.000Z",
			"updated_at": "2026-06-01T12:00:00.000Z",
			"expires_at": "2026-06-02T12:00:00.000Z",
			"received_at": "2026-06-01T12:00:00.001Z",
			"received_from": "gamma.test",
			"verification": {"state": "verified", "key": "kid", "logged": false,
				"witnessed": false,
				"checked_at": "2026-06-01T12:00:00.002Z"}
		}
	}`))
	same(t, "the item", parse(t, render(s).AppendItem(nil, e, view.Options{Registrant: true})), want)

	brief := parse(t, render(s).AppendItem(nil, e, view.Options{Registrant: true, Brief: true}))["provenance"]
	same(t, "brief provenance", brief, parse(t, []byte(`{"origin_authority": "beta.test", "revision": 17,
		"expires_at": "2026-06-02T12:00:00.000Z", "verification": {"state": "verified"}}`)))
}

// A registration that only one node of its origin announces is shown as unconfirmed on every surface with provenance,
// and no longer once another one does.
//
// Requirement: SEC-019
func TestAnUnconfirmedAnnouncementIsShown(t *testing.T) {
	e := entry(t, beta, "01JWNTC0000000000000000AD1", "foreign", 17, aDocument)
	e.Received = &directory.Received{At: 1, From: beta, Key: "kid", CheckedAt: 2}

	var at directory.Inclusion

	s := newTestServer(t, func(cfg *Config) {
		cfg.Logged = func(*directory.Entry) (directory.Inclusion, bool) { return at, false }
	}, e)

	for _, at.Unconfirmed = range []bool{true, false, true} {
		list, _ := render(s).AppendItems(nil, []*directory.Entry{e}, view.Options{})

		for surface, b := range map[string][]byte{
			"the resource": render(s).AD().Append(nil, e, view.Options{}),
			"the item":     render(s).AppendItem(nil, e, view.Options{}),
			"brief":        render(s).AppendItem(nil, e, view.Options{Brief: true}),
			"a list":       list,
		} {
			if shown := bytes.Contains(b, []byte(`"unconfirmed":true`)); shown != at.Unconfirmed {
				t.Errorf("%s, unconfirmed %t: %s", surface, at.Unconfirmed, b)
			}
		}
	}
}

// What an agent said of itself is shown with its registration on every surface, and
// in short where provenance is.
//
// Requirement: AD-044
func TestWhatAnAgentSaysIsShown(t *testing.T) {
	e := entry(t, alpha, "01JWNTC0000000000000000AD1", "asked", 17, aDocument)
	at := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC).UnixMilli()
	result := directory.Probe{State: directory.ProbeMismatch, Members: []string{"name", "schemas"}, At: at}
	s := newTestServer(t, func(cfg *Config) {
		cfg.Probed = func(asked *directory.Entry) (directory.Probe, bool) { return result, asked == e }
	}, e)
	probe := func(b []byte) any {
		t.Helper()
		return parse(t, b)["provenance"].(map[string]any)["verification"].(map[string]any)["probe"]
	}

	want := parse(t,
		[]byte(`{"state": "mismatch", "members": ["name", "schemas"], "checked_at": "2026-06-01T12:00:00.000Z"}`))
	for surface, b := range map[string][]byte{
		"the resource": render(s).AD().Append(nil, e, view.Options{}),
		"the item":     render(s).AppendItem(nil, e, view.Options{}),
		"AIDIP":        render(s).AIDIP().Append(nil, e, view.Options{}),
		"AIDIP's list": render(s).AppendSummary(nil, e, view.Options{}, view.Match{}),
		"the profile":  render(s).Profile().Append(nil, e, view.Options{}),
	} {
		same(t, surface, probe(b), want)
	}

	same(t, "in short", probe(render(s).AppendItem(nil, e, view.Options{Brief: true})),
		parse(t, []byte(`{"state": "mismatch"}`)))
	same(t, "the Web of Agents'", probe(render(s).AppendHosted(nil, e)),
		parse(t, []byte(`{"state": "mismatch", "members": ["name", "schemas"]}`)))
	result = directory.Probe{State: directory.ProbeUnreachable, Reason: "network", At: at}
	same(t, "unreachable", probe(render(s).AppendItem(nil, e, view.Options{})),
		parse(t, []byte(`{"state": "unreachable", "reason": "network", "checked_at": "2026-06-01T12:00:00.000Z"}`)))
}

// The visibility is in the header, and in the body if it is not policy's default, at home, for
// each caller with an identity.
func TestVisibilityIsShown(t *testing.T) {
	for _, c := range []struct {
		visibility directory.Visibility
		header     string
		body       any
	}{
		{directory.Visibility{}, "domain", "domain"},
		{directory.Visibility{Mesh: true}, "mesh", nil},
	} {
		e := entry(t, alpha, "01JWNTC0000000000000000AD1", "shy", 17, aDocument)
		e.Visibility = c.visibility
		s := newTestServer(t, nil, e)

		for caller, want := range map[string]struct {
			header string
			body   any
		}{"/agent/bob": {c.header, c.body}, "": {}} {
			answer := ask(t, s, caller, "GET", "/ad/r/"+e.RID.String(), "")
			if got := answer.Header.Get(wire.HeaderVisibility); got != want.header {
				t.Errorf("to %q the header is %q, want %q", caller, got, want.header)
			}

			body := wantStatus(t, answer, 200)
			if got := body["provenance"].(map[string]any)["visibility"]; got != want.body {
				t.Errorf("to %q the body has %v, want %v", caller, got, want.body)
			}
		}
	}
}

// goldenSurfaces are what the goldens of the specification call what ours have.
var goldenSurfaces = map[string]string{
	"resource": "ad", "item": "adl", "agent_metadata": "cui", "agent_summary": "cuisum", "profile_metadata": "xu",
	"candidate": "cand", "fronted": "woa",
}

// The goldens here are those of the specification. They are read from beside the
// project; the test is skipped where that is absent.
func TestTheGoldensAreTheSpecifications(t *testing.T) {
	b, err := os.ReadFile("../../shared/spec/views.json")
	if errors.Is(err, os.ErrNotExist) {
		t.Skip("beside the project there is no specification")
	}

	must(t, err)

	var spec, have map[string]map[string]any
	must(t, json.Unmarshal(b, &spec))

	if b, err = os.ReadFile("testdata/views.json"); err != nil {
		t.Fatal(err)
	}

	must(t, json.Unmarshal(b, &have))

	for kind := range spec {
		for member, surface := range goldenSurfaces {
			want := spec[kind][surface].(map[string]any)
			ours := have[kind][member].(map[string]any)

			if kind == "ad" || kind == "a2a" { // were made before the gateway spoke A2A (decision 16)
				delete(ours, "gateway")
			}

			if member == "agent_summary" || member == "candidate" { // which have claimed names alone there
				delete(ours, "agent")
			}

			same(t, kind+"."+member, ours, want)
		}
	}
}

// render is what shows a server's registrations.
func render(s *Server) *view.Renderer { return s.surfaces.ad.Reader.Render }
