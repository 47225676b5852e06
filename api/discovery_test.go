package api

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/roster-mesh/roster/api/view"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/kinds"
	"github.com/roster-mesh/roster/discovery"
)

// minimal is the metadata of xu 13.1.
const minimal = `{
  "id": "https://example.net/agents/minimal",
  "name": "Minimal Agent",
  "description": "Answers short factual questions.",
  "bindings": [{"protocol": "https", "endpoint": "https://example.net/agent/invoke"}]
}`

// profileEntry is a registration of kind profile.
func profileEntry(t testing.TB, n byte, id, members string) *directory.Entry {
	t.Helper()

	doc := fmt.Sprintf(`{"id":%q,"name":"Agent %s","bindings":[{"protocol":"https",`+
		`"endpoint":"https://example.net/%s?key=secret"}]%s}`, id, id, id, members)
	if !strings.Contains(members, `"description"`) {
		doc = strings.Replace(doc, `"bindings"`, `"description":"Translates invoices.","bindings"`, 1)
	}

	return entryOf(t, directory.KindProfile, alpha, fmt.Sprintf("01JWNTC000000000000000000%c", n), id, uint64(n), doc)
}

// found asks and returns the ids of the candidates, and the whole body.
func found(t testing.TB, s *Server, caller, request string) ([]string, map[string]any) {
	t.Helper()
	body := wantStatus(t, ask(t, s, caller, "POST", "/discovery/query", request), 200)

	ids := []string{}
	for _, c := range body["candidates"].([]any) {
		ids = append(ids, c.(map[string]any)["id"].(string))
	}

	return ids, body
}

// An example's language that is no tag counts as none, and a searcher is told; one
// that nobody has registered is a tag.
//
// Requirement: XU-041
func TestALanguageThatIsNoTagIsIgnoredWithAWarning(t *testing.T) {
	s := newTestServer(t, nil,
		profileEntry(t, '1', "wrong",
			`,"examples":[{"text":"Translate an invoice.","language":"tlh"},`+
				`{"text":"Sum up.","language":"not a tag"},{"text":"Sum.","language":"nor 1"}]`),
		profileEntry(t, '2', "right", `,"examples":[{"text":"Translate an invoice.","language":"de-AT"}]`),
		profileEntry(t, '3', "silent", `,"examples":[{"text":"Translate an invoice.","id":"language"}]`))
	ids, body := found(t, s, "", `{"query":"translate an invoice"}`)

	want := []any{"/examples/1/language of wrong is no language tag (BCP 47) and is ignored"}
	if len(ids) != 3 || !reflect.DeepEqual(body["warnings"], want) {
		t.Errorf("of %v the warnings are %v, want %v", ids, body["warnings"], want)
	}
}

// A federated candidate says at every level of detail where it comes from, who
// vouches for it, and how fresh and how whole it is; of an own one nobody else does.
// Its evidence can be had by whoever sees it.
//
// Requirement: XU-024, XU-025, XU-029
func TestFederatedCandidatesKeepTheirProvenance(t *testing.T) {
	theirs := entry(t, beta, rid(1), "theirs", 17, `{"base":"https://a.example","description":"Translates invoices."}`)
	theirs.Redacted, theirs.Lifetime = true, 600
	ours := entry(t, alpha, rid(2), "ours", 18, `{"base":"https://b.example","description":"Translates invoices too."}`)

	s := newTestServer(t, nil, theirs, ours)
	for _, detail := range []string{"minimal", "summary", "full"} {
		for _, evidence := range []string{"false", "true"} {
			_, body := found(t, s, "", `{"query":"translate invoices","detail":"`+detail+`","include_evidence":`+
				evidence+`}`)

			candidates := body["candidates"].([]any)
			if len(candidates) != 2 {
				t.Fatalf("%s: %v", detail, candidates)
			}

			for _, x := range candidates {
				c := x.(map[string]any)
				p := c["provenance"].(map[string]any)

				verification := p["verification"].(map[string]any)
				if c["id"] != rid(1) {
					if verification["state"] != "local" || p["origin_authority"] != "alpha.test" ||
						p["received_at"] != nil {
						t.Errorf("%s: an own one's provenance is %v", detail, p)
					}

					continue
				}

				if p["origin_authority"] != "beta.test" || p["origin_service"] != "https://ad.beta.test:8401" ||
					p["received_at"] == nil || p["expires_at"] == nil {
					t.Errorf("%s: provenance %v", detail, p)
				}

				if verification["state"] != "verified" || verification["key"] != "kid" ||
					verification["checked_at"] == nil {
					t.Errorf("%s: verification %v", detail, verification)
				}

				if c["redacted"] != true || !slices.Contains(body["warnings"].([]any),
					any("fields withheld by beta.test")) {
					t.Errorf("%s: redacted is %v, warnings %v", detail, c["redacted"], body["warnings"])
				}

				if detail != "minimal" && c["freshness"] == nil || detail == "full" && c["credential_refs"] == nil {
					t.Errorf("%s: %v", detail, c)
				}

				resp := ask(t, s, "", "GET", p["origin_signature"].(string), "")
				if b, _ := io.ReadAll(resp.Body); resp.StatusCode != 200 || string(b) != "record of beta.test "+rid(1) {
					t.Errorf("%s: its record: %d %s", detail, resp.StatusCode, b)
				}
			}
		}
	}
}

// Requirement: XU-010, XU-011, XU-012, XU-050, XU-051, XU-052, XU-055
func TestFiltersAreHard(t *testing.T) {
	s := newTestServer(t, nil,
		profileEntry(t, 'A', "one",
			`,"tags":["Invoice_Processing","finance"],"constraints":{"region":["apac","emea"]}`),
		profileEntry(t, 'B', "two", `,"tags":["translation"],"constraints":{"region":"apac"}`),
		profileEntry(t, 'C', "idle", `,"tags":["translation"],"status":"retired"`),
		entry(t, alpha, "01JWNTC000000000000000000D", "three", 9,
			`{"base":"https://agents.example.com/three","description":"Translates invoices","protocols":["mcp"]}`),
	)

	const three = "01JWNTC000000000000000000D"

	for members, want := range map[string]string{
		``: three + " one two",
		`,"required_tags":["invoice-processing"]`:                                  "one",
		`,"required_tags":["nobody-has-this"]`:                                     "",
		`,"excluded_tags":["TRANSLATION"],"protocols":[]`:                          three + " one",
		`,"preferred_tags":["translation"]`:                                        three + " one two",
		`,"protocols":["mcp","grpc"]`:                                              three,
		`,"constraints":{"region":"emea"}`:                                         "one",
		`,"constraints":{"origins":["beta.test"]}`:                                 "",
		`,"constraints":{"min_verification":"witnessed"},"limit":500`:              three + " one two",
		`,"constraints":{"max_results_age_seconds":3600},"client_context":{"x":1}`: three + " one two",
	} {
		request := `{"query":"translates invoices"` + members + `}`

		ids, _ := found(t, s, "", request)
		if got := strings.Join(slices.Sorted(slices.Values(ids)), " "); got != want {
			t.Errorf("%s found %q, want %q", request, got, want)
		}
	}

	_, body := found(t, s, "",
		`{"query":"translates","required_tags":["a"],"protocols":["https"],"constraints":{"region":"x","latency":5}}`)
	same(t, "applied_filters", body["applied_filters"],
		parse(t, []byte(`{"status":["active",null],"required_tags":["a"],"protocols":["https"],"region":["x"]}`)))
	same(t, "unsupported_filters", body["unsupported_filters"], []any{"latency"})

	if body["level"] != "D2" {
		t.Errorf("the level is %v", body["level"])
	}
}

// Requirement: XU-012, XU-028, XU-063
func TestUnsupportedFilters(t *testing.T) {
	vector := `{"query":"find a translation agent","required_tags":["translation"],` +
		`"constraints":{"unsupported_private_filter":"example"}`
	lenient, strict := newTestServer(t, nil), newTestServer(t, func(cfg *Config) { cfg.StrictFilters = true })
	_, body := found(t, lenient, "", vector+"}")
	same(t, "unsupported_filters", body["unsupported_filters"], []any{"unsupported_private_filter"})

	for s, request := range map[*Server]string{lenient: vector + `,"strict":true}`, strict: vector + "}"} {
		body := wantStatus(t, ask(t, s, "", "POST", "/discovery/query", request), 422)
		if body["code"] != "unsupported_filter" {
			t.Errorf("the code is %v", body["code"])
		}

		same(t, "unsupported_filters", body["unsupported_filters"], []any{"unsupported_private_filter"})
	}
}

// Requirement: XU-013, XU-017, XU-020, XU-054, XU-058, XU-059, XU-064
func TestDetailAndEvidence(t *testing.T) {
	e := profileEntry(t, 'A', "one",
		`,"description":"Translates invoices.","tags":["finance"],"auth":{"key":"k"},`+
			`"constraints":{"cost":1},"com.example/x":{ "a" :  1.0 },
		"examples":[{"id":"ex-9","text":"Translate this invoice"}]`)
	shy := entry(t, beta, "01JWNTC000000000000000000B", "shy", 3,
		`{"base":"https://agents.example.com/shy","description":"Translates invoices too"}`)
	shy.Redacted = true
	s := newTestServer(t, nil, e, shy)

	members := func(detail, evidence string) (string, map[string]any, map[string]any) {
		_, body := found(t, s, "/agent/ada",
			`{"query":"translate an invoice","preferred_tags":["finance"],"detail":"`+detail+`"`+evidence+`}`)
		c := body["candidates"].([]any)[0].(map[string]any)

		var names []string
		for name := range c {
			names = append(names, name)
		}

		return strings.Join(slices.Sorted(slices.Values(names)), " "), c, body
	}
	for _, x := range []struct{ detail, evidence, want string }{
		{"minimal", "", "agent bindings id provenance score status"},
		{"summary", `,"include_evidence":false`,
			"agent bindings description freshness id matched_tags name provenance score status"},
		{"full", "", "agent bindings credential_refs description freshness id matched_tags metadata name provenance " +
			"score status"},
		{"minimal", `,"include_evidence":true`,
			"agent bindings evidence freshness id matched_examples matched_tags provenance " +
				"score score_components status"},
	} {
		got, c, body := members(x.detail, x.evidence)
		if got != x.want {
			t.Errorf("%s%s has %s, want %s", x.detail, x.evidence, got, x.want)
		}

		if c["agent"] != e.Agent {
			t.Errorf("%s: the registered name is %v", x.detail, c["agent"])
		}

		endpoint := c["bindings"].([]any)[0].(map[string]any)["endpoint"]
		if want := "https://example.net/one"; x.detail != "full" && endpoint != want {
			t.Errorf("%s shows the endpoint %v", x.detail, endpoint)
		}

		other := body["candidates"].([]any)[1].(map[string]any)
		if other["redacted"] != true || other["provenance"].(map[string]any)["received_at"] == nil {
			t.Errorf("what is redacted is %v", other)
		}

		same(t, "warnings", body["warnings"], []any{"fields withheld by beta.test"})
	}

	_, c, _ := members("summary", `,"include_evidence":true`)

	var parts discovery.Components
	for name, to := range map[string]*float64{"tag": &parts.Tag, "context": &parts.Context, "example": &parts.Example,
		"protocol": &parts.Protocol, "freshness": &parts.Freshness, "policy": &parts.Policy} {
		*to = c["score_components"].(map[string]any)[name].(float64)
	}

	if again := discovery.DefaultWeights.Score(parts); math.Abs(again-c["score"].(float64)) > 1e-9 {
		t.Errorf("the components make %v, and the score is %v", again, c["score"])
	}

	same(t, "matched_tags", c["matched_tags"], []any{"finance"})

	if x := c["matched_examples"].([]any)[0].(map[string]any); x["id"] != "ex-9" {
		t.Errorf("the matched example is %v", x)
	}

	var raw bytes.Buffer

	_, _ = raw.ReadFrom(ask(t, s, "", "POST", "/discovery/query",
		`{"query":"translate an invoice","detail":"full"}`).Body)
	if !strings.Contains(raw.String(), `"metadata":`+string(e.Document.Bytes())) ||
		!strings.Contains(raw.String(), `"com.example/x":{ "a" :  1.0 }`) {
		t.Errorf("the document is not there as it was written: %s", raw.String())
	}
}

// What a caller may not see is in no candidate, no count and no filter.
//
// Requirement: XU-021, XU-055, XU-066
func TestQueriesShowWhatTheirCallerMaySee(t *testing.T) {
	hidden := profileEntry(t, 'B', "secret-agent", ``)
	hidden.Owner = identity("/agent/bob")
	with, without := newTestServer(t, nil, profileEntry(t, 'A', "one", ``), hidden), newTestServer(t, nil,
		profileEntry(t, 'A', "one", ``))

	const request = `{"query":"translates invoices","include_evidence":true}`
	strip := func(body map[string]any) map[string]any {
		for _, name := range []string{"request_id", "generated_at"} {
			delete(body, name)
		}

		for _, c := range body["candidates"].([]any) {
			delete(c.(map[string]any), "freshness")
			delete(c.(map[string]any), "provenance")
		}

		return body
	}
	_, a := found(t, with, "", request)
	_, b := found(t, without, "", request)
	same(t, "what eve sees", strip(a), strip(b))

	if ids, _ := found(t, with, "/agent/bob", request); len(ids) != 2 {
		t.Errorf("its owner sees %v", ids)
	}
}

// What was read is written back without becoming the registrant's word: a lease
// isn't a document's own end.
//
// Requirement: XU-045, XU-047
func TestWhatWasShownIsWrittenBack(t *testing.T) {
	leased := profileEntry(t, 'A', "leased", ``)
	own := profileEntry(t, 'B', "own", `,"expires_at":"`+stamp(leased.ExpiresAt)+`"`)
	r := &noting{}
	s := newTestServer(t, func(cfg *Config) { cfg.Registry = r }, leased, own)

	read := func(body []byte) directory.Document {
		t.Helper()
		ask(t, s, "/agent/ada", "POST", "/discovery/agents", string(body))

		return r.last.Document
	}
	for e, kept := range map[*directory.Entry]bool{leased: false, own: true} {
		d := read(s.surfaces.ad.Reader.Render.Profile().Append(nil, e, view.Options{}))
		if !bytes.Equal(d.Bytes(), e.Document.Bytes()) || kinds.DatesOf(d).Expires.IsZero() == kept {
			t.Errorf("%s is written back as %s", e.Agent, d.Bytes())
		}
	}

	d := read([]byte(`{"id":"leased","name":"N","description":"D",` +
		`"bindings":[{"protocol":"https","endpoint":"https://e.test"}],"expires_at":"2030-01-01T00:00:00Z"}`))
	if kinds.DatesOf(d).Expires.Year() != 2030 {
		t.Errorf("an end that is the registrant's word is read as %s", d.Bytes())
	}
}

// noting is the registry of a node that has no leader, and remembers the last proposal.
type noting struct {
	cutOff
	last directory.RegisterRequest
}

func (r *noting) Register(_ context.Context, p directory.RegisterRequest) (directory.Outcome, error) {
	r.last = p
	return directory.Outcome{}, errNoLeader
}

// Requirement: XU-034, XU-049, XU-053
func TestBadRequestsForDiscovery(t *testing.T) {
	s := newTestServer(t, nil)
	for body, pointer := range map[string]string{
		`{}`: "/query", `{"query":7}`: "/query", `{"query":"  "}`: "/query",
		`{"query":"` + strings.Repeat("q", 4097) + `"}`: "/query",
		`[]`: "", `"query"`: "", `{"query":"q"} {}`: "", `{"query":"q","query":"r"}`: "/query",
		`{"query":"q","detail":"more"}`: "/detail", `{"query":"q","limit":0}`: "/limit",
		`{"query":"q","limit":1.5}`:         "/limit",
		`{"query":"q","required_tags":"a"}`: "/required_tags", `{"query":"q","constraints":[]}`: "/constraints",
		`{"query":"q","constraints":{"max_results_age_seconds":-1}}`: "/constraints/max_results_age_seconds",
	} {
		answer := wantStatus(t, ask(t, s, "", "POST", "/discovery/query", body), 400)
		if got, _ := answer["pointer"].(string); got != pointer || answer["code"] != "invalid_request" {
			t.Errorf("%.60s: %v at %q, want %q", body, answer["code"], got, pointer)
		}
	}

	wantStatus(t, ask(t, s, "", "POST", "/discovery/query", `{"query":"q"}`, "Content-Type", "application/cbor"), 415)
	wantStatus(t, ask(t, s, "", "POST", "/discovery/query", `{"query":"q"}`, "Content-Type",
		"application/vnd.example+json"), 200)
	wantStatus(t, ask(t, s, "", "POST", "/discovery/query", ""), 400)

	if ids, _ := found(t, s, "", `{"query":"q","limit":1000000,"unknown":{}}`); len(ids) != 0 {
		t.Errorf("nothing is registered, and found is %v", ids)
	}
}

// Requirement: XU-031, XU-067, XU-068
func TestQueriesAreNotKept(t *testing.T) {
	var log bytes.Buffer

	s := newTestServer(t, func(cfg *Config) {
		cfg.Logger = slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}, profileEntry(t, 'A', "one", ``))
	for _, body := range []string{`{"query":"zanzibar invoices"}`, `{"query":"zanzibar","limit":"zanzibar"}`,
		`{"query":"zanzibar"`, `{"query":"zanzibar","constraints":{"x":1},"strict":true}`} {
		resp := ask(t, s, "", "POST", "/discovery/query?min=alpha.test=1780315200.385", body)
		if got := resp.Header.Get("Cache-Control"); got != "no-store" {
			t.Errorf("Cache-Control is %q", got)
		}
	}

	if got := log.String(); strings.Contains(got, "zanzibar") || !strings.Contains(got, "/discovery/query") {
		t.Errorf("the log has %s", got)
	}
}

// stamp is how a time is written, in Unix milliseconds.
func stamp(ms int64) string { return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z") }
