package scenarios

import (
	"testing"
	"time"

	"github.com/roster-mesh/roster/scenarios/mesh"
)

// A dead origin's agents expire everywhere on time: while it is silent they go on
// being served, each until its own deadline, and then they are gone without
// anybody's word. When it comes back, nothing that ended does.
//
// Requirement: AD-005, AD-024, MESH-009
func TestADeadOriginsAgentsExpireOnTime(t *testing.T) {
	runStory(t, 2, func(t *testing.T, seed uint64) {
		m := mesh.Start(t, mesh.Options{Domains: 3, Nodes: 1, Seed: seed, Link: wan})
		first := m.Register("alpha.test", "first", 120)
		second := m.Register("alpha.test", "second", 300)
		other := m.Register("beta.test", "other", 3600)
		m.Eventually(10*time.Second, "all are seen everywhere", func() error { return m.Seen(first, second, other) })
		m.Domain("alpha.test").Kill()
		m.Abandon(first)
		m.Abandon(second)

		sleepUntil(m, first.Until.Add(-2*time.Second)) // deadlines are whole seconds

		if err := m.Seen(first, second, other); err != nil {
			t.Errorf("before the first deadline: %v", err)
		}

		sleepUntil(m, first.Until)

		if err := m.Gone(first); err != nil {
			t.Errorf("at the first deadline: %v", err)
		}

		sleepUntil(m, second.Until.Add(-2*time.Second))

		if err := m.Seen(second, other); err != nil {
			t.Errorf("before the second deadline: %v", err)
		}

		sleepUntil(m, second.Until)

		if err := m.Gone(first, second); err != nil {
			t.Errorf("at the second deadline: %v", err)
		}

		for _, n := range m.Domain("alpha.test").Nodes {
			n.Restart()
		}

		m.Sleep(10 * time.Minute)

		if err := m.Gone(first, second); err != nil {
			t.Errorf("after the origin's return: %v", err)
		}

		if err := m.Seen(other); err != nil {
			t.Error(err)
		}
	})
}
