// Package mesh runs whole meshes of real nodes in one process and in virtual
// time: N domains of M nodes each over an in-memory network, with throw-away
// certificate authorities, inside a testing/synctest bubble.
//
//	synctest.Test(t, func(t *testing.T) {
//		m := mesh.Start(t, mesh.Options{Domains: 3})
//		ada := m.Register("alpha.test", "ada", 120)
//		m.Eventually(time.Second, "ada is seen everywhere", func() error { return m.Seen(ada) })
//		m.Cut("alpha.test", "beta.test")
//		m.Sleep(time.Hour)
//		m.Heal()
//	})
//
// A mesh keeps a model of acknowledged registrations (model.go). Every lookup of a story
// is judged against it, so each step of a story checks the promises about deadlines.
// A failing story prints its steps (journal.go).
//
// # Files
//
//	mesh, options, environment   the start and end of a mesh, and the parts shared by all nodes
//	domain, node, rotate, keys   domains and nodes: processes, clients, CAs, signing keys
//	client, backup, watch        a story's operations
//	model, judge                 acknowledged registrations, and the judgement of views
//	fault, liar                  cuts, suspensions, dishonest domains
//	journal                      the steps of a story
//	network, conn, wire, link    the network in memory
package mesh

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/directory"
)

// names of domains, as roster dev gives them.
var names = []string{
	"alpha.test", "beta.test", "gamma.test", "delta.test", "epsilon.test",
	"zeta.test", "eta.test", "theta.test", "iota.test", "kappa.test",
}

// A Mesh is a set of domains, each a peer of all others. Its methods fail the test if
// the story can't continue, and are for one goroutine unless documented otherwise.
type Mesh struct {
	*environment

	Domains []*Domain
	model   *model
}

// Start starts a mesh and waits, in virtual time, until every node is ready and
// every domain peers with every other. It stops the mesh when the test ends.
// STORY_LOG=debug (or info, warn, error) shows the nodes' logs.
func Start(t testing.TB, options Options) *Mesh {
	t.Helper()

	options.Domains, options.Nodes = max(options.Domains, 1), max(options.Nodes, 1)
	if options.SVIDs == 0 {
		options.SVIDs = svidTTL
	}

	m := &Mesh{environment: newEnvironment(t, options), model: newModel()}
	for i := range options.Domains {
		m.Domains = append(m.Domains, newDomain(m.environment, i))
	}

	t.Cleanup(m.stop)

	for _, n := range m.nodes() {
		n.Restart()
	}

	m.Eventually(options.patience(), "all nodes are ready", func() error {
		for _, n := range m.nodes() {
			if err := n.Ready(); err != nil {
				return fmt.Errorf("%s: %w", n.Name, err)
			}
		}

		return nil
	})

	for _, domain := range m.Domains {
		for _, other := range m.Domains {
			if other != domain {
				domain.peerWith(other)
			}
		}
	}

	m.Eventually(2*time.Minute, "all domains are synchronised", m.Synced)

	return m
}

// Synced returns nil when every living node has all that every other domain has
// announced.
func (m *Mesh) Synced() error {
	for _, n := range m.Living() {
		peers, err := n.peers()
		if err != nil {
			return err
		}

		if len(peers) != len(m.Domains)-1 {
			return fmt.Errorf("%s has %d peers", n.Name, len(peers))
		}

		for _, peer := range peers {
			if peer.LastHeard.IsZero() || peer.LagRevisions > 0 || peer.LastError != "" {
				return fmt.Errorf("%s is %d revisions behind %s, last contact at %v: %s", n.Name, peer.LagRevisions,
					peer.Domain, peer.LastHeard, peer.LastError)
			}
		}
	}

	return nil
}

// Frozen returns nil if every living node of the other domains has frozen exactly these
// domains.
func (m *Mesh) Frozen(liars ...string) error {
	for _, n := range m.Living() {
		peers, err := n.peers()
		if err != nil {
			return err
		}

		for _, p := range peers {
			if frozen := p.Agreed == string(directory.PeeringFrozen); frozen != slices.Contains(liars, p.Domain) {
				return fmt.Errorf("%s: %s is %s", n.Name, p.Domain, p.Agreed)
			}
		}
	}

	return nil
}

// Release has every living node's domain trust a frozen one again; nil once all do.
func (m *Mesh) Release(name string) error {
	for _, n := range m.Living() {
		ctx, cancel := request()
		err := n.client(operator).Operator().ChangePeering(ctx, name, apiclient.PeerRelease)
		cancel()

		if err != nil {
			return fmt.Errorf("%s: %w", n.Name, err)
		}
	}

	return nil
}

// Pooled returns nil when every living node's gossip knows every other living
// node that takes part: at most three of a domain do.
func (m *Mesh) Pooled() error {
	want := 0
	for _, d := range m.Domains {
		living := 0
		for _, n := range d.Nodes {
			if n.Lives() {
				living++
			}
		}

		want += min(living, 3)
	}

	for _, n := range m.Living() {
		ctx, cancel := request()
		members, _, err := n.client(operator).Operator().Members(ctx)
		cancel()

		if err != nil {
			return fmt.Errorf("%s: %w", n.Name, err)
		}

		alive := 0
		for _, member := range members {
			if member.State == "alive" {
				alive++
			}
		}

		if alive != want {
			return fmt.Errorf("%s has %d of %d in its pool: %v", n.Name, alive, want, members)
		}
	}

	return nil
}

// stop ends every node and shows that nothing of the mesh is left.
func (m *Mesh) stop() {
	for _, d := range m.Domains {
		d.closeClients()
	}

	var all sync.WaitGroup
	for _, n := range m.Living() {
		all.Go(func() {
			// A node that was just handed the leadership by a stopping one waits for it as
			// long as members do for each other: of some stories longer than a node's end may take.
			if err := n.running.Load().Close(); !m.options.Unhurried || !late(err) {
				m.report(err)
			}
		})
	}

	all.Wait()

	for _, n := range m.nodes() {
		m.Net.Kill(n.host)
		n.ending.Wait()
	}

	if m.options.RealTime {
		return // too long in real time; they end by themselves
	}

	// net/http doesn't end a dial that is no longer needed; the dial times out by
	// itself.
	time.Sleep(max(3*time.Minute, m.options.patience()))
}

// late reports whether an error, and each that is joined in it, is that time was over.
func late(err error) bool {
	if all, ok := err.(interface{ Unwrap() []error }); ok {
		return !slices.ContainsFunc(all.Unwrap(), func(err error) bool { return !late(err) })
	}

	return errors.Is(err, context.DeadlineExceeded)
}

// FederationSent returns the bytes that nodes have sent each other for the federation:
// gossip, heads, pages and records, to peers and to siblings, without Raft's traffic.
func (m *Mesh) FederationSent() uint64 {
	hosts := map[string]bool{}
	for _, n := range m.nodes() {
		hosts[n.host] = true
	}

	return m.Net.Sent(func(f Flow) bool { return hosts[f.From] && hosts[f.To] && f.Port != clusterPort })
}

// Domain returns the domain of that name.
func (m *Mesh) Domain(name string) *Domain {
	m.T.Helper()

	for _, d := range m.Domains {
		if d.Name == name {
			return d
		}
	}

	m.T.Fatalf("there is no domain %s", name)

	return nil
}

// nodes returns all nodes.
func (m *Mesh) nodes() (all []*Node) {
	for _, d := range m.Domains {
		all = append(all, d.Nodes...)
	}

	return all
}

// Living returns the nodes that run.
func (m *Mesh) Living() (living []*Node) {
	for _, n := range m.nodes() {
		if n.Lives() {
			living = append(living, n)
		}
	}

	return living
}

// Sleep lets virtual time pass and has every living node judged in between:
// fifty times, but not more often than every five seconds.
func (m *Mesh) Sleep(d time.Duration) {
	m.T.Helper()

	end := time.Now().Add(d)
	for left := d; left > 0; left = time.Until(end) {
		time.Sleep(min(left, max(d/50, 5*time.Second)))
		m.Judge()
	}
}
