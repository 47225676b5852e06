package discovery_test

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/discovery"
)

// What a reader may not see changes no score, no count and no document frequency.
//
// Requirement: XU-021, XU-066
func TestWhatIsHiddenLeavesNoTrace(t *testing.T) {
	seen := []agent{
		{name: "planner", description: "Plans a route across mountains.", tags: []string{"maps"}},
		{name: "guide", description: "Tells of mountains and of huts.", protocols: []string{"mcp"},
			status: "maintenance"},
		{name: "weather", description: "Tells tomorrow's weather.", tags: []string{"maps"}},
	}
	without := newWorld(t, nil, seen...)

	with := newWorld(t, nil, seen...)
	for i := range 40 {
		with.put(agent{name: fmt.Sprintf("secret-%d", i), description: "Plans a secret route across mountains.",
			tags: []string{"maps", "secret"}, peersOnly: true, protocols: []string{"mcp"}})
	}

	for _, request := range []string{
		`{"query":"a route across mountains","include_evidence":true}`,
		`{"query":"secret","include_evidence":true}`,
		`{"query":"mountains","preferred_tags":["secret","maps"],"include_evidence":true}`,
		`{"query":"mountains","required_tags":["maps"],"include_evidence":true}`,
		`{"query":"mountains","protocols":["mcp"],"limit":1,"include_evidence":true}`,
	} {
		want, got := without.ask(request), with.askAs(public, request)
		if !reflect.DeepEqual(told(want), told(got)) {
			t.Errorf("%s:\nwith what is hidden    %+v\nwithout what is hidden %+v", request, told(got), told(want))
		}
	}

	if res := with.ask(`{"query":"secret"}`); len(res.Candidates) == 0 {
		t.Error("who sees everything finds no secret")
	}
}

// What one policy decided, and what it looked at, decides nothing under the next:
// neither for who has asked before nor for registrations that were there before.
func TestAnotherGenerationDecidesAnew(t *testing.T) {
	agents := []agent{{name: "planner", description: "Plans a route.", owner: "ada"},
		{name: "guide", description: "Knows a route.", owner: "ada"}}

	var generation atomic.Uint64
	allowed := func(e *directory.Entry) bool {
		switch generation.Load() {
		case 1:
			return true
		case 2:
			return e.Agent == "planner"
		}

		return false
	}
	w := newWorld(t, func(c *discovery.Config) {
		c.Generation = generation.Load
		c.Class = func(e *directory.Entry) string {
			if generation.Load() == 2 {
				return e.Agent // which the policy before didn't look at
			}

			return e.Owner.String()
		}
	}, agents...)
	reader := discovery.Reader{Key: "bob", Sees: whole(allowed)}
	ask := func() *discovery.Result {
		t.Helper()
		return w.askAs(reader, `{"query":"route","constraints":{"origins":["alpha.test"]},"include_evidence":true}`)
	}
	alone := newWorld(t, nil, agents[0])

	want := told(alone.ask(`{"query":"route","constraints":{"origins":["alpha.test"]},"include_evidence":true}`))
	for range 2 { // before those that are there are classified again, and after
		generation.Store(0)
		expect(t, ask())
		generation.Store(1)
		expect(t, ask(), "planner", "guide")
		generation.Store(2)

		if got := told(ask()); !reflect.DeepEqual(got, want) {
			t.Errorf("a policy that looks at names lets bob see\n%+v, want\n%+v", got, want)
		}

		ctx, cancel := context.WithCancel(t.Context())
		ran := make(chan error)
		go func() { ran <- w.finder.Run(ctx) }()
		w.put(agent{name: "hut", description: "Has beds."})
		w.remove("hut")
		expect(t, ask(), "planner")
		cancel()
		<-ran
	}
}

// A text that changes is no new question to a policy that doesn't look at texts, be the
// registration the only one of its class.
func TestAnotherTextIsNotDecidedAnew(t *testing.T) {
	w := newWorld(t, nil, agent{name: "planner", description: "Plans a route."})
	asked := 0

	reader := discovery.Reader{Key: "bob", Sees: whole(func(*directory.Entry) bool { asked++; return true })}
	for _, text := range []string{"Plans a tour.", "Plans a journey."} {
		w.askAs(reader, `{"query":"nothing of it"}`)
		w.view.Own().Put(newWorld(t, nil).put(agent{name: "planner", description: text})) // of the same rid and age
	}

	expect(t, w.askAs(reader, `{"query":"nothing of it"}`))

	if asked != 1 {
		t.Errorf("policy was asked %d times about one class", asked)
	}
}

// told is what a reader learns of a result.
func told(res *discovery.Result) []any {
	all := []any{res.More, res.Warnings, res.Unsupported, res.Excluded, res.Applied}
	for _, c := range res.Candidates {
		all = append(all, c.Entry.Agent, c.Score, c.Components, c.MatchedTags, c.MatchedExamples, c.Flags)
		if c.Evidence != nil {
			all = append(all, *c.Evidence)
		}
	}

	return all
}

// A reader sees what policy lets it see now, also where its sets are remembered
// from before.
func TestReadersSeeWhatTheyMaySeeNow(t *testing.T) {
	w := newWorld(t, nil, agent{name: "planner", description: "Plans a route.", peersOnly: true})
	expect(t, w.askAs(public, `{"query":"route"}`))
	w.put(agent{name: "planner", description: "Plans a route."})
	expect(t, w.askAs(public, `{"query":"route"}`), "planner")
	w.put(agent{name: "planner", description: "Plans a route.", peersOnly: true})
	expect(t, w.askAs(public, `{"query":"route"}`))

	for i := range 200 { // more readers than are remembered
		r := public
		r.Key = fmt.Sprint("reader ", i)
		expect(t, w.askAs(r, `{"query":"route"}`))
	}
}

// What becomes hidden during a query is in no count of its answer.
//
// Requirement: XU-021
func TestWhatBecomesHiddenIsNotCounted(t *testing.T) {
	w := newWorld(t, nil, agent{name: "planner", description: "Plans a route."})
	asked := 0
	reader := discovery.Reader{Key: "reader", Sees: func(*directory.Entry) (sight directory.Redaction, ok bool) {
		asked++
		return sight, asked == 1
	}}

	res := w.askAs(reader, `{"query":"route"}`)
	expect(t, res)

	if len(res.Excluded) > 0 {
		t.Errorf("counted: %v", res.Excluded)
	}
}

// A registration that changes while the set of a reader is made decides nothing about others of the
// class that it had.
//
// Requirement: XU-021
func TestAChangeDecidesNothingAboutItsFormerClass(t *testing.T) {
	mcp := func(name, owner string) agent { return agent{name: name, owner: owner, protocols: []string{"mcp"}} }
	byOwner := func(c *discovery.Config) {
		c.Class = func(e *directory.Entry) string { return e.Owner.String() }
	}
	w := newWorld(t, byOwner, mcp("first", "ada"), mcp("moved", "bob"), mcp("secret", "bob"))
	reader := discovery.Reader{Key: "ada", Sees: whole(func(e *directory.Entry) bool {
		if e.Agent == "first" {
			w.put(mcp("moved", "ada"))
		}

		return strings.HasSuffix(e.Owner.String(), "/ada")
	})}

	// Bob's registration would count among those that the filter leaves out.
	res := w.askAs(reader, `{"query":"moved secret","protocols":["a2a"]}`)
	if res.Excluded["protocols"] != 1 {
		t.Errorf("of one that ada sees, the filter has left out %v", res.Excluded)
	}
}

// Registrations that a reader sees in part are counted beside those that it sees whole. A surface's
// filter gets the part alone: its answer would disclose the rest.
//
// Requirement: XU-021
func TestExcludedPartsAreCounted(t *testing.T) {
	w := newWorld(t, nil, agent{name: "whole", description: "Prints.", protocols: []string{"mcp"}},
		agent{name: "part", description: "Prints.", protocols: []string{"mcp"}})
	reader := discovery.Reader{Key: "reader", Sees: func(e *directory.Entry) (sight directory.Redaction, ok bool) {
		if e.Agent == "part" {
			sight = directory.Withhold("description")
		}

		return sight, true
	}}

	res := w.askAs(reader, `{"query":"part whole","protocols":["a2a"]}`)
	if res.Excluded["protocols"] != 2 {
		t.Errorf("of two, the filter has left out %v", res.Excluded)
	}

	request, err := discovery.ParseRequest([]byte(`{"query":"part whole"}`))
	must(t, err)

	shown := map[string]string{}
	_, err = w.finder.Find(t.Context(), discovery.Query{Request: request, Reader: reader,
		Where: func(e *directory.Entry) string {
			shown[e.Agent] = e.Projection().Description
			return ""
		}})
	must(t, err)

	if want := map[string]string{"whole": "Prints.", "part": ""}; !maps.Equal(shown, want) {
		t.Errorf("the filter was shown the descriptions %q, want %q", shown, want)
	}
}
