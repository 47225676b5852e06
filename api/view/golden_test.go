package view

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/directorytest"
	"github.com/roster-mesh/roster/directory/kinds"
	"github.com/roster-mesh/roster/discovery"
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
	directorytest.Must(t, err)

	var out map[string]golden
	directorytest.Must(t, json.Unmarshal(b, &out))

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
	directorytest.Must(t, err)

	e.Owner = owner
	at := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC).UnixMilli()
	e.Lifetime = uint32(g.Resource["lt"].(float64))
	e.RegisteredAt, e.UpdatedAt, e.ExpiresAt = at, at, at+1000*int64(e.Lifetime)

	return e
}

// same fails unless a body is the JSON of want.
func same(t *testing.T, what string, body []byte, want any) {
	t.Helper()

	var got any
	if err := json.Unmarshal(body, &got); err != nil {
		t.Fatalf("%s is %s: %v", what, body, err)
	}

	if !reflect.DeepEqual(got, want) {
		w, _ := json.Marshal(want, jsontext.Multiline(true), json.Deterministic(true))
		t.Errorf("%s is\n%s\nwant\n%s", what, body, w)
	}
}

// Requirement: AD-004, AD-016, AD-019, AD-031, AD-051, AD-054, AD-063, AI-001, AI-024, AI-029
// Requirement: WOA-001, WOA-002, WOA-017, WOA-022, XU-002, XU-004, XU-007, XU-014, XU-015, XU-026, XU-054
func TestViewsAreTheGoldens(t *testing.T) {
	for kind, g := range goldens(t) {
		t.Run(kind, func(t *testing.T) {
			e := g.entry(t)
			r := newTestRenderer()
			r.cfg.Invocable = func(*directory.Entry) bool { return true }
			opt := Options{Registrant: true}

			same(t, "the resource", r.AD().Append(nil, e, opt), g.Resource)
			same(t, "the item", r.AppendItem(nil, e, opt), g.Item)

			if g.Metadata == nil {
				return // the drafts' authors gave no golden of it
			}

			same(t, "AIDIP's metadata", r.AIDIP().Append(nil, e, opt), g.Metadata)
			same(t, "AIDIP's summary", r.AppendSummary(nil, e, opt, Match{}), g.Summary)
			same(t, "the Web of Agents'", r.AppendHosted(nil, e), g.Fronted)

			if g.Profile == nil {
				return
			}

			same(t, "the profile's metadata", r.Profile().Append(nil, e, opt), g.Profile)

			updated := time.UnixMilli(e.UpdatedAt).UTC().Format("2006-01-02T15:04:05.000Z")
			candidate := &discovery.Candidate{
				Entry: e, Score: .5, MatchedTags: []string{"a"},
				Freshness: discovery.Freshness{MetadataUpdatedAt: updated, IndexedAt: updated, AgeSeconds: 7},
			}
			g.Candidate["score"], g.Candidate["matched_tags"] = .5, []any{"a"}
			g.Candidate["freshness"].(map[string]any)["age_seconds"] = 7.
			ask := &discovery.Request{
				Detail: discovery.DetailSummary, Constraints: discovery.Constraints{MaxAge: -1},
			}
			same(t, "the candidate", r.AppendCandidate(nil, candidate, ask, opt), g.Candidate)
		})
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
	b, err := os.ReadFile("../../../shared/spec/views.json")
	if errors.Is(err, os.ErrNotExist) {
		t.Skip("beside the project there is no specification")
	}

	directorytest.Must(t, err)

	var spec, have map[string]map[string]any
	directorytest.Must(t, json.Unmarshal(b, &spec))

	if b, err = os.ReadFile("testdata/views.json"); err != nil {
		t.Fatal(err)
	}

	directorytest.Must(t, json.Unmarshal(b, &have))

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

			if !reflect.DeepEqual(ours, want) {
				t.Errorf("%s.%s is %v, want %v", kind, member, ours, want)
			}
		}
	}
}

var updateShapes = flag.Bool("update", false, "write testdata/shapes.txt anew")

// richDocuments have each member that a surface shows, and endpoints with a secret in them.
var richDocuments = map[directory.Kind]string{
	directory.KindAD: `{"base":"https://agents.example.com/one","name":"One","description":"Translates.",` +
		`"status":"deprecated",` +
		`"protocols":["mcp","a2a"],"version":"2","vendor":"V","supported_languages":["de"],` +
		`"authentication":{"type":"mtls"},"constraints":{"region":"eu"},"agent":"other","notes":{"":1},` +
		`"capabilities":[{"name":"translate","type":"tool","description":"D","tags":["t"],` +
		`"input_schema":{"type":"string"},"output_schema":{"type":"number"}},{"name":"sum","type":"skill"}]}`,
	directory.KindAIDIP: `{"id":"one","name":"One","description":"Translates.","version":"2","publisher":"P",` +
		`"capabilities":["translation"],"tags":["nlp"],"endpoint":"https://agents.example.com/one?key=1",` +
		`"status":"active","inputs":{"type":"string"},"outputs":{}}`,
	directory.KindProfile: `{"id":"one","name":"One","description":"Translates.","tags":["nlp","sum"],` +
		`"examples":[{"id":"e","text":"Sum up.","language":"de","tags":["sum"],"input_schema":{},"output_schema":{}},` +
		`{"text":"Sum."}],` +
		`"bindings":[{"protocol":"mcp","endpoint":"https://agents.example.com/one?key=1"},` +
		`{"protocol":"https","endpoint":"https://agents.example.com/two","media_types":["application/json"],` +
		`"interaction_model":"request-response","transport":"h2","envelope":"json"}],` +
		`"auth":{"type":"mtls"},"constraints":{"region":"eu"},"supported_languages":["de"],"version":"2",` +
		`"expires_at":"2030-01-01T00:00:00Z","updated_at":"2020-01-01T00:00:00Z"}`,
	directory.KindWoA: `{"woa_version":"1","agents":[{"id":"one","name":"One","description":"Translates.",` +
		`"inputs":{"type":"string"},"outputs":{"type":"number"},"transports":["rest"],` +
		`"operations":[{"name":"translate","description":"T"},{"name":"sum","description":"S"}]}],` +
		`"transports":{"rest":{"base":"https://agents.example.com","invoke_path":"/{agent_id}"}}}`,
}

// Every surface shows each member of a document and each mark of a copy, at each level of detail: testdata/shapes.txt
// has one line for each. A copy's deadline is the one until which it is shown here, which the import policy may have
// brought forward from the lifetime that its origin granted.
//
// Requirement: AD-004, AD-016, AD-044, XU-024, XU-058, SEC-019, MESH-022
func TestEverySurfaceShowsAllOfARegistration(t *testing.T) {
	r := newTestRenderer()
	r.cfg.Service = func(spiffeid.TrustDomain) string { return "https://ad.beta.test" }
	r.cfg.Invocable = func(e *directory.Entry) bool { return e.Origin == alpha }
	frozen := spiffeid.RequireTrustDomainFromString("frozen.test")
	r.cfg.Frozen = func() []spiffeid.TrustDomain { return []spiffeid.TrustDomain{frozen} }
	r.cfg.Probed = func(e *directory.Entry) (directory.Probe, bool) {
		switch {
		case e.Document.Kind() == directory.KindAD:
			return directory.Probe{State: directory.ProbeMismatch, Members: []string{"name"}, At: 1000}, true
		case e.Document.Kind() == directory.KindWoA:
			return directory.Probe{State: directory.ProbeUnreachable, Reason: "network", At: 1000}, true
		}

		return directory.Probe{}, false
	}
	r.cfg.Logged = func(e *directory.Entry) (directory.Inclusion, bool) {
		switch e.Document.Kind() {
		case directory.KindAD:
			return directory.Inclusion{Log: "beta.test/log", Index: 7, At: 2,
				Witnesses: &directory.Witnesses{{Name: "w1", At: 3}, {Name: "w2", At: 4}}}, true
		case directory.KindProfile:
			return directory.Inclusion{Log: "beta.test/log", Index: 8, At: 2}, true
		}

		return directory.Inclusion{Unconfirmed: true}, false
	}

	var out bytes.Buffer

	for _, x := range []struct {
		kind   directory.Kind
		origin spiffeid.TrustDomain
	}{
		{directory.KindAD, alpha}, {directory.KindAIDIP, alpha}, {directory.KindProfile, alpha},
		{directory.KindWoA, alpha}, {directory.KindAD, beta}, {directory.KindProfile, beta},
		{directory.KindAIDIP, frozen},
	} {
		e := entryOf(t, x.kind, x.origin, "01JWNTC0000000000000000AD1", "one", 17, richDocuments[x.kind])
		e.ExpiresAt = 3600_000 // less than the lifetime

		switch x.origin {
		case alpha:
			e.Visibility = directory.Visibility{}
			e.Unconfirmed = x.kind == directory.KindAD
		case frozen:
			e.Confusable = true
			e = kinds.Redact(e, directory.Withhold("authentication", directory.MemberRegistrant))
		}

		writeShapes(&out, r, e)
	}

	directorytest.Golden(t, *updateShapes, "shapes.txt", out.Bytes())
}

// writeShapes writes a line for each way in which an entry is shown. Its provenance is written once.
func writeShapes(out *bytes.Buffer, r *Renderer, e *directory.Entry) {
	full, strangers, brief := Options{Registrant: true}, Options{}, Options{Registrant: true, Brief: true}
	timeless := Options{Timeless: true}

	var once []string

	write := func(surface string, body []byte) {
		text := strings.NewReplacer(once...).Replace(string(body))
		fmt.Fprintf(out, "%s of %s, %s: %s\n", e.Document.Kind(), e.Origin, surface, text)
	}

	for _, shown := range []struct {
		to  string
		opt Options
	}{{"identities", full}, {"strangers", strangers}, {"brief", brief}, {"timeless", timeless}} {
		provenance := r.appendProvenance(nil, e, shown.opt)
		write("provenance, "+shown.to, provenance)
		once = append(once, string(provenance), "<"+shown.to+">")
	}

	candidate := &discovery.Candidate{
		Entry: e, Score: .5, Flags: 1, MatchedTags: []string{"nlp"},
		MatchedExamples: []discovery.MatchedExample{{ID: "e", Score: .5, Text: "Sum up."}},
		Freshness:       discovery.Freshness{MetadataUpdatedAt: "then", IndexedAt: "now", AgeSeconds: 7, Stale: true},
		Evidence: &discovery.Evidence{
			Terms: []discovery.TermEvidence{{Text: "sum", Fields: map[string]float64{"name": 1, "examples": 1}}},
		},
	}

	write("ad", r.AD().Append(nil, e, full))
	write("ad, to strangers", r.AD().Append(nil, e, strangers))
	write("item", r.AppendItem(nil, e, full))
	write("item, brief", r.AppendItem(nil, e, brief))
	write("aidip", r.AIDIP().Append(nil, e, full))
	write("aidip, of a list", r.AppendSummaries(nil, []*directory.Entry{e}, full, Match{}))
	write("aidip, of a search", r.AppendSummary(nil, e, full, Match{Score: .5, Ranked: true, Language: true}))
	write("aidip, resolved", r.AppendResolved(nil, candidate, []string{"a2a", "https"}, true))
	write("aidip, resolved to any", r.AppendResolved(nil, &discovery.Candidate{Entry: e}, nil, false))
	write("profile", r.Profile().Append(nil, e, full))
	write("woa", r.AppendHosted(nil, e))

	for _, ask := range []discovery.Request{
		{Detail: discovery.DetailMinimal, Protocols: []string{"https"}, Constraints: discovery.Constraints{MaxAge: -1}},
		{Detail: discovery.DetailMinimal, IncludeEvidence: true, Constraints: discovery.Constraints{MaxAge: -1}},
		{Detail: discovery.DetailSummary},
		{Detail: discovery.DetailFull},
	} {
		write(fmt.Sprintf("candidate, %s, evidence %t", ask.Detail, ask.IncludeEvidence),
			r.AppendCandidate(nil, candidate, &ask, full))
	}
}
