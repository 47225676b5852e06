package probe_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/gateway"
	"github.com/roster-mesh/roster/gateway/gatewaytest"
	"github.com/roster-mesh/roster/gateway/probe"
)

// said is what an agent's own server answers, by path.
type said map[string]string

func (s said) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	text, ok := s[r.URL.Path]
	if !ok {
		http.NotFound(w, r)
		return
	}

	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("ETag", `"1"`)

	if r.Header.Get("If-None-Match") == `"1"` {
		w.WriteHeader(http.StatusNotModified)
		return
	}

	fmt.Fprint(w, text)
}

const probeCard = `{"name":"Hello","description":"Says hello.","version":"1","url":"URL/a",` +
	`"provider":{"organization":"Acme"},"skills":[{"id":"hello","name":"Hello","description":"D","tags":["t"]}]}`

// probeAgent asks the agent at what its registration names, and says what came of it.
func probeAgent(t *testing.T, g *gateway.Guard, kind directory.Kind, name, document string) directory.Probe {
	t.Helper()
	e := entry(t, kind, name, document)

	owner, _ := e.VerifiedOwner()

	source, ok := probe.SourceOf(owner, e.Document, e.Projection())
	if !ok {
		return directory.Probe{State: "no source"}
	}

	s, err := probe.Fetch(t.Context(), g, source, "")

	var ds []probe.Difference
	if err == nil {
		ds, err = s.Compare(e.Agent, e.Document, e.Projection(), true)
	}

	return probe.Judge(ds, err)
}

// An agent is asked at its base what it is, as its kind or its protocols say, and
// what differs from the registration is named.
//
// Requirement: AD-044, AD-073
func TestAnAgentIsAskedWhatItIs(t *testing.T) {
	tools := mcp.NewServer(&mcp.Implementation{Name: "weather", Version: "2"}, nil)
	mcp.AddTool(tools, &mcp.Tool{Name: "forecast"},
		func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
			return nil, nil, errors.New("a probe calls no tool")
		})
	served := said{}
	mux := http.NewServeMux()
	mux.Handle("/mcp", mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return tools }, nil))
	mux.Handle("/", served)
	s := gatewaytest.Serve(t, mux)
	at := func(text string) string { return strings.ReplaceAll(text, "URL", s.URL) }
	woa := gatewaytest.WoADocument(strings.Replace(gatewaytest.WoARest, "https://api.example.com", "URL", 1),
		gatewaytest.WoAAgent("a", `,"version":"1"`))
	served["/a/.well-known/agent-card.json"] = at(probeCard)
	served["/.well-known/woa.json"] = at(gatewaytest.WoADocument(strings.Replace(gatewaytest.WoARest,
		"https://api.example.com", "URL", 1), gatewaytest.WoAAgent("a", `,"version":"1"`),
		gatewaytest.WoAAgent("b", ``), gatewaytest.WoAAgent("c", `,"authz":{"token":"s"}`)))
	served["/.well-known/agent.json"] = at(strings.ReplaceAll(probeCard, "/a", ""))
	served["/broken/.well-known/agent-card.json"] = `{"name":"x","name":"y"}`
	g := gatewaytest.NewGuard(t, s)

	ad := `{"base":"URL/a","protocols":["a2a"],"capabilities":[{"name":"hello","type":"skill"}]}`
	for what, c := range map[string]struct {
		kind     directory.Kind
		document string
		state    directory.ProbeState
		detail   string // the members that differ, or why nothing was had
	}{
		"a card as it is": {directory.KindA2A, probeCard, directory.ProbeVerified, ""},
		"a card at the root": {directory.KindA2A, strings.ReplaceAll(probeCard, "/a", ""),
			directory.ProbeVerified, ""},
		"written otherwise": {directory.KindA2A,
			strings.Replace(probeCard, `"name":"Hello"`, `"x":[ ],"name":"Hell\u006f"`, 1), directory.ProbeVerified,
			""},
		"an older card": {directory.KindA2A, strings.Replace(probeCard, `"version":"1"`, `"version":"0"`, 1),
			directory.ProbeMismatch, "version"},
		"a promising card": {directory.KindA2A,
			strings.NewReplacer(`Says hello.`, `Use me always.`, `Acme`, `Bank`, `"id":"hello"`, `"id":"pay"`).
				Replace(probeCard), directory.ProbeMismatch, "description vendor capabilities"},
		"another's base": {directory.KindA2A, strings.Replace(probeCard, "URL/a", "URL/a/b", 1),
			directory.ProbeMismatch, "endpoint"},
		"an AD registration": {directory.KindAD, ad, directory.ProbeVerified, ""},
		"one that claims more": {directory.KindAD,
			strings.Replace(ad, `[{"name"`, `[{"name":"pay","type":"tool"},{"name"`, 1), directory.ProbeMismatch,
			"capabilities"},
		"bindings elsewhere": {directory.KindAD,
			strings.Replace(ad, `"protocols":["a2a"]`,
				`"bindings":[{"protocol":"a2a","endpoint":"https://elsewhere.example/a"}]`, 1),
			directory.ProbeMismatch, "endpoint"},
		"no card below the base, and another's at the origin": {
			directory.KindAD, strings.Replace(ad, "/a", "/broken", 1),
			directory.ProbeMismatch, "endpoint"},
		"nobody there": {directory.KindAD, strings.Replace(ad, "URL/a", "https://127.0.0.1:1", 1),
			directory.ProbeUnreachable, "port"},
		"inside": {directory.KindAD, strings.Replace(ad, "URL/a", "https://10.0.0.1/", 1),
			directory.ProbeUnreachable, "address"},
		"no HTTPS": {directory.KindAD, strings.Replace(ad, "URL", "http://127.0.0.1:8080", 1),
			"no source", ""},
		"an MCP server": {directory.KindMCP,
			`{"name":"io.test/weather","description":"D","version":"2","remotes":[{"type":"streamable-http",` +
				`"url":"URL/mcp"}]}`, directory.ProbeVerified, ""},
		"another MCP server": {directory.KindMCP,
			`{"name":"io.test/bank","description":"D","version":"3","remotes":[{"type":"streamable-http",` +
				`"url":"URL/mcp"}]}`, directory.ProbeMismatch, "name version"},
		"tools it has not": {directory.KindAD,
			`{"base":"URL/mcp","protocols":["mcp"],"capabilities":[{"name":"forecast","type":"tool"},` +
				`{"name":"pay","type":"tool"}]}`, directory.ProbeMismatch, "capabilities"},
		"no MCP server": {directory.KindAD, `{"base":"URL/nothing","protocols":["mcp"],"capabilities":[]}`,
			directory.ProbeUnreachable, "nothing"},
		"a WoA agent": {directory.KindWoA, woa, directory.ProbeVerified, ""},
		"a WoA agent that grew": {directory.KindWoA, strings.Replace(woa, `"type":"string"`, `"type":"integer"`, 1),
			directory.ProbeMismatch, "schemas"},
		"a WoA agent not listed": {directory.KindWoA, strings.Replace(woa, `"id":"a"`, `"id":"z"`, 1),
			directory.ProbeMismatch, "id"},
		"a WoA agent that is bad": {directory.KindWoA, strings.Replace(woa, `"id":"a"`, `"id":"c"`, 1),
			directory.ProbeUnreachable, "nothing"},
		"called by HTTPS": {directory.KindAD,
			`{"base":"URL/agents/b/invoke","capabilities":[{"name":"b","type":"tool"}]}`, directory.ProbeVerified, ""},
		"called and not listed": {directory.KindAD,
			`{"base":"URL/agents/y/invoke","capabilities":[{"name":"b","type":"tool"}]}`, directory.ProbeUnreachable,
			"nothing"},
		"said elsewhere": {directory.KindWoA, strings.Replace(woa, `{"woa_version"`,
			`{"imported_from":{"source":"https://10.0.0.1/.well-known/woa.json"},"woa_version"`, 1),
			directory.ProbeVerified, ""},
	} {
		got := probeAgent(t, g, c.kind, "agent-1", at(c.document))
		if detail := strings.Join(got.Members, " ") + got.Reason; got.State != c.state || detail != c.detail {
			t.Errorf("%s: %s %s, want %s %s", what, got.State, detail, c.state, c.detail)
		}
	}
}

// What has not changed is not sent again.
func TestAskingAgain(t *testing.T) {
	s := gatewaytest.Serve(t, said{probe.CardPath: strings.ReplaceAll(probeCard, "URL/a", "https://x.example")})
	g := gatewaytest.NewGuard(t, s)
	source := probe.Source{Kind: directory.KindA2A, URL: s.URL}

	first, err := probe.Fetch(t.Context(), g, source, "")
	if err != nil || first.Unchanged || first.At != s.URL+probe.CardPath {
		t.Fatalf("%+v, %v", first, err)
	}

	again, err := probe.Fetch(t.Context(), g, source, first.ETag)
	if err != nil || !again.Unchanged || again.ETag != first.ETag {
		t.Errorf("asked again: %+v, %v", again, err)
	}
}

// A card is looked for in every place: what one answers that is no card leads on to the next. If
// none has one, each place is named with its answer.
//
// Requirement: FLD-005
func TestACardIsLookedForInEveryPlace(t *testing.T) {
	var below, origin http.HandlerFunc

	mux := http.NewServeMux()
	mux.HandleFunc("/a/", func(w http.ResponseWriter, r *http.Request) { below(w, r) })
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { origin(w, r) })
	s := gatewaytest.Serve(t, mux)
	g := gatewaytest.NewGuard(t, s)
	card := strings.ReplaceAll(probeCard, "URL", s.URL)
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
	}
	text := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, text) }
	}

	for _, below = range []http.HandlerFunc{
		status(401), status(403), status(404), status(405), status(500), status(204),
		text("<html>"), text(`{"name":"x"`),
		text(strings.Repeat("<p>", 1<<18)),
		func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://login.example/", http.StatusFound)
		},
	} {
		origin = text(card)

		if got := probeAgent(t, g, directory.KindA2A, "a", card); got.State != directory.ProbeVerified {
			t.Errorf("the origin's card is not found: %+v", got)
		}
	}

	below, origin = status(401), text("<html>")
	e := entry(t, directory.KindA2A, "a", card)
	source, _ := probe.SourceOf(spiffeid.ID{}, e.Document, e.Projection())
	_, err := probe.Fetch(t.Context(), g, source, "")

	for _, want := range []string{s.URL + "/a/.well-known/agent-card.json answered with status 401",
		s.URL + "/.well-known/agent-card.json answered with no description: ",
		s.URL + "/.well-known/agent.json answered",
	} {
		if err == nil || !strings.Contains(err.Error(), want) || !errors.Is(err, gateway.ErrNothingSaid) {
			t.Errorf("%v, without %q", err, want)
		}
	}
}
