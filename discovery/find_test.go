package discovery_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/directorytest"
	"github.com/roster-mesh/roster/directory/index"
	"github.com/roster-mesh/roster/discovery"
	"github.com/roster-mesh/roster/discovery/content"
)

var (
	planner = agent{name: "route-planner", description: "Plans the fastest route between two places.",
		tags: []string{"maps", "Route_Planning"}, protocols: []string{"a2a"}}
	translator = agent{name: "translator", description: "Translates documents between languages.",
		tags: []string{"language"}, protocols: []string{"mcp"}}
	billing = agent{name: "billing", description: "Writes invoices and reminds of those that are due.",
		tags: []string{"finance"}, protocols: []string{"https"}}
)

// Requirement: XU-014, XU-018
func TestWordsFindWhatTheySay(t *testing.T) {
	w := newWorld(t, nil, planner, translator, billing)
	for query, want := range map[string]string{
		"plan a route":                "route-planner",
		"Planning ROUTES, please":     "route-planner", // endings and case
		"translate this document":     "translator",
		"I need help with my invoice": "billing",
		"planner":                     "route-planner", // part of a name
		"which agent can remind me?":  "billing",
	} {
		expect(t, w.ask(fmt.Sprintf(`{"query":%q}`, query)), want)
	}

	expect(t, w.ask(`{"query":"harvest potatoes"}`))
}

// Names in camelCase, with hyphens, in other scripts and with accents.
func TestWordsAreReadAsPeopleWriteThem(t *testing.T) {
	w := newWorld(t, nil,
		agent{name: "GitHubIssues", description: "Lists tickets."},
		agent{name: "tokyo", description: "東京の天気予報を伝えます"},
		agent{name: "cafe", description: "Réserve une table au café."},
		agent{name: "owner", description: "Answers the customer's questions."})
	for query, want := range map[string]string{
		"hub": "GitHubIssues", "issues": "GitHubIssues", "githubissues": "GitHubIssues",
		"天気": "tokyo", "cafe": "cafe", "reserve": "cafe", "customer": "owner", "customers": "owner",
	} {
		expect(t, w.ask(fmt.Sprintf(`{"query":%q}`, query)), want)
	}
}

// Requirement: XU-011, XU-046, XU-050, XU-051, XU-052, XU-055
func TestFiltersComeFirst(t *testing.T) {
	route := func(a agent) agent {
		a.description = "Plans a route."
		return a
	}

	w := newWorld(t, nil,
		route(agent{name: "a", tags: []string{"Route_Planning"}, protocols: []string{"a2a"}, region: "eu"}),
		route(agent{name: "b", tags: []string{"route planning", "beta"}, protocols: []string{"mcp"},
			region: []string{"us", "eu"}}),
		route(agent{name: "c", protocols: []string{"mcp"}, region: map[string]any{"name": "eu"}}),
		route(agent{name: "d", status: "maintenance", tags: []string{"route-planning"}}),
		route(agent{name: "e", origin: beta, skills: []skill{{Name: "route-planning", Type: "tool"}}}),
	)
	for request, want := range map[string][]string{
		`{"query":"route","required_tags":["ROUTE-planning"]}`:                            {"a", "b", "e"},
		`{"query":"route","required_tags":["route-planning","beta"]}`:                     {"b"},
		`{"query":"route","required_tags":["unheard-of"]}`:                                {},
		`{"query":"route","excluded_tags":["route planning"]}`:                            {"c"},
		`{"query":"route","protocols":["mcp","grpc"]}`:                                    {"b", "c"},
		`{"query":"route","protocols":[]}`:                                                {"a", "b", "c", "e"},
		`{"query":"route","constraints":{"region":"eu"}}`:                                 {"a", "b"},
		`{"query":"route","constraints":{"region":["us","cn"]}}`:                          {"b"},
		`{"query":"route","constraints":{"origins":["beta.test"]}}`:                       {"e"},
		`{"query":"route","constraints":{"origins":"alpha.test"},"protocols":["mcp"]}`:    {"b", "c"},
		`{"query":"route","preferred_tags":["beta"],"constraints":{"region":"eu"}}`:       {"a", "b"},
		`{"query":"route","required_tags":["beta"],"excluded_tags":["route-planning"]}`:   {},
		`{"query":"harvest","preferred_tags":["Route Planning"],"protocols":["mcp"]}`:     {"b"},
		`{"query":"route","constraints":{"region":"eu"},"excluded_tags":["beta","zeta"]}`: {"a"},
	} {
		res := w.ask(request)
		if got := slices.Sorted(slices.Values(names(res))); !slices.Equal(got, want) {
			t.Errorf("%s finds %q, want %q", request, got, want)
		}
	}

	res := w.ask(`{"query":"route","required_tags":["Route Planning"],"protocols":["a2a"],"constraints":{"cost":{"max":1},"latency":2}}`)
	if got := string(res.Applied["required_tags"]) + string(res.Applied["protocols"]) +
		string(res.Applied["status"]); got != `["Route Planning"]["a2a"]["active",null]` {
		t.Errorf("applied filters are %s", res.Applied)
	}

	if len(res.Applied) != 3 || !slices.Equal(res.Unsupported, []string{"cost", "latency"}) {
		t.Errorf("applied %s, unsupported %q", res.Applied, res.Unsupported)
	}

	if want := map[string]int{"status": 1, "protocols": 3}; !reflect.DeepEqual(res.Excluded, want) {
		t.Errorf("filters excluded %v, want %v", res.Excluded, want)
	}
}

// Requirement: XU-012
func TestStrictRequestsFailWhereAFilterCannotBeApplied(t *testing.T) {
	w := newWorld(t, nil, planner)

	r, err := discovery.ParseRequest([]byte(`{"query":"route","strict":true,"constraints":{"region":"eu","cost":3}}`))
	must(t, err)

	_, err = w.finder.Find(t.Context(), discovery.Query{Request: r})

	var unsupported *discovery.UnsupportedError
	if !errors.As(err, &unsupported) || !slices.Equal(unsupported.Names, []string{"cost"}) {
		t.Errorf("a strict request with an unknown constraint: %v", err)
	}
}

// Requirement: XU-009, XU-051
func TestAgeAndVerificationAreHardFilters(t *testing.T) {
	w := newWorld(t, nil,
		agent{name: "new", description: "Plans a route."},
		agent{name: "old", description: "Plans a route.", age: 3 * time.Hour},
		agent{name: "far", description: "Plans a route.", origin: beta})
	expect(t, w.ask(`{"query":"route","constraints":{"max_results_age_seconds":3600}}`), "new", "far")
	expect(t, w.ask(`{"query":"route","constraints":{"min_verification":"witnessed"}}`), "new", "old")
	res := w.ask(`{"query":"route","constraints":{"max_results_age_seconds":86400,"min_verification":"verified"}}`)
	expect(t, res, "new", "old", "far")

	if f := res.Candidates[1].Freshness; f.AgeSeconds < 3*3600 || f.AgeSeconds > 3*3600+60 || f.Stale {
		t.Errorf("three hours after the last refresh the candidate says %+v", f)
	}

	res = w.ask(`{"query":"route","constraints":{"max_results_age_seconds":3600}}`)
	if res.Excluded["max_results_age_seconds"] != 1 {
		t.Errorf("excluded %v", res.Excluded)
	}
}

// The ledgers of the origins decide how far a registration of another domain is verified; those of the
// own domain need none.
//
// Requirement: XU-051
func TestVerificationIsByTheLedgers(t *testing.T) {
	ledgers := func(cfg *discovery.Config) {
		cfg.Logged = func(e *directory.Entry) (at directory.Inclusion, ok bool) {
			if e.Agent == "witnessed" {
				at.Witnesses = &directory.Witnesses{}
			}

			return at, e.Agent != "verified"
		}
	}
	route := func(name string, origin spiffeid.TrustDomain) agent {
		return agent{name: name, description: "Plans a route.", origin: origin}
	}

	w := newWorld(t, ledgers, route("own", alpha), route("verified", beta), route("logged", beta),
		route("witnessed", beta))
	for least, want := range map[string][]string{
		"pending":   {"logged", "own", "verified", "witnessed"},
		"verified":  {"logged", "own", "verified", "witnessed"},
		"logged":    {"logged", "own", "witnessed"},
		"witnessed": {"own", "witnessed"},
	} {
		res := w.ask(fmt.Sprintf(`{"query":"route","constraints":{"min_verification":%q}}`, least))
		if got := slices.Sorted(slices.Values(names(res))); !slices.Equal(got, want) {
			t.Errorf("%s finds %q, want %q", least, got, want)
		}
	}
}

// What is not renewed in time counts less, and among equals comes last.
func TestWhatIsNotRenewedCountsLess(t *testing.T) {
	w := newWorld(t, nil,
		agent{name: "late", description: "Plans a route.", age: lifetime * 9 / 10},
		agent{name: "good", description: "Plans a route.", age: lifetime * 4 / 10})
	res := w.ask(`{"query":"route"}`)
	expect(t, res, "good", "late")

	if good, late := res.Candidates[0].Components.Freshness, res.Candidates[1].Components.Freshness; good != 1 ||
		late >= 1 || late < .9 {
		t.Errorf("freshness of the one in time is %v, of the other %v", good, late)
	}
}

// Requirement: XU-006, XU-019
func TestTheBestExampleCounts(t *testing.T) {
	one := "Book a table for two in Lisbon"
	w := newWorld(t, nil,
		agent{name: "a-single", description: "A concierge.", examples: []string{one}},
		agent{name: "b-several", description: "A concierge.",
			examples: []string{"Wake me at seven", one, "Order flowers for my mother", "Find a lost suitcase"}})
	res := w.ask(`{"query":"a table for two in Lisbon","include_evidence":true}`)
	expect(t, res, "a-single", "b-several")

	a, b := res.Candidates[0], res.Candidates[1]
	if a.Components.Example != b.Components.Example || a.Components.Example == 0 {
		t.Errorf("the same example among others scores %v, alone %v", b.Components.Example, a.Components.Example)
	}

	if len(b.MatchedExamples) != 1 || b.MatchedExamples[0].ID != "ex-2" || b.MatchedExamples[0].Text != one ||
		b.MatchedExamples[0].Score != b.Components.Example {
		t.Errorf("matched examples are %+v", b.MatchedExamples)
	}
}

var kitchen = []content.Taxonomy{{ID: "kitchen",
	Broader: map[string][]string{"sushi": {"japanese_food"}, "japanese-food": {"Food"}}}}

// Requirement: XU-005, XU-050, XU-052
func TestTagsStandForBroaderOnesWhereTheRequestSaysSo(t *testing.T) {
	w := newWorld(t, func(c *discovery.Config) { c.Taxonomies = kitchen },
		agent{name: "plain", description: "Delivers."},
		agent{name: "kind", description: "Delivers.", tags: []string{"Sushi"}},
		agent{name: "direct", description: "Delivers.", tags: []string{"FOOD"}})
	expect(t, w.ask(`{"query":"delivers","required_tags":["food"]}`), "direct")
	res := w.ask(`{"query":"delivers","required_tags":["food"],"preferred_tags":["food"],"expand":true,"include_evidence":true}`)
	expect(t, res, "direct", "kind")

	if direct := res.Candidates[0]; !slices.Equal(direct.MatchedTags, []string{"FOOD"}) ||
		len(direct.Evidence.ExpandedTags) != 0 {
		t.Errorf("the direct match says tags %q, expanded %+v", direct.MatchedTags, direct.Evidence.ExpandedTags)
	}

	kind := res.Candidates[1]
	if want := []discovery.ExpandedMatch{{Asked: "food", Tag: "sushi",
		Taxonomy: "kitchen"}}; len(kind.MatchedTags) != 0 || !slices.Equal(kind.Evidence.ExpandedTags, want) {
		t.Errorf("the expanded match says tags %q, expanded %+v", kind.MatchedTags, kind.Evidence.ExpandedTags)
	}

	expect(t, w.ask(`{"query":"delivers","excluded_tags":["food"]}`), "plain")

	if got := names(w.ask(`{"query":"delivers","preferred_tags":["food"]}`)); !slices.Equal(got,
		[]string{"direct", "kind", "plain"}) {
		t.Errorf("preferred tags order %q", got)
	}
}

// Requirement: XU-016, XU-017
func TestTiesBreakByOriginAndRID(t *testing.T) {
	same := func(name string, far bool) agent {
		a := agent{name: name, description: "Plans a route."}
		if far {
			a.origin = beta
		}

		return a
	}

	w := newWorld(t, nil)
	for _, a := range []agent{same("x1", true), same("x2", false), same("x3", true), same("x4", false)} {
		w.put(a)
	}

	for range 5 {
		res := w.ask(`{"query":"route"}`)
		expect(t, res, "x2", "x4", "x1", "x3")

		if a, b := res.Candidates[0].Score, res.Candidates[3].Score; a != b {
			t.Errorf("two who say the same score %v and %v", a, b)
		}
	}
}

// Requirement: XU-053
func TestALocaleBreaksTiesOnly(t *testing.T) {
	w := newWorld(t, nil,
		agent{name: "en", description: "Plans a route.", languages: []string{"en"}},
		agent{name: "de", description: "Plans a route.", languages: []string{"de-AT"}},
		agent{name: "better", description: "Plans a route by train.", languages: []string{"fr"}})
	expect(t, w.ask(`{"query":"route by train"}`), "better", "en", "de")
	expect(t, w.ask(`{"query":"route by train","client_context":{"locale":"de-DE"}}`), "better", "de", "en")
	expect(t, w.ask(`{"query":"route by train","client_context":{"region":"eu","budget":1}}`), "better", "en", "de")
}

// A candidate that prefers another binding than those asked for scores less, and
// one that has none of them is out.
func TestProtocolsAskedForCountByPreference(t *testing.T) {
	w := newWorld(t, nil,
		agent{name: "beside", description: "Plans a route.", protocols: []string{"mcp", "a2a"}},
		agent{name: "first", description: "Plans a route.", protocols: []string{"a2a", "mcp"}})
	res := w.ask(`{"query":"route","protocols":["a2a"]}`)
	expect(t, res, "first", "beside")

	if a, b := res.Candidates[0].Components.Protocol, res.Candidates[1].Components.Protocol; a != 1 || b >= a {
		t.Errorf("the components are %v and %v", a, b)
	}
}

// Requirement: XU-053
func TestLimitAndMore(t *testing.T) {
	w := newWorld(t, nil)
	for i := range 25 {
		w.put(agent{name: fmt.Sprintf("planner-%d", i), description: "Plans a route."})
	}

	for request, want := range map[string]int{`{"query":"route"}`: 10, `{"query":"route","limit":24}`: 24,
		`{"query":"route","limit":25}`: 25, `{"query":"route","limit":1000}`: 25} {
		res := w.ask(request)
		if len(res.Candidates) != want || res.More != (want < 25) {
			t.Errorf("%s: %d candidates, more: %v", request, len(res.Candidates), res.More)
		}
	}
}

// Where asks about one entry at a time, after all else: a filter of a surface's own.
func TestASurfaceMayFilter(t *testing.T) {
	w := newWorld(t, nil, planner, agent{name: "other-planner", description: "Plans a route."},
		agent{name: "resting", description: "Plans a route.", status: "inactive"})

	r, err := discovery.ParseRequest([]byte(`{"query":"route"}`))
	must(t, err)

	res, err := w.finder.Find(t.Context(), discovery.Query{Request: r, AnyStatus: true,
		Where: func(e *directory.Entry) string {
			if e.Agent == "route-planner" {
				return "not_it"
			}

			return ""
		}})
	must(t, err)

	if got := slices.Sorted(slices.Values(names(res))); !slices.Equal(got, []string{"other-planner", "resting"}) ||
		res.Excluded["not_it"] != 1 {
		t.Errorf("found %q, excluded %v", got, res.Excluded)
	}
}

func TestAQueryEndsWithItsContext(t *testing.T) {
	w := newWorld(t, nil, planner)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()

	r, err := discovery.ParseRequest([]byte(`{"query":"route"}`))
	must(t, err)

	if _, err := w.finder.Find(ctx, discovery.Query{Request: r}); !errors.Is(err, context.Canceled) {
		t.Errorf("the query ended with %v", err)
	}
}

func TestAFinderRefusesWeightsThatDoNotAddUp(t *testing.T) {
	for _, bad := range []discovery.Weights{{Tag: .5, Context: .6}, {Tag: -1, Context: 2}, {Context: .5}} {
		if _, err := discovery.New(discovery.Config{View: index.NewView(alpha), Weights: bad}); err == nil {
			t.Errorf("a finder was made with the weights %+v", bad)
		}
	}

	if _, err := discovery.New(discovery.Config{}); err == nil {
		t.Error("a finder was made without a view")
	}
}

// A finder names the taxonomies that it was given, in their order.
//
// Requirement: XU-050
func TestAboutNamesTheTaxonomies(t *testing.T) {
	more := append(slices.Clone(kitchen), content.Taxonomy{ID: "garden"})
	w := newWorld(t, func(c *discovery.Config) { c.Taxonomies = more })

	if got := w.finder.About().Taxonomies; !slices.Equal(got, []string{"kitchen", "garden"}) {
		t.Errorf("the taxonomies are %q", got)
	}

	if got := newWorld(t, nil).finder.About().Taxonomies; got == nil || len(got) != 0 {
		t.Errorf("without any they are %q", got)
	}
}

// A query that contains an agent's name raises it above an agent that has the same words in
// its description alone.
func TestANameInTheQueryCounts(t *testing.T) {
	w := newWorld(t, nil,
		agent{name: "harp-tuner", description: "Tunes a harp: a harp tuner of strings."},
		agent{name: "someone", description: "Tunes a harp: a harp tuner of strings."})

	res := w.ask(`{"query":"the harp-tuner for strings","include_evidence":true}`)
	expect(t, res, "harp-tuner", "someone")

	named, other := res.Candidates[0].Components.Context, res.Candidates[1].Components.Context
	if named < other+.12 { // the words of the name alone make .08
		t.Errorf("with its name in the query it has %v, without %v", named, other)
	}
}

// A registration is found until its deadline and not from then on, before anything removes
// it from the index.
//
// Requirement: AD-024
func TestNothingIsFoundPastItsDeadline(t *testing.T) {
	w := newWorld(t, nil,
		agent{name: "short", description: "Tunes strings.", age: lifetime - time.Hour},
		agent{name: "long", description: "Tunes strings."})
	expect(t, w.ask(`{"query":"tunes strings"}`), "long", "short")

	w.view.Own().Clock.Advance(time.Now().Add(time.Hour + time.Second))
	expect(t, w.ask(`{"query":"tunes strings"}`), "long")

	if _, kept := w.view.Peek(alpha, w.rids["short"]); !kept {
		t.Error("it was removed, so the deadline was not asked")
	}
}

var must = directorytest.Must
