package scenarios

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/roster-mesh/roster/directory/directorytest"
	"github.com/roster-mesh/roster/scenarios/mesh"
)

// A domain's operator rotates and revokes its nodes' keys while agents come all the
// time. Every node signs with another key afterwards, a revoked key is out of the key
// document that each node of its peers has within five seconds, and nothing that was registered is
// lost, before, between or after.
//
// Requirement: TRUST-010
func TestKeysAreRotatedAndRevokedUnderTraffic(t *testing.T) {
	runStory(t, 2, func(t *testing.T, seed uint64) {
		m := mesh.Start(t, mesh.Options{Domains: 3, Nodes: directorytest.Sample(3, 1), Seed: seed, Link: wan})
		alpha := m.Domain("alpha.test")
		peers := slices.Concat(m.Domain("beta.test").Nodes, m.Domain("gamma.test").Nodes)

		var registered []*mesh.Agent
		traffic := func() {
			t.Helper()

			for range 3 {
				registered = append(registered, m.Register("alpha.test", fmt.Sprint("agent-", len(registered)), 3600))
			}

			m.Eventually(5*time.Second, "all is seen", func() error { return m.Seen(registered...) })
		}
		traffic()

		for _, n := range alpha.Nodes {
			before := n.Key()
			n.RotateKey()

			if now := n.Key(); now == before {
				t.Fatalf("%s signs with %s still", n.Name, now)
			}

			traffic()
			stolen := n.Key()
			n.RevokeKey(stolen)
			took := m.Eventually(5*time.Second, "every node of the peers knows that the key is revoked", func() error {
				for _, peer := range peers {
					if err := peer.Revoked(n, stolen); err != nil {
						return err
					}
				}

				return nil
			})
			t.Logf("revoked at all peers after %v", took)
			m.Eventually(5*time.Second, n.Name+" has another key", func() error {
				if now := n.Key(); now == stolen || now == "" {
					return fmt.Errorf("it has %q", now)
				}

				return n.Ready()
			})
			traffic()
		}

		killed(m, alpha.Nodes[0]).Restart()
		m.Eventually(time.Minute, "all is seen after a restart", func() error { return m.Seen(registered...) })

		if err := m.Frozen(); err != nil {
			t.Error(err)
		}
	})
}

// killed kills a node and returns it.
func killed(m *mesh.Mesh, n *mesh.Node) *mesh.Node {
	n.Kill()
	return n
}
