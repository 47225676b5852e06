package discovery_test

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/roster-mesh/roster/discovery"
)

// Requirement: XU-021, XU-057, XU-059
func TestEvidencePointsAtTheText(t *testing.T) {
	a := agent{
		name: "route-planner", description: "Plans the fastest route – even for cyclists.", tags: []string{"maps"},
		skills: []skill{{Name: "cycling-routes", Type: "tool", Description: "Finds quiet routes for cyclists.",
			Tags: []string{"cycling"}}},
		examples: []string{"Plan a cycling tour along the Danube", "What time is it?"},
	}
	w := newWorld(t, nil, a, translator, billing)
	res := w.ask(`{"query":"a quiet cycling route","include_evidence":true}`)
	expect(t, res, "route-planner")
	ev := res.Candidates[0].Evidence

	derived := map[string]bool{}
	for _, s := range ev.Snippets {
		derived[s.Pointer] = s.Derived

		text := at(t, a.document(), a.name, s.Pointer)
		if len(s.Spans) == 0 {
			t.Errorf("the snippet %s has no spans", s.Pointer)
		}

		for _, span := range s.Spans {
			word := strings.ToLower(text[span[0]:span[1]])
			if !slices.ContainsFunc([]string{"quiet", "cycling", "cyclist", "route"}, func(q string) bool {
				return strings.HasPrefix(word, q[:4])
			}) {
				t.Errorf("%s, bytes %v, is %q: not asked for", s.Pointer, span, word)
			}
		}
	}

	want := map[string]bool{"/name": false, "/description": false, "/capabilities/0/name": true,
		"/capabilities/0/tags/0": true, "/capabilities/0/description": true, "/examples/0/text": false}
	for p, d := range want {
		if got, ok := derived[p]; !ok || got != d {
			t.Errorf("the snippet %s: there %v, derived %v", p, ok, got)
		}
	}

	if len(derived) != len(want) {
		t.Errorf("snippets are at %v", derived)
	}
}

// at returns the string at a pointer of a registration as GET /ad/r/{rid} shows it.
func at(t *testing.T, doc []byte, name, pointer string) string {
	t.Helper()

	if pointer == "/name" {
		return name // of the agent, which is no member of the document
	}

	var v any
	must(t, json.Unmarshal(doc, &v))

	for _, step := range strings.Split(pointer, "/")[1:] {
		switch in := v.(type) {
		case map[string]any:
			v = in[step]
		case []any:
			v = in[int(step[0]-'0')]
		}
	}

	s, ok := v.(string)
	if !ok {
		t.Fatalf("%s points at %v", pointer, v)
	}

	return s
}

// What each word adds in each field makes what it adds, and all words together
// are no more than the component; what they tell is counted.
func TestTermsAddUp(t *testing.T) {
	w := newWorld(t, nil, planner, translator, billing, agent{name: "route-66", description: "Music of the road."})
	res := w.ask(`{"query":"Planning a route","include_evidence":true}`)
	expect(t, res, "route-planner", "route-66")
	c := res.Candidates[0]

	var sum float64
	for _, term := range c.Evidence.Terms {
		var fields float64
		for _, v := range term.Fields {
			fields += v
		}

		if math.Abs(fields-term.Adds) > 1e-9 {
			t.Errorf("%s adds %v, in its fields %v", term.Term, term.Adds, fields)
		}

		sum += term.Adds

		having := map[string]float64{"plan": 1, "rout": 2}[term.Term]
		if idf := math.Log(1 + (4-having+.5)/(having+.5)); math.Abs(term.IDF-idf) > 1e-9 {
			t.Errorf("%s tells %v, want %v: %v of 4 have it", term.Term, term.IDF, idf, having)
		}
	}

	if sum <= 0 || sum > c.Components.Context {
		t.Errorf("terms add %v to a context of %v", sum, c.Components.Context)
	}

	if got := []string{c.Evidence.Terms[0].Text, c.Evidence.Terms[1].Text}; !slices.Equal(got,
		[]string{"Planning", "route"}) {
		t.Errorf("terms as the query has them: %q", got)
	}

	if c.Evidence.Weights != discovery.DefaultWeights {
		t.Errorf("weights are %+v", c.Evidence.Weights)
	}
}

// Requirement: XU-059
func TestWithoutEvidenceThereIsNone(t *testing.T) {
	w := newWorld(t, nil, agent{name: "planner", tags: []string{"Maps"}, examples: []string{"Plan a route on maps"}})

	c := w.ask(`{"query":"maps","include_evidence":false}`).Candidates[0]
	if c.Evidence != nil || c.MatchedExamples != nil || !slices.Equal(c.MatchedTags, []string{"Maps"}) {
		t.Errorf("evidence %+v, examples %+v, tags %q", c.Evidence, c.MatchedExamples, c.MatchedTags)
	}
}
