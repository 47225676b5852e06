package scenarios

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/roster-mesh/roster/directory/directorytest"
	"github.com/roster-mesh/roster/scenarios/mesh"
)

// The promises hold under random faults: agents are registered, refreshed, removed and
// abandoned while domains are cut from each other, nodes are killed and restarted, and
// the network loses packets. Nothing is shown past its deadline or with a later one than
// its origin granted, no ended registration comes back, no honest domain is frozen. When
// the faults end, all nodes show the same, with everything acknowledged. A failing seed
// prints its steps.
//
// Requirement: MESH-007, MESH-009, MESH-010, MESH-015, MESH-022
func TestRandomFaultsBreakNoPromise(t *testing.T) {
	runStory(t, 2, func(t *testing.T, seed uint64) {
		w := &faultStory{
			m: mesh.Start(t, mesh.Options{
				Domains: 3, Nodes: 1 + int(seed%2)*directorytest.Sample(2, 0), Seed: seed, Link: wan,
			}),
			rng: rand.New(rand.NewPCG(seed, 1)), sure: map[*mesh.Agent]time.Time{},
		}
		for range directorytest.Sample(60, 30) {
			w.step()
			w.m.Sleep(time.Duration(w.rng.IntN(45)+1) * time.Second)
			w.expire()
		}

		w.clear()
	})
}

// faultStory is one random walk of a mesh.
type faultStory struct {
	m      *mesh.Mesh
	rng    *rand.Rand
	agents []*mesh.Agent
	sure   map[*mesh.Agent]time.Time // until when it is registered, unless somebody tried to remove it
}

// step does one thing of those that can happen.
func (w *faultStory) step() {
	switch n := w.rng.IntN(20); {
	case n < 5:
		w.register()
	case n < 9:
		w.refresh()
	case n < 11:
		w.remove()
	case n < 14:
		a, b := w.two()
		w.m.Cut(a, b)
	case n < 16:
		w.m.Heal()
	case n < 18:
		w.killOrStart()
	default:
		link := []mesh.Link{wan, lossy, {Delay: 100 * time.Millisecond, Jitter: 200 * time.Millisecond,
			Reset: 0.01}}[w.rng.IntN(3)]
		w.m.Note("the network is now %+v", link)
		w.m.Net.SetAll(link)
	}
}

func (w *faultStory) register() {
	a, _ := w.two()
	name := fmt.Sprint("agent-", len(w.agents))
	lifetime := []uint32{60, 300, 3600}[w.rng.IntN(3)]
	sure := time.Now().Add(time.Duration(lifetime) * time.Second)

	agent, err := w.m.TryRegister(a, name, lifetime)
	if err == nil {
		w.agents = append(w.agents, agent)
		w.sure[agent] = sure
	}
}

func (w *faultStory) refresh() {
	if a := w.one(); a != nil {
		sure := time.Now().Add(time.Duration(a.Lifetime) * time.Second)

		err := w.m.TryRefresh(a)
		if _, held := w.sure[a]; held && err == nil {
			w.sure[a] = sure
		}
	}
}

func (w *faultStory) remove() {
	if a := w.one(); a != nil {
		delete(w.sure, a)
		_ = w.m.TryRemove(a) // noted, and whatever came of it is right
	}
}

// killOrStart starts a dead node if there is one, and otherwise kills one.
func (w *faultStory) killOrStart() {
	var all []*mesh.Node
	for _, d := range w.m.Domains {
		for _, n := range d.Nodes {
			if !n.Lives() {
				n.Restart()
				return
			}

			all = append(all, n)
		}
	}

	all[w.rng.IntN(len(all))].Kill()
}

// expire marks registrations whose time is over as not to be refreshed again.
func (w *faultStory) expire() {
	for _, a := range w.agents {
		if !a.Ended && !time.Now().Before(a.Until) {
			w.m.Abandon(a)
		}
	}
}

// clear ends all faults, and compares the views of all nodes with the acknowledged
// registrations.
func (w *faultStory) clear() {
	w.m.Note("the weather is fine")
	w.m.Net.SetAll(wan)
	w.m.Heal()

	for _, d := range w.m.Domains {
		for _, n := range d.Nodes {
			if !n.Lives() {
				n.Restart()
			}
		}
	}

	w.m.Eventually(5*time.Minute, "all nodes show the same", func() error {
		if err := w.m.Synced(); err != nil {
			return err
		}

		return w.m.Equal()
	})

	var left []*mesh.Agent
	for a, until := range w.sure {
		if time.Until(until) > time.Minute {
			left = append(left, a)
		}
	}

	if err := w.m.Seen(left...); err != nil {
		w.m.T.Errorf("acknowledged registrations are not everywhere: %v", err)
	}

	if err := w.m.Frozen(); err != nil {
		w.m.T.Error(err)
	}
}

// one returns an agent that has not ended, or nil.
func (w *faultStory) one() *mesh.Agent {
	for range w.agents {
		if a := w.agents[w.rng.IntN(len(w.agents))]; !a.Ended {
			return a
		}
	}

	return nil
}

// two returns the names of two domains.
func (w *faultStory) two() (a, b string) {
	i := w.rng.IntN(len(w.m.Domains))
	j := (i + 1 + w.rng.IntN(len(w.m.Domains)-1)) % len(w.m.Domains)

	return w.m.Domains[i].Name, w.m.Domains[j].Name
}
