package scenarios

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/roster-mesh/roster/scenarios/mesh"
)

// A watcher's state equals the result of a lookup: on every node of a mesh, for all
// domains, while agents are registered, refreshed and removed, peers are cut off and
// heal, and a domain dies. Expiries of the dead domain's agents arrive within a second
// of their deadlines. One connection to each node lasts throughout; only a node that
// restarts sends everything again.
//
// Requirement: AD-005, AD-024, AD-054, MESH-001, MESH-009
func TestWatchersAgreeWithLookups(t *testing.T) {
	runStory(t, 3, func(t *testing.T, seed uint64) {
		m := mesh.Start(t, mesh.Options{Domains: 3, Nodes: 1, Seed: seed, Link: wan})
		m.Register("alpha.test", "early", 86400)

		var watchers []*mesh.Watcher
		for _, n := range m.Living() {
			watchers = append(watchers, m.Watch(n))
		}

		agree := func(within time.Duration) {
			t.Helper()
			m.Eventually(within, "all watchers agree with lookups", func() error {
				var wrong []error
				for _, w := range watchers {
					if w.Node.Lives() {
						wrong = append(wrong, w.Agrees())
					}
				}

				return errors.Join(wrong...)
			})
		}
		agree(5 * time.Second)

		var brief []*mesh.Agent
		for i := range 6 {
			domain := m.Domains[i%3].Name
			m.Register(domain, fmt.Sprint("steady-", i), 3600)
			brief = append(brief, m.Register(domain, fmt.Sprint("brief-", i), 120))
		}

		for range 5 { // refreshed past their first deadlines: nothing to tell of the end
			m.Sleep(50 * time.Second)

			for _, a := range brief {
				m.Refresh(a)
			}
		}

		agree(5 * time.Second)

		for _, w := range watchers {
			if at, expired := w.Expired(brief[0]); expired {
				t.Errorf("%s reports at %v that a refreshed agent has expired", w.Node.Name, at)
			}
		}

		m.Remove(brief[0])

		m.CutOff("beta.test")
		m.Register("beta.test", "hermit", 3600)
		m.Register("alpha.test", "meanwhile", 3600)
		m.Sleep(30 * time.Second)
		agree(5 * time.Second)
		m.Heal()
		m.Eventually(2*time.Minute, "the domains are synchronised", m.Synced)
		agree(5 * time.Second)

		m.Domain("gamma.test").Kill()

		for _, a := range brief {
			m.Abandon(a)
		}

		m.Sleep(3 * time.Minute)
		agree(5 * time.Second)

		for _, a := range brief[1:] {
			for _, w := range watchers {
				if at, expired := w.Expired(a); w.Node.Lives() && (!expired || at.After(a.Until.Add(time.Second))) {
					t.Errorf("%s reports the end of %s of %s at %v (%v); it was due by %v", w.Node.Name, a.Name,
						a.Domain, at, expired, a.Until)
				}
			}
		}

		m.Domain("gamma.test").Nodes[0].Restart()
		m.Eventually(2*time.Minute, "the domains are synchronised again", m.Synced)
		agree(time.Minute) // its clients have to notice, too

		for _, w := range watchers {
			want := 1
			if w.Node.Domain.Name == "gamma.test" {
				want = 2
			}

			if streams, resets := w.Streams(); streams != want || resets != want {
				t.Errorf("%s was watched over %d connections and sent everything %d times, want %d", w.Node.Name,
					streams, resets, want)
			}
		}
	})
}
