package scenarios

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/directory/directorytest"
	"github.com/roster-mesh/roster/scenarios/mesh"
)

// A linearizable read is never stale: while agents register, replace, remove and read
// the same names at all nodes of a domain of three, its leader is isolated, cut off in
// one direction or the other, frozen, and killed. The responses are those of a directory
// that does one thing at a time. The checker finds a planted stale read.
//
// Requirement: OPS-017
func TestLinearizableReadsAreNeverStale(t *testing.T) {
	runStory(t, 3, func(t *testing.T, seed uint64) {
		m := mesh.Start(t, mesh.Options{Nodes: 3, Seed: seed, Link: wan})
		h := newHistory()
		stop := h.start(t, m, seed, "linearizable")

		rng := rand.New(rand.NewPCG(seed, 1))
		for _, f := range rng.Perm(len(faults))[:directorytest.Sample(len(faults), 2)] {
			time.Sleep(time.Second)
			leader := m.Domain("alpha.test").Leader()
			before, _ := h.answers()
			end := faults[f].begin(m, leader)
			time.Sleep(2*time.Second + time.Duration(rng.Int64N(int64(4*time.Second))))
			end()
			m.Eventually(20*time.Second, "reads are answered again after the leader was "+faults[f].name, func() error {
				if now, _ := h.answers(); now < before+20 {
					return fmt.Errorf("%d are", now-before)
				}

				return nil
			})
		}

		stop()
		h.check(t)
	})
}

// faults are applied to a leader; begin returns the function that ends one.
var faults = []struct {
	name  string
	begin func(m *mesh.Mesh, leader *mesh.Node) func()
}{
	{"isolated", func(m *mesh.Mesh, leader *mesh.Node) func() {
		m.Isolate(leader)
		return m.Heal
	}},
	{"not heard", func(m *mesh.Mesh, leader *mesh.Node) func() {
		for _, o := range leader.Others() {
			leader.CutOneWay(o)
		}

		return m.Heal
	}},
	{"deaf", func(m *mesh.Mesh, leader *mesh.Node) func() {
		for _, o := range leader.Others() {
			o.CutOneWay(leader)
		}

		return m.Heal
	}},
	{"frozen", func(m *mesh.Mesh, leader *mesh.Node) func() {
		m.Freeze(leader)
		return func() { m.Thaw(leader) }
	}},
	{"killed", func(m *mesh.Mesh, leader *mesh.Node) func() {
		leader.Kill()
		return func() { leader.Restart() }
	}},
}

func newHistory() *history { return &history{rids: map[string]string{}} }

// start lets three clients work at each node until the returned function is called.
func (h *history) start(t *testing.T, m *mesh.Mesh, seed uint64, consistency string) (stop func()) {
	done := make(chan struct{})

	var clients sync.WaitGroup
	for i, n := range m.Domain("alpha.test").Nodes {
		node := apiclient.NewDirect(n.URL(), n.HTTP("/agent/ada"))
		for j := range 3 {
			c := &linearClient{
				history: h, id: i*3 + j, node: node, names: []string{"one", "two", "three"}, consistency: consistency,
				timeout: 8 * time.Second, pause: 150 * time.Millisecond,
				rng: rand.New(rand.NewPCG(seed, uint64(i*3+j+2))),
			}
			clients.Go(func() { c.run(t, done) })
		}
	}

	return func() {
		close(done)
		clients.Wait()
	}
}
