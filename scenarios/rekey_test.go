package scenarios

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/roster-mesh/roster/directory/directorytest"
	"github.com/roster-mesh/roster/scenarios/mesh"
)

// rekeyings are the events in the life of a node's key.
var rekeyings = map[string]func(m *mesh.Mesh, n *mesh.Node){
	"an SVID is renewed":    func(m *mesh.Mesh, n *mesh.Node) { m.Domain(n.Domain.Name).Renew() },
	"a key is rotated":      func(m *mesh.Mesh, n *mesh.Node) { n.RotateKey() },
	"a key is revoked":      revokeKey,
	"the CA is rotated":     rotateCA,
	"a key is lost":         func(m *mesh.Mesh, n *mesh.Node) { n.Kill(); n.LoseKey(); n.Restart() },
	"the leader hands over": func(m *mesh.Mesh, n *mesh.Node) { killed(m, m.Domain(n.Domain.Name).Leader()).Restart() },
}

// rotateCA gives a domain another CA, as an operator does: both are believed while
// the nodes' SVIDs change.
func rotateCA(m *mesh.Mesh, n *mesh.Node) {
	name := n.Domain.Name
	m.Domain(name).AddCA()
	time.Sleep(10 * time.Minute) // until everybody's bundle has both
	m.Domain(name).UseCA()
	time.Sleep(time.Minute)
	m.Domain(name).DropCA()
}

// revokeKey takes back the key by which a node signs now, which it may just have got.
func revokeKey(m *mesh.Mesh, n *mesh.Node) {
	id := ""
	m.Eventually(time.Minute, n.Name+" has a key", func() error {
		if id = n.Key(); id == "" {
			return errors.New("no key is listed")
		}

		return nil
	})
	n.RevokeKey(id)
}

// A domain's keys go through one event and at once another, in every combination, while
// agents are registered and refreshed. Each acknowledged agent is visible everywhere
// within five seconds, with a deadline of its own. Nothing from the domain's nodes is
// refused, except messages by a key that had just left the key document, and gossip that
// arrives while a node is busy with such a change. No domain is frozen.
//
// Requirement: TRUST-010, MESH-022
func TestKeysChangeInEveryCombination(t *testing.T) {
	names := slices.Sorted(maps.Keys(rekeyings))
	runStory(t, 1, func(t *testing.T, seed uint64) {
		m := mesh.Start(t, mesh.Options{Domains: 2, Nodes: 3, Seed: seed, Link: wan, SVIDs: 24 * time.Hour,
			Endpoints: true})
		alpha := m.Domain("alpha.test")
		rng := rand.New(rand.NewPCG(seed, 11))
		registering := flow(m, "alpha.test")
		defer registering.stop()
		pairs := long(len(names)*len(names), directorytest.Sample(5, 2))

		order := rng.Perm(len(names) * len(names))
		for _, p := range order[:pairs] {
			a, b := names[p/len(names)], names[p%len(names)]
			rekeyings[a](m, alpha.Nodes[rng.IntN(3)])
			rekeyings[b](m, alpha.Nodes[rng.IntN(3)])

			for _, n := range alpha.Nodes {
				m.Eventually(time.Minute, n.Name+" can sign", n.Ready)
			}

			agents := registering.sofar()
			m.Eventually(time.Minute, fmt.Sprintf("%s, and %s: all is seen", a, b), func() error {
				return m.Seen(agents...)
			})
			agent := m.Register("alpha.test", fmt.Sprint("after-", p), 86400)
			m.Eventually(5*time.Second, fmt.Sprintf("%s, and %s: a later registration is visible", a, b), func() error {
				return m.Seen(agent)
			})
		}

		registering.stop()
		m.Eventually(time.Minute, "all is seen", func() error { return m.Seen(registering.sofar()...) })

		if err := m.Frozen(); err != nil {
			t.Error(err)
		}

		for _, n := range m.Domain("beta.test").Nodes {
			got := n.Received("alpha.test")
			t.Logf("%s has received %v", n.Name, got)

			for code := range got {
				if !slices.Contains([]string{"applied", "old", "gap", "key_unknown", "key_revoked", "rate"}, code) {
					t.Errorf("%s has refused %d of %s as %s", n.Name, got[code], "alpha.test", code)
				}
			}
		}
	})
}

// A stream of registrations, and of refreshes of them, one every two seconds.
type registrations struct {
	m      *mesh.Mesh
	ending chan struct{}
	ended  sync.WaitGroup
	end    func()

	mu     sync.Mutex
	agents []*mesh.Agent
}

// flow registers and refreshes agents at a domain until stop.
func flow(m *mesh.Mesh, domain string) *registrations {
	r := &registrations{m: m, ending: make(chan struct{})}
	r.end = sync.OnceFunc(func() { close(r.ending) })
	r.ended.Go(func() {
		tick := time.NewTicker(2 * time.Second)
		defer tick.Stop()

		for i := 0; ; i++ {
			select {
			case <-r.ending:
				return
			case <-tick.C:
			}

			if i%10 == 0 {
				if a, err := m.TryRegister(domain, fmt.Sprint("flow-", i), 86400); err == nil {
					r.mu.Lock()
					r.agents = append(r.agents, a)
					r.mu.Unlock()
				}

				continue
			}

			if all := r.sofar(); len(all) > 0 {
				_ = m.TryRefresh(all[i%len(all)]) // one that a dying node refuses is refreshed later
			}
		}
	})

	return r
}

func (r *registrations) sofar() []*mesh.Agent {
	r.mu.Lock()
	defer r.mu.Unlock()

	return slices.Clone(r.agents)
}

func (r *registrations) stop() {
	r.end()
	r.ended.Wait()
}

// killed kills a node and returns it.
func killed(m *mesh.Mesh, n *mesh.Node) *mesh.Node {
	n.Kill()
	return n
}
