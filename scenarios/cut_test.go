package scenarios

import (
	"fmt"
	"testing"
	"time"

	"github.com/roster-mesh/roster/scenarios/mesh"
)

// A removed agent does not come back after a cut: a domain that missed the removal shows
// the agent meanwhile, drops it after the heal, and never shows it again, through
// restarts and exchanges.
//
// Requirement: MESH-010
func TestARemovedAgentStaysRemoved(t *testing.T) {
	story(t)

	runStory(t, 2, func(t *testing.T, seed uint64) {
		m := mesh.Start(t, mesh.Options{Domains: 3, Nodes: 1, Seed: seed, Link: wan})
		removed := m.Register("alpha.test", "removed", 86400)
		kept := m.Register("alpha.test", "kept", 86400)
		m.Eventually(time.Second, "both are seen everywhere", func() error { return m.Seen(removed, kept) })
		m.CutOff("beta.test")
		m.Remove(removed)
		beta := m.Domain("beta.test").Nodes[0]
		m.Sleep(time.Hour)

		if all, err := m.Lookup(beta); err != nil || len(all) != 2 {
			t.Errorf("beta.test shows %d of 2 agents while it is cut off: %v", len(all), err)
		}

		m.Heal()
		took := m.Eventually(2*time.Minute, "beta.test shows the removal", func() error {
			return m.Gone(removed)
		})
		t.Logf("removal shown %v after the heal", took)

		for _, n := range m.Living() {
			n.Kill()
			m.Sleep(time.Minute)
			n.Restart()
			m.Sleep(10 * time.Minute)

			if err := m.Gone(removed); err != nil {
				t.Errorf("after %s restarted: %v", n.Name, err)
			}
		}

		m.Eventually(time.Minute, "the other agent is still seen everywhere", func() error { return m.Seen(kept) })
	})
}

// A gap starts a pull: changes behind a short cut, made faster than they could be
// announced, arrive completely and in their last state.
//
// Requirement: MESH-005
func TestAGapIsPulled(t *testing.T) {
	runStory(t, 2, func(t *testing.T, seed uint64) {
		m := mesh.Start(t, mesh.Options{Domains: 2, Nodes: 1, Seed: seed, Link: wan})
		agents := make([]*mesh.Agent, 60)
		m.Cut("alpha.test", "beta.test")

		for i := range agents {
			agents[i] = m.Register("alpha.test", fmt.Sprintf("agent-%d", i), 3600)
		}

		for _, a := range agents[:20] {
			m.Remove(a)
		}

		m.Sleep(time.Minute)
		m.Heal()
		m.Eventually(2*time.Minute, "the changes are known", func() error { return m.Seen(agents[20:]...) })

		if err := m.Gone(agents[:20]...); err != nil {
			t.Error(err)
		}

		if err := m.Equal(); err != nil {
			t.Error(err)
		}
	})
}
