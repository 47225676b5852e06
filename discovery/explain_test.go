package discovery_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/discovery"
)

func (w *world) explain(r discovery.Reader, request, name string) (*discovery.Explanation, error) {
	w.t.Helper()

	req, err := discovery.ParseRequest([]byte(request))
	if err != nil {
		w.t.Fatal(err)
	}

	e, ok := w.view.Get(alpha, w.rids[name])
	if !ok {
		w.t.Fatal(name, "is not registered")
	}

	return w.finder.Explain(w.t.(*testing.T).Context(), discovery.Query{Request: req, Reader: r}, e)
}

// While the indexes for readers that see parts are all in use, a registration is not said to be unknown.
//
// Requirement: FIND-001
func TestAnExplanationWithoutRoomIsRefused(t *testing.T) {
	w := newWorld(t, nil, planner)

	for i, member := range []string{"tags", "description", "examples", "owner", "labels"} {
		reader := discovery.Reader{Key: member, Sees: func(*directory.Entry) (directory.Redaction, bool) {
			return directory.Withhold(member), true
		}}

		_, err := w.explain(reader, `{"query":"plan a route"}`, planner.name)
		if full := i == 4; full != (directory.ProblemOf(err) == directory.Unavailable) || !full && err != nil {
			t.Errorf("the explanation for reader %d: %v", i+1, err)
		}
	}
}

// Why this one, and why not that one.
func TestAnExplanationSaysWhatBecameOfACandidate(t *testing.T) {
	w := newWorld(t, nil, planner, translator,
		agent{name: "best", description: "Route. A route by rail.", tags: []string{"route"}},
		agent{name: "tortoise", description: "Plans routes slowly, for three days or four, with a lot of rest at " +
			"each single inn and a long sleep at noon in summer."},
		agent{name: "resting", description: "Plans a route.", status: "maintenance"},
		agent{name: "old", description: "Plans a route.", age: lifetime / 2},
		agent{name: "copy-1", owner: "copier", description: wordy + "."},
		agent{name: "copy-2", owner: "copier", description: wordy + "!"},
		agent{name: "stuffed",
			description: strings.TrimSpace(strings.Repeat("route planner invoice weather flight recipe stock "+
				"house code movie language doctor ticket ", 12))})
	for i := range 5 {
		w.put(agent{name: fmt.Sprintf("busy-%d", i), owner: "busy",
			description: fmt.Sprintf("Plans routes for vehicle%d, slowly and with many words about all of it.", i)})
	}

	for _, c := range []struct {
		request, name, why string
		rank               int
	}{
		{`{"query":"route by rail"}`, "best", discovery.WhyFound, 1},
		{`{"query":"route by rail","limit":1}`, "route-planner", discovery.WhyBehind, 2},
		{`{"query":"route"}`, "translator", discovery.WhyNoMatch, 0},
		{`{"query":"route"}`, "resting", "status", 0},
		{`{"query":"route","required_tags":["language"]}`, "best", "required_tags", 0},
		{`{"query":"route","excluded_tags":["route"]}`, "best", "excluded_tags", 0},
		{`{"query":"route","protocols":["mcp"]}`, "route-planner", "protocols", 0},
		{`{"query":"route","constraints":{"max_results_age_seconds":60}}`, "old", "max_results_age_seconds", 0},
		{`{"query":"route for bicycles"}`, "copy-2", discovery.WhyDuplicate, 0},
		{`{"query":"routes slowly","limit":4}`, "busy-3", discovery.WhyPerOwner, 5},
		{`{"query":"route"}`, "stuffed", discovery.WhyFlagged, 0},
	} {
		x, err := w.explain(public, c.request, c.name)
		must(t, err)

		if x.Why != c.why || x.Rank != c.rank {
			t.Errorf("%s: %s is %s with rank %d, want %s with %d", c.request, c.name, x.Why, x.Rank, c.why, c.rank)
		}

		w.check(&x.Candidate)

		if x.Candidate.Entry.Agent != c.name || x.Candidate.Evidence == nil {
			t.Errorf("%s: explained %+v", c.request, x.Candidate)
		}

		if x.Why == discovery.WhyBehind && x.Needed <= x.Candidate.Score {
			t.Errorf("%s: %s has %v, and %v is needed", c.request, c.name, x.Candidate.Score, x.Needed)
		}
	}
}

// Requirement: XU-021
func TestAnExplanationIsSilentOnWhatIsHidden(t *testing.T) {
	w := newWorld(t, nil, planner, agent{name: "secret", description: "Plans a route.", peersOnly: true})
	if x, err := w.explain(public, `{"query":"route"}`, "secret"); !errors.Is(err, discovery.ErrUnknown) {
		t.Errorf("what is hidden is explained: %+v, %v", x, err)
	}

	everything := discovery.Reader{Key: "everything", Sees: whole(func(*directory.Entry) bool { return true })}
	if x, err := w.explain(everything, `{"query":"route"}`, "secret"); err != nil || x.Why != discovery.WhyFound {
		t.Errorf("who sees it is told %+v, %v", x, err)
	}
}
