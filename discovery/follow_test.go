package discovery_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roster-mesh/roster/discovery"
)

// What is in the view when a query begins is searched.
func TestChangesAreSeenAtOnce(t *testing.T) {
	w := newWorld(t, nil, planner, translator)
	expect(t, w.ask(`{"query":"route"}`), "route-planner")
	w.put(agent{name: "second-planner", description: "Plans a route."})

	if res := w.ask(`{"query":"route"}`); len(res.Candidates) != 2 {
		t.Errorf("after a registration found %q", names(res))
	}

	w.put(agent{name: "route-planner", description: "Bakes bread now.", tags: []string{"bakery"}})
	expect(t, w.ask(`{"query":"bread","required_tags":["bakery"]}`), "route-planner")
	expect(t, w.ask(`{"query":"fastest"}`))
	expect(t, w.ask(`{"query":"bread","required_tags":["maps"]}`))
	w.remove("second-planner")
	expect(t, w.ask(`{"query":"route"}`), "route-planner") // by its name
	w.put(agent{name: "far", origin: beta, description: "Plans a route."})
	expect(t, w.ask(`{"query":"route","constraints":{"origins":["beta.test"]}}`), "far")
	w.view.Drop(beta)
	expect(t, w.ask(`{"query":"route","constraints":{"origins":["beta.test"]}}`))
}

// Requirement: XU-047
func TestWhatHasExpiredIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil, planner, agent{name: "gone-soon", description: "Plans a route.",
			age: lifetime - time.Minute})

		ctx, stop := context.WithCancel(t.Context())
		must(t, w.finder.CatchUp(ctx))

		var following sync.WaitGroup
		following.Go(func() { _ = w.finder.Run(ctx) })

		if res := w.ask(`{"query":"route","include_evidence":true}`); len(res.Candidates) != 2 {
			t.Errorf("before, found %q", names(res))
		}

		time.Sleep(time.Minute)
		expect(t, w.ask(`{"query":"route"}`), "route-planner")
		time.Sleep(time.Minute) // and its words with it
		synctest.Wait()
		alone := newWorld(t, nil, planner)
		got := w.ask(`{"query":"route","include_evidence":true}`)

		want := alone.ask(`{"query":"route","include_evidence":true}`)
		if got.Candidates[0].Evidence.Terms[0].IDF != want.Candidates[0].Evidence.Terms[0].IDF {
			t.Errorf("the word tells %v; without the one that is gone %v", got.Candidates[0].Evidence.Terms[0],
				want.Candidates[0].Evidence.Terms[0])
		}

		stop()
		following.Wait()
	})
}

// Queries, changes and the loop that follows them at once: what was acknowledged
// before a query is in its answer.
func TestFindingWhileRegistering(t *testing.T) {
	w := newWorld(t, nil)

	ctx, stop := context.WithCancel(t.Context())
	must(t, w.finder.CatchUp(ctx))

	var tasks sync.WaitGroup
	tasks.Go(func() { _ = w.finder.Run(ctx) })

	var (
		done    sync.WaitGroup
		writing sync.Mutex
	)
	for i := range 4 {
		done.Go(func() {
			for j := range 50 {
				word := fmt.Sprintf("uncommon%dx%d", i, j)
				writing.Lock()
				w.put(agent{name: word, description: "Speaks of " + word + "."})
				writing.Unlock()

				r, err := discovery.ParseRequest(fmt.Appendf(nil, `{"query":%q}`, word))
				if err != nil {
					t.Error(err)
					return
				}

				res, err := w.finder.Find(ctx, discovery.Query{Request: r, Reader: public})
				if err != nil || len(res.Candidates) != 1 || res.Candidates[0].Entry.Agent != word {
					t.Errorf("%s is not found: %v, %v", word, res, err)
				}
			}
		})
	}

	done.Wait()
	stop()
	tasks.Wait()
}
