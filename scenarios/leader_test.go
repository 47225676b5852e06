package scenarios

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/roster-mesh/roster/directory/directorytest"
	"github.com/roster-mesh/roster/scenarios/mesh"
)

// A leader dies and nothing acknowledged is lost: while agents register at all
// nodes of a domain of three, its leader is killed again and again. Whatever was
// acknowledged is there afterwards, at home and at the peer, and writes come back
// each time.
func TestALeaderDiesAndNothingIsLost(t *testing.T) {
	runStory(t, 1, func(t *testing.T, seed uint64) {
		m := mesh.Start(t, mesh.Options{Domains: 2, Nodes: 3, Seed: seed, Link: wan})

		var acknowledged []*mesh.Agent
		for round := range directorytest.Sample(3, 1) {
			stop, done := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(done)
				acknowledged = append(acknowledged, registerUntil(m, round, stop)...)
			}()
			time.Sleep(time.Second)
			leader := m.Domain("alpha.test").Leader()
			leader.Kill()
			time.Sleep(10 * time.Second)
			close(stop)
			<-done

			next := m.Domain("alpha.test").Leader()
			if next == leader {
				t.Fatalf("%s leads after it was killed", leader.Name)
			}

			leader.Restart()
			m.Eventually(time.Minute, leader.Name+" is back and has everything", func() error {
				return m.Seen(acknowledged...)
			})
		}

		if len(acknowledged) < 30 {
			t.Errorf("only %d registrations were acknowledged", len(acknowledged))
		}

		t.Logf("%d acknowledged", len(acknowledged))

		if err := m.Equal(); err != nil {
			t.Error(err)
		}
	})
}

// registerUntil registers agents from four clients at once until stop, and
// returns those that were acknowledged.
func registerUntil(m *mesh.Mesh, round int, stop <-chan struct{}) (acknowledged []*mesh.Agent) {
	var (
		mu      sync.Mutex
		clients sync.WaitGroup
	)
	for c := range 4 {
		clients.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				case <-time.After(400 * time.Millisecond):
				}

				if a, err := m.TryRegister("alpha.test", fmt.Sprintf("agent-%d-%d-%d", round, c, i),
					86400); err == nil {
					mu.Lock()
					acknowledged = append(acknowledged, a)
					mu.Unlock()
				}
			}
		})
	}

	clients.Wait()

	return acknowledged
}
