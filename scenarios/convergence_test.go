package scenarios

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/roster-mesh/roster/scenarios/mesh"
)

// lossy is a network that loses every twentieth segment.
var lossy = mesh.Link{Delay: 10 * time.Millisecond, Jitter: 5 * time.Millisecond, Loss: 0.05}

// A change is known everywhere in a moment: ten domains of three nodes (three
// of one but in the long run), a registration at one of them, and all the others show
// it with all of its provenance, with and without gossip, where the network is well and
// where it loses every twentieth segment. The time is the network's and the protocol's
// own: a bubble does not count the processor's.
//
// Requirement: MESH-001, MESH-011
func TestAChangeConvergesQuickly(t *testing.T) {
	for _, noGossip := range []bool{false, true} {
		t.Run(fmt.Sprintf("gossip %v", !noGossip), func(t *testing.T) {
			runStory(t, 1, func(t *testing.T, seed uint64) {
				m := mesh.Start(t, mesh.Options{
					Domains: long(10, 3), Nodes: long(3, 1), Seed: seed, Link: wan, NoGossip: noGossip,
				})
				spread(m, "well", wan, time.Second)
				spread(m, "lossy", lossy, 5*time.Second)

				if err := m.Equal(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// spread registers agents at one domain after another, and holds how long the
// last node took to show each against a bound that 99 of 100 keep.
func spread(m *mesh.Mesh, name string, link mesh.Link, bound time.Duration) {
	m.T.Helper()
	m.Net.SetAll(link)

	var took []time.Duration
	for i := range long(100, 10) {
		d := m.Domains[i%len(m.Domains)]
		a := m.Register(d.Name, fmt.Sprint(name, i), 86400)
		left := m.Living()
		took = append(took, m.Eventually(time.Minute, a.Name+" is seen everywhere", func() error {
			left = slices.DeleteFunc(left, func(n *mesh.Node) bool {
				all, err := m.Lookup(n)
				_, shown := all[a.RID]

				return err == nil && shown
			})
			if len(left) > 0 {
				return fmt.Errorf("%d nodes do not show it", len(left))
			}

			return nil
		}))
		time.Sleep(time.Second)
	}

	slices.Sort(took)
	p99 := took[(len(took)*99+99)/100-1] // of fewer than a hundred, the slowest
	m.T.Logf("%s: half of %d changes took %v, the slowest of 99 of 100 %v, the slowest %v", name, len(took),
		took[len(took)/2], p99, took[len(took)-1])

	if p99 >= bound {
		m.T.Errorf("%s: a change took %v at the 99th percentile", name, p99)
	}
}

// A mesh in which nothing happens is quiet: ten domains of three nodes (three of
// one but in the long run), and ten minutes of their gossip, heads and keep-alives.
//
// Requirement: MESH-012
func TestAnIdleMeshIsQuiet(t *testing.T) {
	runStory(t, 1, func(t *testing.T, seed uint64) {
		m := mesh.Start(t, mesh.Options{Domains: long(10, 3), Nodes: long(3, 1), Seed: seed, Link: wan})

		const quiet = 10 * time.Minute
		time.Sleep(time.Minute) // the last words of the start
		before := m.FederationSent()
		time.Sleep(quiet)
		each := float64(m.FederationSent()-before) / quiet.Seconds() / float64(len(m.Living()))
		t.Logf("%.0f bytes a second and node", each)

		if each >= 2048 {
			t.Errorf("a node that has nothing to say sends %.0f bytes a second", each)
		}
	})
}
