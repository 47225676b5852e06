package discovery_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/roster-mesh/roster/discovery/content"
)

// theWorld is what honest agents of many trades say.
func theWorld() []agent {
	var all []agent
	for trade, example := range map[string]string{
		"route planner":    "the fastest bicycle route from Porto to Lisbon along the coast",
		"invoice writer":   "an invoice over three hours of gardening to my neighbour Smith",
		"weather reporter": "tomorrow's weather in the mountains, with wind and snow line",
		"flight finder":    "a cheap flight to Oslo in March with one suitcase",
		"recipe collector": "a vegetarian recipe with pumpkin, lentils and little else",
		"stock analyst":    "how the stock of railway companies did over ten years",
		"house finder":     "a small house with garden near a school and station",
		"code reviewer":    "the code of my pull request against common security mistakes",
		"movie critic":     "a movie for children about whales that is not sad",
		"language teacher": "irregular verbs of the Portuguese language by playful exercises",
		"doctor assistant": "an appointment with a skin doctor on Friday afternoon",
		"ticket seller":    "two tickets for the opera ticket office's cheapest row",
	} {
		words := strings.Fields(trade)
		all = append(all, agent{
			name: strings.ReplaceAll(trade, " ", "-"),
			description: fmt.Sprintf("A %s that answers questions about every %s you may have, with sources.", trade,
				words[0]),
			tags: words, examples: []string{"Get me " + example + " before the end of this busy week"},
		})
	}

	slices.SortFunc(all, func(a, b agent) int { return strings.Compare(a.name, b.name) })

	return all
}

// Requirement: XU-030
func TestWhatIsWrittenForRankersIsFlaggedAndRanksLow(t *testing.T) {
	var words, queries []string
	for _, a := range theWorld() {
		words = append(words, strings.Split(a.name, "-")...)
		queries = append(queries, a.examples...)
	}

	for _, c := range []struct {
		flag    content.Flags
		stuffed agent
	}{
		{content.FlagRepetition,
			agent{name: "repeats", description: strings.TrimSpace(strings.Repeat(strings.Join(words, " ")+" ", 8))}},
		{content.FlagDensity, agent{name: "lists", description: strings.Join(words, ", ")}},
		{content.FlagDensity, agent{name: "tags", description: "An agent.",
			tags: slices.Compact(slices.Sorted(slices.Values(words)))}},
		{content.FlagScatter, agent{name: "copies", description: "Does everything.", examples: queries}},
	} {
		w := newWorld(t, nil, theWorld()...)
		w.put(c.stuffed)

		for _, a := range theWorld() {
			if res := w.ask(fmt.Sprintf(`{"query":%q,"limit":5}`, a.examples[0])); slices.Contains(names(res),
				c.stuffed.name) || names(res)[0] != a.name {
				t.Errorf("%q finds %q", a.examples[0], names(res))
			}
		}

		flagged := w.finder.Flagged(10)
		if len(flagged) != 1 || flagged[0].RID != w.rids[c.stuffed.name] || flagged[0].Flags&c.flag == 0 {
			t.Errorf("flagged are %+v, want %s for %s", flagged, c.stuffed.name, c.flag)
		}

		// Who asks for it by name finds it, and sees what is wrong.
		res := w.ask(fmt.Sprintf(`{"query":%q,"include_evidence":true}`, c.stuffed.name))
		if got := res.Candidates; len(got) != 1 || got[0].Components.Policy > .1 ||
			!slices.Equal(got[0].Evidence.Flags, got[0].Flags.Names()) || got[0].Flags&c.flag == 0 {
			t.Errorf("by its name %q finds %+v", c.stuffed.name, got)
		}

		w.put(agent{name: c.stuffed.name, description: "Speaks plainly now."})

		if len(w.finder.Flagged(10)) != 0 {
			t.Errorf("%s is flagged still", c.stuffed.name)
		}
	}
}

// Requirement: XU-030
func TestNearDuplicatesOfAnOwnerCollapse(t *testing.T) {
	text := "Plans the fastest route between two places for cars, bicycles, trucks and people on foot"
	w := newWorld(t, nil,
		agent{name: "one", owner: "copier", description: text + "."},
		agent{name: "two", owner: "copier", description: text + "!"},
		agent{name: "rival", description: text + "."})
	res := w.ask(`{"query":"fastest route for bicycles","include_evidence":true}`)
	expect(t, res, "one", "rival")

	if got := res.Candidates[0].Evidence.Flags; !slices.Equal(got, []string{"duplicate"}) {
		t.Errorf("the one that stands for two has the flags %q", got)
	}

	if got := res.Candidates[1].Flags; got != 0 || res.Candidates[0].Components.Policy != 1 {
		t.Errorf("the rival has the flags %q, policy of the first is %v", got, res.Candidates[0].Components.Policy)
	}
}
