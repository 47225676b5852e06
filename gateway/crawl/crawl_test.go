package crawl_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/directorytest"
	"github.com/roster-mesh/roster/gateway"
	"github.com/roster-mesh/roster/gateway/crawl"
	"github.com/roster-mesh/roster/gateway/gatewaytest"
)

func parseURL(t *testing.T, text string) *url.URL {
	t.Helper()

	u, err := url.Parse(text)
	must(t, err)

	return u
}

// transports are n private transports.
func transports(n int) string {
	var all strings.Builder
	for i := range n {
		fmt.Fprintf(&all, `"x.%d":{},`, i)
	}

	return all.String()
}

// What is wrong with an agent is told of it, and keeps no other out.
//
// Requirement: WOA-004, WOA-005, WOA-006, WOA-020, WOA-021, WOA-023, WOA-025, WOA-031
func TestSplitWoAJudgesEachAgent(t *testing.T) {
	at := parseURL(t, "https://Api.Example.com:443/.well-known/woa.json")
	for name, c := range map[string]struct {
		transports, agent string
		warning, refusal  string // a word of it
	}{
		"good": {gatewaytest.WoARest, gatewaytest.WoAAgent("a", ``), "", ""},
		"with authz": {gatewaytest.WoARest,
			gatewaytest.WoAAgent("a",
				`,"authz":{"scheme":"south","policy_uri":"https://x.example/p","token_header":"Authorization"}`), "",
			""},
		"an id with a dot": {gatewaytest.WoARest, gatewaytest.WoAAgent("a.b", ``), "", "letters"},
		"no id":            {gatewaytest.WoARest, `{"name":"N"}`, "", "id"},
		"many transports": {gatewaytest.WoARest, strings.Replace(gatewaytest.WoAAgent("a", ``), `["rest"]`,
			`["rest"`+strings.Repeat(`,"rest"`, 1000)+`]`, 1), "", "names over 1000 transports"},
		"as many transports as there may be": {
			strings.Replace(gatewaytest.WoARest, `{"rest"`, `{`+transports(999)+`"rest"`, 1),
			gatewaytest.WoAAgent("a", ``), "", "",
		},
		"no inputs": {gatewaytest.WoARest,
			`{"id":"a","name":"N","description":"D","outputs":{},"transports":["rest"]}`, "", "inputs"},
		"remote schema": {gatewaytest.WoARest,
			strings.Replace(gatewaytest.WoAAgent("a", ``), `"outputs":{"type":"object"}`,
				`"outputs":{"$ref":"https://elsewhere.example/schema"}`, 1), "", "$ref"},
		"local schema": {gatewaytest.WoARest,
			strings.Replace(gatewaytest.WoAAgent("a", ``), `"outputs":{"type":"object"}`,
				`"outputs":{"$defs":{"a":{}},"$ref":"#/$defs/a"}`, 1), "", ""},
		"credentials in schemas": {gatewaytest.WoARest,
			strings.Replace(strings.Replace(gatewaytest.WoAAgent("a", ``), `"outputs":{`,
				`"outputs":{"default":{"token":"s3cret"},`, 1), `"inputs":{`,
				`"inputs":{"default":{"token":"s3cret"},`, 1), "", ""},
		"a reference that is no schema's": {gatewaytest.WoARest,
			gatewaytest.WoAAgent("a", `,"authz":{"$ref":"https://elsewhere.example/"}`), "", ""},
		"no password": {gatewaytest.WoARest, gatewaytest.WoAAgent("a", `,"authz":{"password":"","token":5}`), "", ""},
		"slashed base": {strings.Replace(gatewaytest.WoARest, ".com", ".com/", 1), gatewaytest.WoAAgent("a", ``),
			"slash", ""},
		"plain base": {strings.Replace(gatewaytest.WoARest, "https:", "http:", 1),
			gatewaytest.WoAAgent("a", ``), "", "HTTP"},
		"loopback base": {strings.Replace(gatewaytest.WoARest, "https://api.example.com", "http://127.0.0.1", 1),
			gatewaytest.WoAAgent("a", ``), "", "HTTP"},
		"plain base of a transport that it has not": {`{"mcp":{"server":"https://x.example/mcp","tool_namespace":"n",` +
			`"tool_field":"agent"},` + strings.Replace(gatewaytest.WoARest, "https:", "http:", 1)[1:],
			strings.Replace(gatewaytest.WoAAgent("a", ``), `["rest"]`, `["mcp"]`, 1), "", ""},
		"a large transport that it has not": {strings.Replace(gatewaytest.WoARest, `{"rest"`,
			`{"com.example.pigeon":{"x":"`+strings.Repeat("x", directory.MaxDocument)+`"},"rest"`, 1),
			gatewaytest.WoAAgent("a", ``), "", ""},
		"inputs in a schema": {gatewaytest.WoARest, strings.Replace(gatewaytest.WoAAgent("a", ``), `"outputs":{`,
			`"outputs":{"properties":{"inputs":{"type":"object"}},"default":{"token":"s3cret"},`, 1), "", ""},
		"remote schema behind inputs": {gatewaytest.WoARest,
			strings.Replace(gatewaytest.WoAAgent("a", ``), `"outputs":{`, `"outputs":{"properties":{"inputs":{}},`+
				`"not":{"$ref":"https://elsewhere.example/"},`, 1), "", "$ref"},
		"base with query": {strings.Replace(gatewaytest.WoARest, ".com", ".com?a=b", 1),
			gatewaytest.WoAAgent("a", ``), "", "query"},
		"relative path": {strings.Replace(gatewaytest.WoARest, "/agents/", "agents/", 1),
			gatewaytest.WoAAgent("a", ``), "", "slash"},
		"missing transport": {`{}`, gatewaytest.WoAAgent("a", ``), "", "describe"},
		"unknown transport": {strings.Replace(gatewaytest.WoARest, `{"rest"`, `{"carrier-pigeon":{},"rest"`, 1),
			strings.Replace(gatewaytest.WoAAgent("a", ``), `["rest"]`, `["carrier-pigeon","rest"]`, 1),
			"carrier-pigeon", ""},
		"private transport": {strings.Replace(gatewaytest.WoARest, `{"rest"`, `{"com.example.pigeon":{},"rest"`, 1),
			strings.Replace(gatewaytest.WoAAgent("a", ``), `["rest"]`, `["com.example.pigeon","rest"]`, 1), "", ""},
		"half an mcp": {`{"mcp":{"server":"https://x.example/mcp","tool_field":"agent"}}`,
			strings.Replace(gatewaytest.WoAAgent("a", ``), `["rest"]`, `["mcp"]`, 1), "", "tool_namespace"},
		"a token": {gatewaytest.WoARest, gatewaytest.WoAAgent("a", `,"authz":{"access_token":"s3cret"}`), "",
			"credential"},
		"a header": {gatewaytest.WoARest,
			gatewaytest.WoAAgent("a", `,"authz":{"headers":["Bearer abcdefgh12345678"]}`), "", "credential"},
		"a hidden header": {gatewaytest.WoARest,
			gatewaytest.WoAAgent("a", `,"authz":{"inputs":"Bearer abcdefgh12345678"}`), "", "credential"},
		"an API key": {strings.Replace(gatewaytest.WoARest, `"base"`, `"X-Api-Key":"k","base"`, 1),
			gatewaytest.WoAAgent("a", ``), "", "credential"},
	} {
		agents, err := crawl.Split(at,
			[]byte(gatewaytest.WoADocument(c.transports, c.agent, gatewaytest.WoAAgent("other", ``))))
		if err != nil || len(agents) != 2 {
			t.Errorf("%s: %+v, %v", name, agents, err)
			continue
		}

		a := agents[0]
		if got := fmt.Sprint(a.Err); (a.Err != nil) != (c.refusal != "") || !strings.Contains(got, c.refusal) {
			t.Errorf("%s: refused because %v, want a word on %q", name, a.Err, c.refusal)
		}

		if got := strings.Join(a.Warnings, " "); (got != "") != (c.warning != "") || !strings.Contains(got,
			c.warning) {
			t.Errorf("%s: warnings %q, want a word on %q", name, got, c.warning)
		}

		if a.Err == nil && a.Name != "a@api.example.com" || name == "no id" && a.Name != "agents/0" {
			t.Errorf("%s: the name is %s", name, a.Name)
		}

		if agents[1].Err != nil && strings.Contains(name, "agent") {
			t.Errorf("%s: the other is refused: %v", name, agents[1].Err)
		}
	}

	twice, err := crawl.Split(at,
		[]byte(gatewaytest.WoADocument(gatewaytest.WoARest, gatewaytest.WoAAgent("a", ``),
			gatewaytest.WoAAgent("a", ``), gatewaytest.WoAAgent("A", ``))))
	if err != nil || twice[0].Err != nil || twice[1].Err == nil || twice[2].Err != nil {
		t.Errorf("of two with one id, %+v, %v", twice, err)
	}
}

// Requirement: WOA-019
func TestSplitWoARefusesDocuments(t *testing.T) {
	at := parseURL(t, "https://api.example.com/.well-known/woa.json")

	good := gatewaytest.WoADocument(gatewaytest.WoARest, gatewaytest.WoAAgent("a", ``))
	for _, text := range []string{
		strings.Replace(good, `"1"`, `"2"`, 1), strings.Replace(good, `"1"`, `1`, 1),
		strings.Replace(good, `"woa_version":"1",`, ``, 1),
		strings.Replace(good, `"agents"`, `"agent"`, 1), `{"woa_version":"1","agents":{},"transports":{}}`, `[]`, `{`,
		good + good,
	} {
		if agents, err := crawl.Split(at, []byte(text)); err == nil {
			t.Errorf("%s is taken: %+v", text, agents)
		}
	}
}

// A short document can't make long ones of many agents: what it says of all of them
// is in the document of each.
func TestSplitWoAIsBounded(t *testing.T) {
	at := parseURL(t, "https://api.example.com/.well-known/woa.json")

	var agents []string
	for n := range 1000 {
		agents = append(agents, gatewaytest.WoAAgent(fmt.Sprint("a", n), ``))
	}

	document := gatewaytest.WoADocument(gatewaytest.WoARest, agents...)
	if all, err := crawl.Split(at, []byte(document)); err != nil || len(all) != 1000 {
		t.Errorf("a thousand agents: %d, %v", len(all), err)
	}

	long := `{"x-note":"` + strings.Repeat("x", 60_000) + `",` + document[1:]
	if _, err := crawl.Split(at, []byte(long)); directory.ProblemOf(err) != directory.TooLarge {
		t.Errorf("%d bytes, which make over a thousand times as many, are taken: %v", len(long), err)
	}
}

// A document is of one agent alone, and the same whatever else the origin lists or
// another directory says of it.
func TestSplitWoAIsStable(t *testing.T) {
	at := parseURL(t, "https://api.example.com/.well-known/woa.json")
	split := func(doc string) string {
		agents, err := crawl.Split(at, []byte(doc))
		if err != nil || agents[0].Err != nil {
			t.Fatalf("%+v, %v", agents, err)
		}

		return string(agents[0].Document.Bytes())
	}
	one := split(gatewaytest.WoADocument(gatewaytest.WoARest, gatewaytest.WoAAgent("a", ``)))

	two := split(gatewaytest.WoADocument(strings.Replace(gatewaytest.WoARest, `{"rest"`, `{"mcp":{},"rest"`, 1),
		gatewaytest.WoAAgent("a", `,"provenance":{"revision":7},"projected":true`), gatewaytest.WoAAgent("b", ``)))
	if one != two {
		t.Errorf("alone it is\n%s\nbeside another\n%s", one, two)
	}

	var from struct {
		ImportedFrom struct {
			Source string `json:"source"`
		} `json:"imported_from"`
	}
	if err := json.Unmarshal([]byte(one), &from); err != nil || from.ImportedFrom.Source != at.String() {
		t.Errorf("it came from %+v, %v", from, err)
	}
}

func TestParseOrigin(t *testing.T) {
	for text, want := range map[string]string{
		"api.example.com":                "https://api.example.com/.well-known/woa.json",
		"https://api.example.com:8443/":  "https://api.example.com:8443/.well-known/woa.json",
		"https://api.example.com/w.json": "https://api.example.com/w.json",
		"http://api.example.com":         "",
		"https://u:p@api.example.com":    "",
		"ftp://x":                        "",
		"https://api.example.com/#a":     "",
		"HTTPS://API.example.com.:443":   "https://api.example.com/.well-known/woa.json",
		"API.example.com.:8443/W.json":   "https://api.example.com:8443/W.json",
		"https://[::1":                   "",
		"":                               "",
	} {
		u, err := crawl.ParseOrigin(text)
		if (err == nil) != (want != "") || err == nil && u.String() != want {
			t.Errorf("%q is %v, %v", text, u, err)
		}
	}
}

// An origin is a server of Web of Agents documents.
type origin struct {
	*httptest.Server
	handler http.HandlerFunc
}

func newOrigin(t *testing.T) (*origin, *gateway.Guard) {
	o := &origin{}
	o.Server = gatewaytest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o.handler(w,
			r)
	}))

	return o, gatewaytest.NewGuard(t, o.Server)
}

// Requirement: WOA-012, WOA-032, WOA-037
func TestCrawlAsksForWhatChanged(t *testing.T) {
	o, g := newOrigin(t)

	at, err := crawl.ParseOrigin(o.URL)
	must(t, err)

	asked := 0
	o.handler = func(w http.ResponseWriter, r *http.Request) {
		asked++
		w.Header().Set("ETag", `"one"`)
		w.Header().Set("Cache-Control", "public, max-age=300")

		if r.Header.Get("If-None-Match") == `"one"` {
			w.Header().Set("Cache-Control", "public, max-age=600")
			w.WriteHeader(http.StatusNotModified)

			return
		}

		w.Header().Set("Content-Type", "application/woa+json")
		fmt.Fprint(w, gatewaytest.WoADocument(gatewaytest.WoARest, gatewaytest.WoAAgent("a", ``)))
	}

	asks := o.handler
	o.handler = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotModified) }

	if _, err := crawl.Fetch(t.Context(), g, at, nil); err == nil {
		t.Error("an unknown document is unchanged")
	}

	o.handler = asks

	first, err := crawl.Fetch(t.Context(), g, at, nil)
	if err != nil || first.Unchanged || len(first.Agents) != 1 || first.Fresh != 5*time.Minute ||
		first.Agents[0].Name != "a@"+at.Host {
		t.Fatalf("%+v, %v", first, err)
	}

	second, err := crawl.Fetch(t.Context(), g, at, first)
	if err != nil || !second.Unchanged || len(second.Agents) != 1 || asked != 2 || second.Fresh != 10*time.Minute {
		t.Fatalf("%+v, %v", second, err)
	}

	o.handler = func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/woa+json")
		w.WriteHeader(http.StatusInternalServerError)
		fmt.Fprint(w, gatewaytest.WoADocument(gatewaytest.WoARest))
	}

	if _, err := crawl.Fetch(t.Context(), g, at, first); err == nil {
		t.Error("an answer of 500 is taken for a document")
	}

	// Without an entity tag, the time of the last change is the condition.
	o.handler = func(w http.ResponseWriter, r *http.Request) {
		const changed = "Mon, 01 Jun 2026 12:00:00 GMT"

		w.Header().Set("Content-Type", "application/woa+json")
		w.Header().Set("Last-Modified", changed)

		if r.Header.Get("If-Modified-Since") == changed {
			w.WriteHeader(http.StatusNotModified)
			return
		}

		fmt.Fprint(w, gatewaytest.WoADocument(gatewaytest.WoARest, gatewaytest.WoAAgent("a", ``)))
	}

	dated, err := crawl.Fetch(t.Context(), g, at, nil)
	must(t, err)

	if again, err := crawl.Fetch(t.Context(), g, at, dated); err != nil || !again.Unchanged {
		t.Errorf("with the time of its last change: %+v, %v", again, err)
	}

	for header, want := range map[string]time.Duration{"max-age=1": time.Minute, "max-age=9999999": 24 * time.Hour,
		"no-store": time.Minute, "max-age=120, no-cache": time.Minute, "max-age=x": time.Hour, "": time.Hour,
		"private, MAX-AGE=120": 2 * time.Minute, "s-maxage=120": time.Hour} {
		o.handler = func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json; charset=utf-8")
			w.Header().Set("Cache-Control", header)
			fmt.Fprint(w, gatewaytest.WoADocument(`{}`))
		}

		if c, err := crawl.Fetch(t.Context(), g, at, nil); err != nil || c.Fresh != want {
			t.Errorf("%q: %+v, %v", header, c, err)
		}
	}
}

// All pages are read, within bounds, and nothing that is no document is taken for one.
func TestCrawlFollowsPages(t *testing.T) {
	o, g := newOrigin(t)
	at, _ := crawl.ParseOrigin(o.URL)
	answer := func(link, contentType string, body func(r *http.Request) string) {
		o.handler = func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", contentType)
			w.Header().Set("ETag", `"page"`)

			if r.Header.Get("If-None-Match") != "" {
				w.WriteHeader(http.StatusNotModified)
				return
			}

			if link != "" && r.URL.Query().Get("after") != "end" {
				w.Header().Set("Link", link)
			}

			fmt.Fprint(w, body(r))
		}
	}
	page := func(r *http.Request) string {
		return gatewaytest.WoADocument(gatewaytest.WoARest, gatewaytest.WoAAgent("on"+r.URL.Query().Get("after"), ``),
			gatewaytest.WoAAgent("always", ``))
	}
	answer(`<?after=end>; rel="next"`, "application/woa+json", page)

	c, err := crawl.Fetch(t.Context(), g, at, nil)
	if err != nil || len(c.Agents) != 4 || c.Agents[1].Err != nil || c.Agents[3].Err == nil {
		t.Fatalf("%+v, %v", c, err)
	}

	if again, err := crawl.Fetch(t.Context(), g, at, c); err != nil || again.Unchanged {
		t.Errorf("of several pages the first one's tag was believed: %+v, %v", again, err)
	}

	answer(`<?after=end>; rel="prev"`, "application/woa+json", page)

	if c, err := crawl.Fetch(t.Context(), g, at, nil); err != nil || len(c.Agents) != 2 {
		t.Errorf("a link to another page than the next is followed: %+v, %v", c, err)
	}

	large := strings.Repeat("x", 15<<19) // of a page of 8 MiB

	for name, x := range map[string]struct {
		link, want string
		body       func(*http.Request) string
	}{
		"a loop":    {`<?>; rel=next`, "over 64 pages", page},
		"elsewhere": {`<https://192.0.2.1/woa.json>; rel="next"`, "which is elsewhere", page},
		"elsewhere by its port": {
			`<` + o.URL + `1/woa.json>; rel="next"`, "which is elsewhere", page,
		},
		"no URL": {`<https://[/>; rel="next"`, "which is elsewhere", page},
		"large pages": {`<?>; rel=next`, "over 67108864 bytes", func(*http.Request) string {
			return `{"x":"` + large + `",` + gatewaytest.WoADocument(`{}`)[1:]
		}},
	} {
		answer(x.link, "application/woa+json", x.body)

		if _, err := crawl.Fetch(t.Context(), g, at, nil); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v, want %s", name, err, x.want)
		}
	}

	answer(`<?after=end>; rel="next"`, "application/woa+json", func(r *http.Request) string {
		agents := make([]string, 6000)
		for i := range agents {
			agents[i] = gatewaytest.WoAAgent(fmt.Sprint("a", i, r.URL.Query().Get("after")), ``)
		}

		return gatewaytest.WoADocument(gatewaytest.WoARest, agents...)
	})

	_, err = crawl.Fetch(t.Context(), g, at, nil)
	if err == nil || !strings.Contains(err.Error(), "over 10000 agents") {
		t.Errorf("two pages with 6000 agents each: %v", err)
	}

	answer("", "text/html", page)

	if _, err := crawl.Fetch(t.Context(), g, at, nil); err == nil {
		t.Error("a page of HTML is taken for a document")
	}

	o.handler = http.NotFound

	if _, err := crawl.Fetch(t.Context(), g, at, nil); err == nil {
		t.Error("an answer of 404 is taken for a document")
	}

	o.handler = func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http"+o.URL[len("https"):]+"/x", http.StatusFound)
	}
	_, err = crawl.Fetch(t.Context(), g, at, nil)

	var refusal *gateway.Refusal
	if rule := gateway.RuleOf(err); rule != gateway.RuleRedirect || !errors.As(err, &refusal) {
		t.Errorf("a redirect to plain HTTP: refused by %q (%v), want %q", rule, err, gateway.RuleRedirect)
	}
}

var must = directorytest.Must
