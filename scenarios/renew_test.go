package scenarios

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/roster-mesh/roster/scenarios/mesh"
)

// Nodes go on hearing each other when the SVIDs have ended by which their connections
// were made, and miss nothing: a connection is given up before its certificate ends,
// and the next one is made with the new one.
//
// Requirement: TRUST-002
func TestConnectionsOutliveNoSVID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := mesh.Start(t, mesh.Options{Domains: 2, NoGossip: true, SVIDs: 10 * time.Minute})
		for round := range 6 {
			m.Sleep(4 * time.Minute)

			for _, d := range m.Domains {
				m.Domain(d.Name).Renew()
			}

			agent := m.Register("alpha.test", "agent-"+string(rune('a'+round)), 86400)
			// At worst its long poll died with a connection: that is noticed when its time is over.
			m.Eventually(45*time.Second, "the peer has it", func() error { return m.Seen(agent) })
		}
	})
}
