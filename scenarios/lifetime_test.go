package scenarios

import (
	"testing"
	"time"

	"github.com/roster-mesh/roster/directory/directorytest"
	"github.com/roster-mesh/roster/scenarios/mesh"
)

// Refreshes keep an agent alive across: for half an hour (five minutes under
// -short) it is refreshed at half its lifetime and is missing nowhere at any
// moment. Its deadline at a peer is never later than the one that its origin
// granted (the harness checks that). Then it is refreshed no more, and is gone
// everywhere when its last lifetime ends.
//
// Requirement: MESH-007, MESH-013
func TestRefreshesKeepItAliveAcross(t *testing.T) {
	runStory(t, 2, func(t *testing.T, seed uint64) {
		m := mesh.Start(t, mesh.Options{Domains: 3, Nodes: 1, Seed: seed, Link: wan})
		short := m.Register("alpha.test", "short", 60)
		long := m.Register("beta.test", "long", 600)
		m.Eventually(time.Second, "both are seen everywhere", func() error { return m.Seen(short, long) })
		peer := m.Domain("beta.test").Nodes[0]
		refreshes := directorytest.Sample(60, 10)
		began := time.Now()
		before := peer.Received("alpha.test")["applied"]

		for i := range refreshes {
			m.Refresh(short)

			if i%10 == 0 {
				m.Refresh(long)
			}

			for range 3 {
				m.Sleep(10 * time.Second)

				if err := m.Seen(short, long); err != nil {
					t.Fatalf("after %d refreshes: %v", i+1, err)
				}
			}
		}

		// Each page has one agent, so its cost in a lifetime equals that of a million
		// agents in a day.
		pages := peer.Received("alpha.test")["applied"] - before
		perSecond := float64(pages) / (time.Since(began).Seconds() / 60) * 1e6 / 86400
		t.Logf("%d pages of %d refreshes; of a million that live for a day and are refreshed each half, %.1f "+
			"digests a second", pages, refreshes, perSecond)

		if pages == 0 || perSecond > 50 {
			t.Errorf("%d refreshes cost %d pages", refreshes, pages)
		}

		m.Abandon(short)
		m.Abandon(long)
		sleepUntil(m, short.Until)

		if err := m.Gone(short); err != nil {
			t.Error(err)
		}

		if err := m.Seen(long); err != nil {
			t.Error(err)
		}

		sleepUntil(m, long.Until)

		if err := m.Gone(short, long); err != nil {
			t.Error(err)
		}
	})
}

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
		m.Eventually(time.Second, "all are seen everywhere", func() error { return m.Seen(first, second, other) })
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
