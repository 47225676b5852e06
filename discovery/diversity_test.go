package discovery_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/discovery"
)

// diversify orders candidates that are in the order of their scores as discovery.md 6
// says it, as plainly as it can be said: at each place stands the best that is left,
// unless its owner has three before and another owner, which has not, has one of half
// the score at least.
func diversify(plain []discovery.Candidate) []discovery.Candidate {
	left := slices.Clone(plain)

	var order []discovery.Candidate
	for len(left) > 0 {
		placed := map[directory.Identity]int{}
		for _, c := range order {
			placed[c.Entry.Owner]++
		}

		best := 0
		if placed[left[0].Entry.Owner] >= discovery.DefaultPerOwner {
			other := slices.IndexFunc(left, func(c discovery.Candidate) bool {
				return placed[c.Entry.Owner] < discovery.DefaultPerOwner && c.Score >= left[0].Score/2
			})
			best = max(0, other)
		}

		order = append(order, left[best])
		left = slices.Delete(left, best, best+1)
	}

	return order
}

func falls(all []discovery.Candidate) bool {
	return slices.IsSortedFunc(all, func(a, b discovery.Candidate) int {
		switch {
		case a.Score > b.Score:
			return -1
		case a.Score < b.Score:
			return 1
		}

		return 0
	})
}

// Requirement: FIND-001
func TestAnAnswerIsOrderedAsANaiveModelOrdersIt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, nil)
		defer w.finder.Close()

		few := rapid.SliceOfN(rapid.SampledFrom(modelWords), 1, 4) // too few to be near duplicates
		for i := range rapid.IntRange(1, 30).Draw(t, "registrations") {
			w.put(agent{
				name: fmt.Sprintf("n%d", i), description: strings.Join(few.Draw(t, "description"), " "),
				owner: rapid.SampledFrom([]string{"busy", "busy", "busy", "second", "third", fmt.Sprint("own-", i)}).
					Draw(t, "owner"),
			})
		}

		query := strings.Join(few.Draw(t, "query"), " ")
		limit := rapid.IntRange(1, 30).Draw(t, "limit")

		plain := w.ask(fmt.Sprintf(`{"query":%q,"limit":100,"diversity":false}`, query))
		if !falls(plain.Candidates) || len(plain.Warnings) > 0 {
			t.Fatalf("in plain order %q with the warnings %q", names(plain), plain.Warnings)
		}

		want := diversify(plain.Candidates)
		page := want[:min(limit, len(want))]

		got := w.ask(fmt.Sprintf(`{"query":%q,"limit":%d}`, query, limit))
		if !slices.EqualFunc(got.Candidates, page, sameCandidate) || got.More != (len(want) > limit) {
			t.Fatalf("%q, limit %d: found %q, want %q of %d", query, limit, names(got),
				names(&discovery.Result{Candidates: page}), len(want))
		}

		if warned := slices.Equal(got.Warnings, []string{discovery.WarnDiversified}); warned == falls(page) {
			t.Fatalf("%q warns %q", names(got), got.Warnings)
		}
	})
}

// Requirement: FIND-001
func TestAnOwnerOfEverythingFillsThePage(t *testing.T) {
	w := newWorld(t, nil)
	for i := range 15 {
		w.put(agent{name: fmt.Sprintf("planner-%d", i), owner: "busy", description: "Plans a route."})
	}

	res := w.ask(`{"query":"plan a route"}`)
	if len(res.Candidates) != 10 || !res.More || len(res.Warnings) > 0 {
		t.Errorf("found %q, more: %v, with the warnings %q", names(res), res.More, res.Warnings)
	}
}

// Requirement: FIND-001, XU-030
func TestAnOwnerHasItsShareBeforeOthersThatMatchAboutAsWell(t *testing.T) {
	w := newWorld(t, nil)
	for i := range 8 {
		w.put(agent{name: fmt.Sprintf("planner-%d", i), owner: "busy", description: "Plans a route."})
	}

	w.put(agent{name: "other", description: "Plans a route, or a holiday."})
	w.put(agent{name: "far", owner: "busy", origin: beta, description: "Plans a route by rail."})
	w.put(agent{name: "hardly", description: "Sells flowers, bread and newspapers at the station, has maps, and " +
		"once asked for it shows you the route to the zoo."})

	res := w.ask(`{"query":"plan a route"}`)
	expect(t, res, "planner-0", "planner-1", "planner-2", "other", "far", "planner-3", "planner-4", "planner-5",
		"planner-6", "planner-7")

	if !slices.Equal(res.Warnings, []string{discovery.WarnDiversified}) {
		t.Errorf("the warnings are %q", res.Warnings)
	}

	plain := []string{"planner-0", "planner-1", "planner-2", "planner-3", "planner-4", "planner-5", "planner-6",
		"planner-7"}
	expect(t, w.ask(`{"query":"plan a route","limit":8,"diversity":false}`), plain...)
	expect(t, w.ask(`{"query":"plan a route","limit":8,"constraints":{"origins":["alpha.test"]}}`), plain...)
	res = w.ask(`{"query":"plan a route","constraints":{"owners":"spiffe://alpha.test/busy"}}`)
	expect(t, res, plain...)

	if got := string(res.Applied["owners"]); got != `["spiffe://alpha.test/busy"]` || res.Excluded["owners"] != 3 ||
		len(res.Warnings) > 0 {
		t.Errorf("of one owner: applied %s, excluded %v, warnings %q", res.Applied, res.Excluded, res.Warnings)
	}
}

// Whose registration it is may have changed, without a change of what it says.
//
// Requirement: FIND-001
func TestATransferMovesARegistrationToTheShareOfItsNewOwner(t *testing.T) {
	w := newWorld(t, nil)
	for i := range 4 {
		w.put(agent{name: fmt.Sprintf("planner-%d", i), owner: "busy", description: "Plans a route."})
	}

	moved := *w.put(agent{name: "planner-4", owner: "busy", description: "Plans a route."})
	w.ask(`{"query":"plan a route"}`)
	moved.Owner = ownerOf(7)
	moved.Revision++
	w.view.Own().Put(&moved)
	expect(t, w.ask(`{"query":"plan a route","limit":4}`), "planner-0", "planner-1", "planner-2", "planner-4")
	expect(t, w.ask(fmt.Sprintf(`{"query":"plan a route","constraints":{"owners":%q}}`, ownerOf(7))), "planner-4")
}

// Whoever isn't told who owns what can't find out by asking.
//
// Requirement: FIND-001, XU-021
func TestAnOwnerThatIsWithheldIsNotFoundByIt(t *testing.T) {
	w := newWorld(t, nil, agent{name: "planner", owner: "ada", description: "Plans a route."})
	masked := discovery.Reader{Key: "masked", Sees: func(*directory.Entry) (directory.Redaction, bool) {
		return directory.Withhold(directory.MemberRegistrant), true
	}}
	expect(t, w.askAs(masked, `{"query":"route"}`), "planner")
	mine := w.askAs(masked, `{"query":"route","constraints":{"owners":"spiffe://alpha.test/ada"}}`)

	others := w.askAs(masked, `{"query":"route","constraints":{"owners":"spiffe://alpha.test/eve"}}`)
	if len(mine.Candidates) != 0 || mine.Excluded["owners"] != 1 || others.Excluded["owners"] != 1 {
		t.Errorf("of the owner found %q and excluded %v, of another %v", names(mine), mine.Excluded, others.Excluded)
	}
}

// What a reader sees whole and what it sees in part shares one page.
//
// Requirement: FIND-001
func TestSharesAreOfAllThatAReaderSees(t *testing.T) {
	w := newWorld(t, nil)
	for i := range 6 {
		w.put(agent{name: fmt.Sprintf("planner-%d", i), owner: "busy", description: "Plans a route.",
			peersOnly: i%2 == 1})
	}

	for i := range 4 {
		w.put(agent{name: fmt.Sprintf("rival-%d", i), description: "Plans a route by rail.", peersOnly: i%2 == 1})
	}

	reader := discovery.Reader{Key: "some", Sees: func(e *directory.Entry) (directory.Redaction, bool) {
		if e.Visibility.Mesh {
			return directory.Redaction{}, true
		}

		return directory.Withhold("tags"), true
	}}
	res := w.askAs(reader, `{"query":"plan a route","limit":7}`)
	busy := func(c discovery.Candidate) bool { return strings.HasPrefix(c.Entry.Agent, "planner-") }

	first := slices.IndexFunc(res.Candidates, func(c discovery.Candidate) bool { return !busy(c) })
	if len(res.Candidates) != 7 || first != 3 || slices.ContainsFunc(res.Candidates[3:], busy) || !res.More {
		t.Errorf("found %q, more: %v", names(res), res.More)
	}
}

// wordy is a description in which the number in a name makes no difference.
const wordy = "Plans the fastest route between two places for cars, bicycles, trucks, ships, aeroplanes, trains, " +
	"horses and people on foot, with maps of roads, rivers, huts and skies"

// Requirement: FIND-001
func TestAShortAnswerSaysWhatIsLeftOut(t *testing.T) {
	w := newWorld(t, nil)
	for i := range 6 {
		w.put(agent{name: fmt.Sprintf("copy-%d", i), owner: "copier", description: wordy + strings.Repeat("!", i)})
	}

	res := w.ask(`{"query":"fastest route for bicycles"}`)
	expect(t, res, "copy-0")

	if !slices.Equal(res.Warnings, []string{discovery.WarnCollapsed}) {
		t.Errorf("the warnings are %q", res.Warnings)
	}

	expect(t, w.ask(`{"query":"fastest route for bicycles","diversity":false}`), "copy-0")

	// Behind the share of their owner they are copies as well.
	for i := range 3 {
		w.put(agent{name: fmt.Sprintf("racer-%d", i), owner: "copier", description: "Fastest route for bicycles."})
	}

	expect(t, w.ask(`{"query":"fastest route for bicycles"}`), "racer-0", "racer-1", "racer-2", "copy-0")
	w.put(agent{name: "racer-0", description: "Paints."})
	w.put(agent{name: "racer-1", description: "Paints."})
	w.put(agent{name: "racer-2", description: "Paints."})

	if res := w.ask(`{"query":"fastest route for bicycles","constraints":{"origins":"alpha.test"}}`); len(res.Candidates) != 6 || len(res.Warnings) > 0 {
		t.Errorf("of one origin found %q with the warnings %q", names(res), res.Warnings)
	}
}

// Behind many copies of an owner's best match its other matches are found.
//
// Requirement: FIND-001
func TestCopiesHideNothingElseOfTheirOwner(t *testing.T) {
	w := newWorld(t, nil)
	for i := range 60 {
		w.put(agent{name: fmt.Sprintf("copy-%d", i), owner: "copier", description: wordy + strings.Repeat("!", i)})
	}

	w.put(agent{name: "map", owner: "copier", description: "Draws each route."})
	w.put(agent{name: "old", description: "Fastest route for bicycles.", age: time.Hour})

	res := w.ask(`{"query":"fastest route for bicycles","limit":2,"constraints":{"max_results_age_seconds":60}}`)
	expect(t, res, "copy-0", "map")

	// What a round leaves out is counted, though the next round doesn't look at it again.
	if n := res.Excluded["max_results_age_seconds"]; n != 1 {
		t.Errorf("of one old registration, %d are counted", n)
	}
}

// One owner has everything that matches best, 10^5 times, and another as often what
// says the same. They hide nobody, and to find that out costs little.
//
// Requirement: FIND-001
func TestAnOwnerOfEverythingHidesNobody(t *testing.T) {
	size := 100_000
	if testing.Short() {
		size = 5_000
	}

	w := newWorld(t, nil)
	template := w.put(agent{name: "template", description: "Plans a route."})

	put := func(i int, owner directory.Identity, name, description string) {
		e := *template
		e.Agent, e.RID, e.Created, e.Owner = name, ridOf(i), uint64(i+10), owner
		p := *template.Projection()
		p.Name, p.Description = e.Agent, description
		e.Packed = directory.Pack(e.Document, &p)
		w.view.Own().Put(&e)
	}
	for i := range size {
		put(i, ownerOf(1), fmt.Sprint("planner-", i), "Plans a route.")
		put(size+i, ownerOf(2), fmt.Sprint("copy-", i), wordy)
	}

	put(2*size, ownerOf(3), "rival", "Plans a route for people who have time, and has maps.")

	must(t, w.finder.CatchUp(t.Context()))

	for _, query := range []string{"plan a route", "plan the fastest route for bicycles"} {
		began := time.Now()
		res := w.ask(fmt.Sprintf(`{"query":%q}`, query))
		t.Log(query, "took", time.Since(began), "and found", names(res))

		if len(res.Candidates) != 10 || !slices.Contains(names(res)[:7], "rival") ||
			!slices.Equal(res.Warnings, []string{discovery.WarnDiversified}) {
			t.Errorf("%s: found %q with the warnings %q", query, names(res), res.Warnings)
		}
	}
}
