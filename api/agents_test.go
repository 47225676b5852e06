package api

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/api/admission"
	"github.com/roster-mesh/roster/directory"
)

// metadata is an AIDIP document with further members.
func metadata(name, description, more string) string {
	return `{"name":"` + name + `","description":"` + description + `","endpoint":"https://agents.example.com/` +
		name + `","inputs":{"type":"object"},"outputs":{}` + more + `}`
}

// registry is a node with a translator, a summarizer, a hidden one, one that is
// retired, one of another kind, and one of beta.test.
func registry(t *testing.T, change func(*Config)) *Server {
	entries := []*directory.Entry{
		entryOf(t, directory.KindAIDIP, alpha, rid(1), "agent-1", 1,
			metadata("translator", "Translates text from one language to another.",
				`,"capabilities":["translation"],"tags":["nlp","cloud"],"supported_languages":["en","zh"]`)),
		entryOf(t, directory.KindAIDIP, alpha, rid(2), "agent-2", 2,
			metadata("summarizer", "Summarizes long documents, and text of any kind.",
				`,"capabilities":["summarization"],"tags":["nlp"]`)),
		entryOf(t, directory.KindAIDIP, alpha, rid(3), "secret-3", 3,
			metadata("spy", "Translates text in secret.", `,"capabilities":["translation"]`)),
		entryOf(t, directory.KindAIDIP, alpha, rid(4), "agent-4", 4,
			metadata("veteran", "Translated text once.", `,"capabilities":["translation"],"status":"retired"`)),
		entryOf(t, directory.KindAD, alpha, rid(5), "dictionary", 5,
			`{"base":"grpc://agents.example.com:9/words","description":"Looks words of a text up.","capabilities":[{"name":"define","type":"tool"},{"name":"translation","type":"tool"}],"protocols":["grpc"]}`),
		entryOf(t, directory.KindAIDIP, beta, rid(6), "agent-6", 17,
			metadata("betas", "Translates text at beta.",
				`,"capabilities":["translation"],"supported_languages":["zh"],"authentication":{"type":"mtls"}`)),
	}
	entries[2].Owner, entries[5].Owner = identity("/agent/mallory"), identity("/agent/mallory")

	return newTestServer(t, func(cfg *Config) {
		for _, e := range entries {
			x := cfg.View.Own()
			if e.Origin != alpha {
				x = cfg.View.Origin(e.Origin)
			}

			x.Put(e)
		}

		whole(cfg)

		if change != nil {
			change(cfg)
		}
	})
}

// ids returns the ids of a bare array of summaries, in order.
func ids(t *testing.T, resp *http.Response) (all []string, items []map[string]any) {
	t.Helper()

	b, _ := io.ReadAll(resp.Body)
	if err := json.Unmarshal(b, &items); err != nil || resp.StatusCode != 200 {
		t.Fatalf("status %d, body %s", resp.StatusCode, b)
	}

	for _, x := range items {
		all = append(all, x["id"].(string))
	}

	return all, items
}

// Requirement: AI-004, AI-015, AI-023, AI-028, AI-029
func TestAgentsAreFilteredAsAWhole(t *testing.T) {
	s := registry(t, nil)
	for query, want := range map[string][]string{
		"":                          {"agent-1", "agent-2", rid(5), "agent-6"},
		"?capabilities=translation": {"agent-1", rid(5), "agent-6"},
		"?capabilities=translation&tags=nlp,cloud":      {"agent-1"},
		"?capabilities=translation,define":              {rid(5)},
		"?capabilities=translation&capabilities=define": {rid(5)},
		"?language=en":                                             {"agent-1", "agent-2", rid(5)},
		"?language=zh&capabilities=translation":                    {"agent-1", rid(5), "agent-6"},
		"?language=en,zh&tags=nlp":                                 {"agent-1", "agent-2"},
		"?status=any&capabilities=translation":                     {"agent-1", "agent-4", rid(5), "agent-6"},
		"?status=retired":                                          {"agent-4"},
		"?origin=beta.test":                                        {"agent-6"},
		"?scope=domain&capabilities=translation":                   {"agent-1", rid(5)},
		"?capabilities=flying":                                     nil,
		"?colour=green&capabilities=translation&scope=domain":      {"agent-1", rid(5)},
		"?brief=true&capabilities=summarization&consistency=stale": {"agent-2"},
	} {
		got, items := ids(t, ask(t, s, "", "GET", "/agents"+query, ""))
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", query, got, want)
		}

		for _, x := range items {
			lists := x["id"] == "agent-1" || x["id"] == "agent-6"
			if _, told := x["language_declared"]; told != (strings.Contains(query, "language") && !lists) {
				t.Errorf("%s: language_declared of %v is told: %v", query, x["id"], told)
			}

			if _, scored := x["score"]; scored {
				t.Errorf("%s: %v has a score", query, x["id"])
			}
		}
	}

	for _, query := range []string{"?capabilities=", "?tags=a,,b", "?language=%ff", "?brief=perhaps", "?count=0",
		"?tags=" + strings.Repeat("t,", 64) + "t"} {
		wantStatus(t, ask(t, s, "", "GET", "/agents"+query, ""), 400)
	}
}

// Requirement: AI-005, AI-006, AI-015, AI-028, AI-029, AI-030
func TestSearchFiltersAndRanks(t *testing.T) {
	s := registry(t, nil)
	for body, want := range map[string][]string{
		`{}`: {"agent-1", "agent-2", rid(5), "agent-6"},
		`{"filters":{"capabilities":["translation"],"supported_languages":["en","zh"],"tags":["nlp"]},"top":10}`: {"agent-1"},
		`{"filters":{"capabilities":"translation","supported_language":"zh"}}`:                                   {"agent-1", rid(5), "agent-6"},
		`{"top":2}`:                 {"agent-1", "agent-2"},
		`{"query":"  ","top":1000}`: {"agent-1", "agent-2", rid(5), "agent-6"},
		`{"query":"translate a text","filters":{"capabilities":["translation"],"language":["en"],"tags":["nlp"]}}`: {"agent-1"},
		`{"query":"summarize a document","top":1}`:                   {"agent-2"},
		`{"query":"translated text","filters":{"status":"retired"}}`: {"agent-4"},
		`{"query":"translate","filters":{"origin":"beta.test"}}`:     {"agent-6"},
	} {
		resp := ask(t, s, "/agent/bob", "POST", "/agents/search", body)

		got, items := ids(t, resp)
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", body, got, want)
		}

		if resp.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: Cache-Control is %q", body, resp.Header.Get("Cache-Control"))
		}

		for _, x := range items {
			score, scored := x["score"].(float64)
			if ranked := strings.Contains(body, `"query":"t`) ||
				strings.Contains(body, `"query":"s`); scored != ranked || scored && (score <= 0 || score > 1) {
				t.Errorf("%s: the score of %v is %v", body, x["id"], x["score"])
			}
		}
	}

	all, _ := ids(t, ask(t, s, "/agent/bob", "POST", "/agents/search",
		`{"query":"translate text","filters":{"status":"any"},"top":100}`))
	if slices.Contains(all, "secret-3") || !slices.Contains(all, "agent-1") || !slices.Contains(all, "agent-4") ||
		!slices.Contains(all, "agent-6") {
		t.Errorf("found are %v", all)
	}
}

// Requirement: AI-030, AI-031, AI-039
func TestSearchRefuses(t *testing.T) {
	s := registry(t, nil)
	for body, pointer := range map[string]any{
		`{"top":0}`: "/top", `{"top":"3"}`: "/top", `{"top":1.5}`: "/top", `{"query":["a"]}`: "/query",
		`{"query":"` + strings.Repeat("q", 4097) + `"}`:        "/query",
		`{"filters":{"colour":"green"}}`:                       "/filters/colour",
		`{"filters":{"a/b":"green"}}`:                          "/filters/a~1b",
		`{"filters":[]}`:                                       "/filters",
		`{"tags":["nlp"]}`:                                     "/tags",
		`{"query":"translate","filters":{},"status":"active"}`: "/status",
		`{"filters":{"tags":[1]}}`:                             "/filters/tags",
		`{"filters":{"tags":[""]}}`:                            "/filters/tags",
		`{"filters":{"origin":"no domain"}}`:                   "/filters/origin",
		`[]`:                                                   nil, ``: nil,
	} {
		got := wantStatus(t, ask(t, s, "/agent/bob", "POST", "/agents/search", body), 400)
		if got["pointer"] != pointer || got["error"].(map[string]any)["code"] != "InvalidInput" {
			t.Errorf("%s: pointer %v, error %v", body, got["pointer"], got["error"])
		}
	}

	for body, pointer := range map[string]string{
		`{"intent":"translate","tags":["nlp"]}`:                              "/tags",
		`{"intent":"translate","policy":{},"allowed_domains":["beta.test"]}`: "/allowed_domains",
		`{"intent":"translate","policy":{"max_age":3}}`:                      "/policy/max_age",
	} {
		if got := wantStatus(t, ask(t, s, "/agent/bob", "POST", "/agents/resolve", body),
			400); got["pointer"] != pointer {
			t.Errorf("%s: pointer %v", body, got["pointer"])
		}
	}

	wantStatus(t, ask(t, s, "", "POST", "/agents/search", `{"query":"translate"}`), 401)
	ids(t, ask(t, s, "", "POST", "/agents/search", `{"filters":{"tags":["nlp"]}}`)) // policy lets everybody read
	wantStatus(t, ask(t, s, "", "POST", "/agents/resolve", `{"intent":"translate"}`), 401)
	wantStatus(t, ask(t, s, "/agent/bob", "POST", "/agents/agent-1/feedback", `{"stars":5}`), 404)
}

// Requirement: AI-013, AI-014, AI-015, AI-038
func TestResolveTellsHowToInvoke(t *testing.T) {
	s := registry(t, nil)
	resolve := func(body string) (candidates []map[string]any, excluded map[string]any, whole map[string]any) {
		t.Helper()

		whole = wantStatus(t, ask(t, s, "/agent/bob", "POST", "/agents/resolve", body), 200)
		for _, x := range whole["candidates"].([]any) {
			candidates = append(candidates, x.(map[string]any))
		}

		return candidates, whole["excluded"].(map[string]any), whole
	}

	got, excluded,
		_ := resolve(`{"intent":"translate a text","context":{"capabilities":["translation"],"language":"en"}}`)
	if len(got) != 2 || excluded["languages"] != 1.0 || excluded["capabilities"] != 1.0 || excluded["status"] != 1.0 {
		t.Fatalf("candidates %v, excluded %v", got, excluded)
	}

	first := got[0]

	invocation := first["invocation"].(map[string]any)
	if first["id"] != "agent-1" || first["endpoint"] != "https://agents.example.com/translator" ||
		first["score"].(float64) <= 0 ||
		invocation["method"] != "POST" || invocation["transport"] != "https" ||
		invocation["auth"].(map[string]any)["type"] != "none" ||
		invocation["schema"].(map[string]any)["type"] != "object" || len(first["reasons"].([]any)) == 0 ||
		first["provenance"] == nil {
		t.Errorf("the first is %v", first)
	}

	if second := got[1]; second["id"] != rid(5) || second["language_declared"] != false ||
		second["projected"] != true ||
		second["invocation"].(map[string]any)["method"] != nil ||
		len(second["invocation"].(map[string]any)["operations"].([]any)) != 2 {
		t.Errorf("the second is %v", second)
	}

	for body, want := range map[string][]string{
		`{"intent":"translate","policy":{"allowed_domains":["beta.test"]}}`:                             {"agent-6"},
		`{"intent":"translate","policy":{"allowed_protocols":["grpc"]}}`:                                {rid(5)},
		`{"intent":"translate text","policy":{"excluded_tags":["nlp"],"allowed_protocols":["https"]}}`:  {"agent-6"},
		`{"intent":"translate","policy":{"min_verification":"logged","allowed_domains":["beta.test"]}}`: nil,
		`{"intent":"translate","policy":{"verified":true,"allowed_domains":"beta.test"},"top":1}`:       {"agent-6"},
		`{"intent":"summarize a document","context":{"tags":["nlp"],"budget":"low"},"top":1}`:           {"agent-2"},
	} {
		candidates, excluded, whole := resolve(body)

		var got []string
		for _, x := range candidates {
			got = append(got, x["id"].(string))
		}

		if !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", body, got, want)
		}

		for reason := range excluded {
			if !slices.Contains([]string{"status", "allowed_domains", "allowed_protocols", "excluded_tags",
				"min_verification"}, reason) {
				t.Errorf("%s: excluded for %s", body, reason)
			}
		}

		if warned := len(whole["warnings"].([]any)) > 0; warned != strings.Contains(body, "budget") {
			t.Errorf("%s: warnings %v", body, whole["warnings"])
		}
	}

	for body, pointer := range map[string]string{
		`{}`: "/intent", `{"intent":" "}`: "/intent", `{"intent":"x","policy":{"reputation":5}}`: "/policy/reputation",
		`{"intent":"x","policy":{"verified":"yes"}}`:          "/policy/verified",
		`{"intent":"x","policy":{"min_verification":"sure"}}`: "/policy/min_verification",
		`{"intent":"x","policy":{"max_age_seconds":-5}}`:      "/policy/max_age_seconds",
		`{"intent":"x","policy":{"allowed_domains":["a b"]}}`: "/policy/allowed_domains",
	} {
		if got := wantStatus(t, ask(t, s, "/agent/bob", "POST", "/agents/resolve", body),
			400); got["pointer"] != pointer {
			t.Errorf("%s: pointer %v", body, got["pointer"])
		}
	}
}

// An agent of a frozen origin, or one that nobody has refreshed for too long, is
// no candidate, whoever asks; and is counted, not named.
//
// Requirement: AI-014, AI-038
func TestUnsafeAgentsAreNoCandidates(t *testing.T) {
	s := registry(t, func(cfg *Config) {
		cfg.Frozen = func() []spiffeid.TrustDomain {
			return []spiffeid.TrustDomain{beta}
		}
	})
	e := entryOf(t, directory.KindAIDIP, alpha, rid(7), "agent-7", 7, metadata("sleeper", "Translates.", ""))
	e.ExpiresAt = time.Now().Add(time.Hour).UnixMilli()
	s.cfg.View.Own().Put(e)
	resp := ask(t, s, "/agent/bob", "POST", "/agents/resolve",
		`{"intent":"translate","policy":{"max_age_seconds":3600},"context":{"language":"zh"}}`)

	b, _ := io.ReadAll(resp.Body)
	if text := string(b); !strings.Contains(text, `"frozen":1`) || !strings.Contains(text, `"max_age_seconds":1`) ||
		!strings.Contains(text, "agent-1") ||
		strings.Contains(text, "agent-6") || strings.Contains(text, "agent-7") || strings.Contains(text, "retired") {
		t.Errorf("got %s", b)
	}
}

// What is ranked has a quota of its own.
//
// Requirement: AI-016
func TestQueriesHaveAQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := registry(t, func(cfg *Config) {
			cfg.Limits = admission.Limits{admission.Reads: 10, admission.Queries: .2}
		})
		for i, status := range []int{200, 200, 429} {
			resp := ask(t, s, "/agent/bob", "POST", "/agents/search", `{"query":"translate"}`)
			if resp.StatusCode != status || resp.Header.Get("RateLimit-Policy") != `"queries";q=2;w=10` {
				t.Errorf("%d: status %d, policy %s", i, resp.StatusCode, resp.Header.Get("RateLimit-Policy"))
			}
		}

		wantStatus(t, ask(t, s, "/agent/bob", "POST", "/agents/resolve", `{"intent":"translate"}`), 429)
		ids(t, ask(t, s, "/agent/bob", "GET", "/agents", ""))
		ids(t, ask(t, s, "/agent/eve", "POST", "/agents/search", `{"query":"translate"}`))
	})
}

// Without a finder there is no resolution, a query is ignored as the draft says,
// and everything else is as it was.
//
// Requirement: AI-037
func TestResolutionCanBeAway(t *testing.T) {
	s := registry(t, func(cfg *Config) { cfg.Finder = nil })
	wantStatus(t, ask(t, s, "/agent/bob", "POST", "/agents/resolve", `{"intent":"translate"}`), 405)

	got, _ := ids(t, ask(t, s, "/agent/bob", "POST", "/agents/search",
		`{"query":"translate","filters":{"tags":["cloud"]}}`))
	if !slices.Equal(got, []string{"agent-1"}) {
		t.Errorf("got %v", got)
	}

	if body := wantStatus(t, ask(t, s, "/agent/bob", "GET", "/agents/agent-1", ""), 200); body["name"] != "translator" {
		t.Errorf("got %v", body)
	}
}

// Ids are one segment, however they are written; a rid goes first; a name that
// several domains have, and not this one, is for the caller to choose.
//
// Requirement: AI-003, AI-015, AI-021, AI-026
func TestAgentsById(t *testing.T) {
	urn := "https://agents.example.com/id/a b"

	s := registry(t, func(cfg *Config) {
		cfg.View.Own().Put(entryOf(t, directory.KindAIDIP, alpha, rid(8), urn, 8, metadata("far", "D", "")))
		cfg.View.Origin(beta).Put(entryOf(t, directory.KindAIDIP, beta, rid(9), "agent-1", 18,
			metadata("other", "D", "")))

		for i, td := range []spiffeid.TrustDomain{beta, gamma} {
			cfg.View.Origin(td).Put(entryOf(t, directory.KindAIDIP, td, rid(10+i), "twin", 19,
				metadata("twin", "D", "")))
		}
	})
	for target, name := range map[string]string{
		"/agents/agent-1": "translator", "/agents/" + rid(1): "translator", "/agents/" + rid(6): "betas",
		"/agents/agent-6": "betas",
		"/agents/https%3A%2F%2Fagents.example.com%2Fid%2Fa%20b": "far", "/agents/dictionary": "dictionary",
		"/agents/" + rid(10): "twin",
	} {
		resp := ask(t, s, "", "GET", target, "")
		if body := wantStatus(t, resp, 200); body["name"] != name {
			t.Errorf("%s is %v", target, body["name"])
		}

		if at := resp.Header.Get("Content-Location"); !strings.Contains(target, "01JW") &&
			!strings.HasPrefix(at, "/agents/01") {
			t.Errorf("%s: Content-Location %q", target, at)
		}
	}

	for _, target := range []string{"/agents/secret-3", "/agents/" + rid(3), "/agents/nobody", "/agents/"} {
		wantStatus(t, ask(t, s, "", "GET", target, ""), 404)
	}

	resp := ask(t, s, "", "GET", "/agents/twin", "")
	wantStatus(t, resp, 300)

	if links := resp.Header.Values("Link"); len(links) != 2 || links[0] != "</agents/"+rid(10)+`>; rel="alternate"` {
		t.Errorf("the links are %v", links)
	}

	// whether there is one that she does not see, the leader would know
	for _, method := range []string{"PUT", "DELETE"} {
		body := map[string]string{"PUT": metadata("n", "d", "")}[method]
		for target, status := range map[string]int{"/agents/agent-1": 403, "/agents/agent-6": 403,
			"/agents/secret-3": 503, "/agents/nobody": 503} {
			wantStatus(t, ask(t, s, "/agent/eve", method, target, body), status)
		}
	}
}

// The rid of another's registration is an id as that of none is: the answer doesn't tell that there is one.
//
// Requirement: AI-021
func TestAnothersRIDIsNoID(t *testing.T) {
	s := registry(t, func(cfg *Config) {
		hidden := entryOf(t, directory.KindAIDIP, alpha, rid(8), rid(8), 8, metadata("secret", "D", ""))
		hidden.Owner = identity("/agent/mallory")
		cfg.View.Own().Put(hidden)
	})

	answer := func(id string) string {
		resp := ask(t, s, "/agent/bob", "POST", "/agents", strings.Replace(metadata("bobs", "D", ""), "{",
			`{"id":"`+id+`",`, 1), "Content-Type", "application/json")

		return strings.ReplaceAll(fmt.Sprint(wantStatus(t, resp, 400)["detail"]), id, "RID")
	}

	if got, want := answer(rid(8)), answer(rid(9)); got != want {
		t.Errorf("another's: %v\nnobody's:  %v", got, want)
	}
}
