package discovery_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/discovery"
)

// Words whose stems differ from each other's.
var modelWords = strings.Fields("map route invoice weather train garden violin cheese harbour lamp")

// What a finder answers after any registrations, changes and removals is what a
// naive search of the registrations that the reader sees says: who has one of the
// words, or all tags that are required, and passes the filters, in the order of the scores, which are those that a
// finder gives who has never seen anything else.
func TestAFinderAnswersAsANaiveSearchDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, nil)
		defer w.finder.Close()
		agents := map[string]agent{}
		word := rapid.SampledFrom(modelWords)

		few := rapid.SliceOfN(word, 0, 3)
		for range rapid.IntRange(1, 25).Draw(t, "changes") {
			name := fmt.Sprintf("n%d", rapid.IntRange(0, 9).Draw(t, "name"))
			switch _, there := agents[name]; {
			case there && rapid.IntRange(0, 3).Draw(t, "remove") == 0:
				w.remove(name)
				delete(agents, name)
			default:
				a := agent{
					name: name, description: strings.Join(few.Draw(t, "description"), " "),
					tags: few.Draw(t, "tags"), examples: few.Draw(t, "examples"),
					protocols: rapid.SampledFrom([][]string{{"a2a"}, {"mcp"}, {"mcp", "a2a"}}).Draw(t, "protocols"),
					status:    rapid.SampledFrom([]string{"", "active", "maintenance"}).Draw(t, "status"),
					peersOnly: rapid.Bool().Draw(t, "hidden"),
				}
				w.put(a)
				agents[name] = a
			}

			if rapid.IntRange(0, 4).Draw(t, "ask meanwhile") == 0 {
				w.askAs(public, `{"query":"map"}`)
			}
		}

		words := rapid.SliceOfN(word, 1, 4).Draw(t, "query")
		request := map[string][]string{
			"required_tags": rapid.SliceOfN(word, 0, 1).Draw(t, "required"),
			"excluded_tags": rapid.SliceOfN(word, 0, 1).Draw(t, "excluded"),
			"protocols":     rapid.SampledFrom([][]string{{}, {"mcp"}, {"a2a", "mcp"}}).Draw(t, "protocols asked for"),
		}

		body := fmt.Sprintf(`{"query":%q,"limit":100`, strings.Join(words, " "))
		for _, name := range slices.Sorted(maps.Keys(request)) {
			body += fmt.Sprintf(`,%q:%s`, name, list(request[name]))
		}

		body += "}"

		got := w.askAs(public, body)

		var want []string
		for name, a := range agents {
			if !a.peersOnly && a.passes(request) && (a.says(words) || len(request["required_tags"]) > 0) {
				want = append(want, name)
			}
		}

		slices.Sort(want)

		if found := slices.Sorted(slices.Values(names(got))); !slices.Equal(found, want) {
			t.Fatalf("%s\nfinds %q, want %q\namong %+v", body, found, want, agents)
		}

		fresh := newWorld(t, nil)
		defer fresh.finder.Close()

		for name, a := range agents {
			if !a.peersOnly {
				fresh.rids[name] = w.rids[name]
				fresh.put(a)
			}
		}

		if again := fresh.ask(body); !slices.EqualFunc(got.Candidates, again.Candidates, sameCandidate) ||
			!maps.Equal(got.Excluded, again.Excluded) {
			t.Fatalf("%s\nfinds  %+v, excluded %v\nafresh %+v, excluded %v", body, got.Candidates, got.Excluded,
				again.Candidates, again.Excluded)
		}

		if !slices.IsSortedFunc(got.Candidates, func(a, b discovery.Candidate) int {
			if a.Score != b.Score {
				return map[bool]int{true: -1, false: 1}[a.Score > b.Score]
			}

			return a.Entry.RID.Compare(b.Entry.RID)
		}) {
			t.Fatalf("%s: out of order: %+v", body, got.Candidates)
		}
	})
}

func sameCandidate(a, b discovery.Candidate) bool {
	return a.Entry.RID == b.Entry.RID && a.Score == b.Score && a.Components == b.Components &&
		slices.Equal(a.MatchedTags, b.MatchedTags)
}

func list(values []string) string {
	quoted := make([]string, len(values))
	for i, v := range values {
		quoted[i] = fmt.Sprintf("%q", v)
	}

	return "[" + strings.Join(quoted, ",") + "]"
}

func (a agent) passes(request map[string][]string) bool {
	has := func(in []string) func(string) bool { return func(v string) bool { return slices.Contains(in, v) } }
	for _, t := range request["required_tags"] {
		if !has(a.tags)(t) {
			return false
		}
	}

	p := request["protocols"]

	return a.status != "maintenance" && !slices.ContainsFunc(request["excluded_tags"], has(a.tags)) &&
		(len(p) == 0 || slices.ContainsFunc(p, has(a.protocols)))
}

func (a agent) says(words []string) bool {
	text := strings.Fields(a.description + " " + strings.Join(a.tags, " ") + " " + strings.Join(a.examples, " "))
	return slices.ContainsFunc(words, func(w string) bool { return slices.Contains(text, w) })
}

// The index is read in stretches of 65,536 slots, and what cannot be among the
// best is left out: the best are found wherever they are.
func TestTheBestOfManyAreFound(t *testing.T) {
	if testing.Short() {
		t.Skip("1 test: 70,000 registrations")
	}

	w := newWorld(t, nil)

	template := w.put(agent{name: "template", description: "Plans a route."})
	for i := range 70_000 {
		e := *template
		e.Agent, e.RID, e.Created = fmt.Sprint("planner-", i), ridOf(i), uint64(i+10)
		p := *template.Projection()

		p.Name = e.Agent
		if i%23_000 == 22_999 {
			p.Description = "Plans a route by ferry."
		}

		e.Packed, e.Owner = directory.Pack(e.Document, &p), ownerOf(i)
		w.view.Own().Put(&e)
	}

	must(t, w.finder.CatchUp(t.Context()))

	start := time.Now()
	expect(t, w.ask(`{"query":"plan a route by ferry","limit":3}`), "planner-22999", "planner-45999", "planner-68999")
	t.Log("found in", time.Since(start))

	if res := w.ask(`{"query":"route","limit":100}`); len(res.Candidates) != 100 || !res.More {
		t.Errorf("%d candidates, more: %v", len(res.Candidates), res.More)
	}
}
