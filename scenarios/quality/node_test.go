package main

import (
	"math"
	"testing"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/scenarios/mesh"
)

// small is a set whose answers are not all obvious.
func small() *set {
	right := func(ids ...string) map[string]bool {
		m := map[string]bool{}
		for _, id := range ids {
			m[id] = true
		}

		return m
	}

	return &set{
		name: "small",
		records: []record{
			{ID: "1", Name: "RoutePlanner",
				Description: "Plans a walking route between two huts and tells how long it takes.",
				Tags:        []string{"maps", "hiking"}, Examples: []string{"How long is the walk to the next hut?"}},
			{ID: "2", Name: "hut_finder", Description: "Finds mountain huts with free beds.",
				Tags: []string{"hiking", "booking"}, Examples: []string{"Is there a bed for two on Friday?"}},
			{ID: "3", Name: "Forecast", Description: "Tells tomorrow's weather at a place, rain and wind.",
				Tags: []string{"weather"}},
			{ID: "4", Name: "AvalancheBulletin",
				Description: "The danger of avalanches by region, from snow and weather stations.",
				Tags:        []string{"weather", "safety"}},
			{ID: "5", Name: "Invoices", Description: "Writes invoices and reminds customers of them.",
				Tags: []string{"billing"}, Examples: []string{"Send the bill for May.", "Who has not paid?"}},
			{ID: "6", Name: "train-times", Description: "Looks up trains and how late they are.",
				Tags: []string{"travel", "maps"}},
			{ID: "7", Name: "Translator", Description: "Translates German, French and Italian."},
		},
		queries: []query{
			{ID: "a", Text: "plan a route to a hut", right: right("1")},
			{ID: "b", Text: "a bed in a mountain hut", right: right("2")},
			{ID: "c", Text: "will it rain tomorrow?", right: right("3")},
			{ID: "d", Text: "weather and snow in the mountains", right: right("3", "4")},
			{ID: "e", Text: "remind who has not paid the bill", right: right("5")},
			{ID: "f", Text: "maps", right: right("6")},
			{ID: "g", Text: "violin lessons", right: right("7")},
		},
	}
}

// A node of which a set is asked over HTTP has the figures of the engine alone, and
// each answer the same candidates with the same scores; nothing of the set is left
// there.
func TestANodeScoresAsTheEngineDoes(t *testing.T) {
	s := small()

	e, err := newEngine(s.records)
	if err != nil {
		t.Fatal(err)
	}
	defer e.close()
	want := s.score(e)
	m := mesh.Start(t, mesh.Options{RealTime: true})
	n := m.Domains[0].Nodes[0]

	client := apiclient.NewDirect(n.URL(), n.HTTP("/agent/quality"))
	for range 2 { // leftovers of the first would rank beside the second's
		got, err := s.scoreAt(t.Context(), client)
		if err != nil {
			t.Fatal(err)
		}

		if got != want {
			t.Errorf("the node scores %+v, the engine %+v", got, want)
		}
	}

	k := &loadedSet{ctx: t.Context(), client: client}
	for i := range s.records {
		if _, err := k.register(t.Context(), s.records[i].ID, &s.records[i]); err != nil {
			t.Fatal(err)
		}
	}

	for _, q := range s.queries {
		found, err := client.Discover(t.Context(),
			apiclient.DiscoverOptions{Query: q.Text, Origins: []string{m.Domains[0].Name}})
		if err != nil {
			t.Fatal(err)
		}

		alone := e.find(q.Text, 10)
		if len(found.Candidates) != len(alone) {
			t.Errorf("%q: the node finds %d, the engine %d", q.Text, len(found.Candidates), len(alone))
			continue
		}

		for i, c := range found.Candidates {
			if w := alone[i]; c.ID != w.Entry.Agent || math.Abs(c.Score-w.Score) > 1e-9 {
				t.Errorf("%q: number %d is %s with %v at the node, %s with %v alone", q.Text, i+1, c.ID, c.Score,
					w.Entry.Agent, w.Score)
			}
		}
	}
}
