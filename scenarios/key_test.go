package scenarios

import (
	"testing"
	"time"

	"github.com/roster-mesh/roster/directory/directorytest"
	"github.com/roster-mesh/roster/scenarios/mesh"
)

// Nodes of a domain get new signing keys, one after the other and then all at once. The
// others sign the same payloads meanwhile, the domain's next key document lists the new
// keys instead of the old, and peers accept them at once. No announcement is lost or
// late.
func TestNewSigningKeysLoseNothing(t *testing.T) {
	runStory(t, 1, func(t *testing.T, seed uint64) {
		m := mesh.Start(t, mesh.Options{Domains: 2, Nodes: directorytest.Sample(3, 1), Seed: seed, Link: wan})
		alpha := m.Domain("alpha.test")
		registered := []*mesh.Agent{m.Register("alpha.test", "first", 86400)}
		m.Eventually(5*time.Second, "it is seen", func() error { return m.Seen(registered...) })

		renew := func(what string, nodes ...*mesh.Node) {
			t.Helper()

			for _, n := range nodes {
				n.Kill()
				n.LoseKey()
			}

			for _, n := range nodes {
				n.Restart()
			}

			m.Eventually(time.Minute, "the nodes are ready with new keys", func() error {
				for _, n := range nodes {
					if err := n.Ready(); err != nil {
						return err
					}
				}

				return nil
			})
			registered = append(registered, m.Register("alpha.test", what, 86400))
			m.Eventually(5*time.Second, "announcements signed by the new key are accepted", func() error {
				return m.Seen(registered...)
			})
		}
		for _, n := range alpha.Nodes {
			renew("after-"+n.Name[len(n.Name)-1:], n)
		}

		renew("after-all", alpha.Nodes...)
		m.Sleep(10 * time.Minute)

		if err := m.Seen(registered...); err != nil {
			t.Error(err)
		}
	})
}
