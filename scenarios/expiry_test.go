package scenarios

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roster-mesh/roster/node/config"
	"github.com/roster-mesh/roster/scenarios/mesh"
)

// The one script that lets time pass runs in virtual time, against a real node.
func TestExpiryScript(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := mesh.Start(t, mesh.Options{Domains: 1, Nodes: 1})
		n := m.Domains[0].Nodes[0]

		clients := map[string]*http.Client{}
		for _, who := range []string{"ada", "bob", "eve"} {
			clients[who] = n.HTTP("/agent/" + who)
		}

		clients["commissioner"] = n.HTTP("/tool/commissioner")
		clients["anonymous"] = n.HTTP("")
		runScript(t, "../api/testdata/jimenez-4.4-expiry.txt", scriptEnv{
			URL: n.URL(), Domain: m.Domains[0].Name, Wait: time.Sleep,
			Client: func(who string) *http.Client { return clients[who] },
		})
	})
}

// A registration is shown on every surface of every node until its deadline, and on none
// from then on, before any sweep: lookups, ranked queries, documents, tools, the gateway.
//
// Requirement: AD-024, MESH-009
func TestEverySurfaceEndsAtTheDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := mesh.Start(t, mesh.Options{Domains: 2, Nodes: 1, Configure: func(c *config.Config) {
			c.Gateway.Enabled = true
		}})
		own, foreign := m.Register("alpha.test", "own", 60), m.Register("beta.test", "foreign", 90)
		m.Eventually(10*time.Second, "both are seen everywhere", func() error { return m.Seen(own, foreign) })
		m.Sleep(5 * time.Second)

		for _, agent := range []*mesh.Agent{own, foreign} {
			m.ShownOnSurfaces(agent, true)
			m.Abandon(agent)

			deadline := m.Deadline(agent)

			// What is cached just before the deadline must not outlive it.
			time.Sleep(time.Until(deadline.Add(-time.Millisecond)))
			m.ShownOnSurfaces(agent, true)

			time.Sleep(time.Until(deadline))
			m.ShownOnSurfaces(agent, false)
		}
	})
}
