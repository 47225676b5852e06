package scenarios

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

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
