package scenarios

import (
	"fmt"
	"strings"
	"testing"
	"time"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/directory/directorytest"
	"github.com/roster-mesh/roster/scenarios/mesh"
)

// A domain is restored from an old backup, with one member dead and one peer cut off; a
// second time, from the same file; and much later, when most of the file has expired.
// The restored registrations are visible at home. Peers show only those that owners have
// refreshed since: none that were removed before or after the backup, and none that were
// registered after it. A peer that was cut off reaches the same state once it is back.
// Writes acknowledged after a restore are kept, and no honest domain is frozen.
//
// Requirement: MESH-010, MESH-019, MESH-022
func TestARestoredDomainMisleadsNoPeer(t *testing.T) {
	runStory(t, 1, func(t *testing.T, seed uint64) {
		m := mesh.Start(t, mesh.Options{Domains: 3, Nodes: directorytest.Sample(3, 1), Seed: seed, Link: wan})
		beta := m.Domain("beta.test").Nodes[0]
		gamma := m.Domain("gamma.test").Nodes[0]
		put := func(name string, lifetime uint32) *mesh.Agent { return m.Register("alpha.test", name, lifetime) }
		old := put("removed-before", 86400)
		kept := put("kept", 86400)
		second := put("second", 86400)
		over := put("over", 300)
		removed := put("removed-after", 86400)
		m.Remove(old)
		m.Eventually(10*time.Second, "the peers have all", func() error { return m.Seen(kept, second, over, removed) })
		backup := m.Backup("alpha.test")
		m.Remove(removed)
		late := put("late", 86400)
		m.Eventually(10*time.Second, "the peers follow", func() error {
			return m.Shows(gamma, "alpha.test", kept, second, over, late)
		})
		m.Sleep(6 * time.Minute)
		m.Abandon(over)

		if _, err := m.Restore(backup, false); err == nil || !strings.Contains(err.Error(), "would be lost") {
			t.Errorf("a backup that is older than the domain: %v", err)
		}

		dead := m.Domain("alpha.test").Nodes[directorytest.Sample(3, 1)-1]
		if directorytest.Sample(3, 1) > 1 {
			dead.Kill()
		}

		m.Cut("alpha.test", "gamma.test")
		m.Cut("beta.test", "gamma.test")
		restore(m, backup)

		for _, n := range m.Domain("alpha.test").Nodes {
			if n.Lives() {
				m.Eventually(time.Minute, "the restored registrations are shown at home", func() error {
					return m.Shows(n, "alpha.test", kept, second, removed)
				})
			}
		}

		m.Eventually(3*time.Minute, "the peer drops unconfirmed registrations", func() error {
			return m.Shows(beta, "alpha.test")
		})
		m.Refresh(kept)
		fresh := put("new", 86400)
		m.Eventually(10*time.Second, "the peer has the confirmed registrations", func() error {
			return m.Shows(beta, "alpha.test", kept, fresh)
		})

		if err := m.Shows(gamma, "alpha.test", kept, second, late); err != nil {
			t.Errorf("the isolated peer keeps its registrations: %v", err)
		}

		m.Sleep(5 * time.Minute)
		m.Heal()

		if !dead.Lives() {
			dead.Restart()
		}

		m.Eventually(3*time.Minute, "who was cut off has the same", func() error {
			return m.Shows(gamma, "alpha.test", kept, fresh)
		})

		restore(m, backup) // the same once more
		m.Eventually(3*time.Minute, "the peers begin the new epoch", func() error {
			for _, n := range []*mesh.Node{beta, gamma} {
				if err := m.Shows(n, "alpha.test"); err != nil {
					return err
				}
			}

			return nil
		})
		m.Refresh(second)
		last := put("last", 86400)
		m.Eventually(10*time.Second, "acknowledged registrations are everywhere", func() error {
			return m.Seen(second, last)
		})
		m.Sleep(5 * time.Minute)

		for _, n := range []*mesh.Node{beta, gamma} {
			if err := m.Shows(n, "alpha.test", second, last); err != nil {
				t.Error(err)
			}
		}

		if err := m.Frozen(); err != nil {
			t.Error(err)
		}
	})
}

// restore restores a backup, whatever was changed after it.
func restore(m *mesh.Mesh, b *mesh.Backup) {
	m.T.Helper()
	m.Overtaken(b)

	var done *apiclient.Restored
	m.Eventually(time.Minute, "the backup is restored", func() (err error) { // the leader may be dead
		done, err = m.Restore(b, true)
		return err
	})

	now := epochOf(m, done.Now)

	was := max(epochOf(m, done.Before), epochOf(m, done.Backup))
	if now <= was {
		m.T.Errorf("the epoch after the restore is %d and was %d", now, was)
	}
}

// epochOf is that of a position.
func epochOf(m *mesh.Mesh, position string) (epoch uint64) {
	m.T.Helper()

	var revision uint64
	if _, err := fmt.Sscanf(position, "%d.%d", &epoch, &revision); err != nil {
		m.T.Errorf("%q is no position: %v", position, err)
	}

	return epoch
}
