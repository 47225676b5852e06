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
// A mesh keeps a model of what was acknowledged. Every lookup that a story makes
// is judged against it (judge.go), so each step of each story checks the
// promises about deadlines, not only the story's end.
// A story that fails prints what was done in it (journal.go).
package mesh

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/spiffebundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/api"
	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/consensus"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/federation/gossip"
	"github.com/roster-mesh/roster/node"
	"github.com/roster-mesh/roster/trust"
)

// Options say what mesh to start. The zero value is one domain of one node.
type Options struct {
	Domains, Nodes int    // of each domain
	Seed           uint64 // of the network's randomness
	Link           Link   // between different hosts
	NoGossip       bool   // changes cross by subscription and pull alone
	// SVIDs is how long those of nodes hold, which Renew renews; 0 is for longer than
	// any story.
	SVIDs time.Duration
	// RealTime is a mesh in no bubble, such as one that talks to real servers.
	RealTime bool
	// Endpoints has domains follow each other's bundles at their endpoints.
	Endpoints bool
	// Unhurried is for stories of long silence, of which what the members of a domain say
	// to each other would be nearly the whole cost: they keep in touch more seldom, and
	// need longer to miss a leader. What is written they tell as soon as ever.
	Unhurried bool
	// Silent is for stories of weeks in which domains are cut off: all that nodes do of
	// themselves is slow as long as Drowse has it so, and what the members of a domain
	// say to each other all the time.
	Silent bool
	// Configure changes the configuration of every node before it starts; may be nil.
	Configure func(*node.Config)
}

// svidTTL outlasts every story; rotation is not what most are about.
const svidTTL = 365 * 24 * time.Hour

// unhurried is the timing of such stories.
var unhurried = consensus.Timing{
	Heartbeat: 10 * time.Second, Election: 10 * time.Second, Lease: 5 * time.Second, Commit: 250 * time.Millisecond,
	Presence: 20 * time.Second, Sweep: 5 * time.Second,
}

// silent is the timing of stories of weeks. A leader is missed after a quarter of an
// hour; whoever is not waited for hears of a commit after a minute or two.
var (
	silent = consensus.Timing{
		Heartbeat: 10 * time.Minute, Election: 10 * time.Minute, Lease: 5 * time.Minute, Commit: time.Minute,
		Presence: 30 * time.Minute, Sweep: time.Minute,
	}
	silentGossip = gossip.Timing{
		Probe: 5 * time.Minute, ProbeTimeout: 10 * time.Second, Gossip: time.Minute, PushPull: 15 * time.Minute,
	}
)

// drowsy is by how much Drowse stretches federation's pace.
const drowsy = 60

// timings returns those of the mesh's nodes.
func (o *Options) timings() (raft consensus.Timing, mesh gossip.Timing) {
	switch {
	case o.Silent:
		return silent, silentGossip
	case o.Unhurried:
		return unhurried, mesh
	}
	return raft, mesh
}

// patience is how long a domain without a leader may need for one.
func (o *Options) patience() time.Duration {
	if o.Silent {
		return 6 * silent.Election
	}
	return time.Minute
}

// Drowse has all nodes do what no event asks for (federation.Stretch) sixty times more
// seldom, or as usual again; what waits already waits on.
func (m *Mesh) Drowse(yes bool) { m.drowsing.Store(yes) }

func (m *Mesh) stretch() float64 {
	if m.drowsing.Load() {
		return drowsy
	}
	return 1
}

// names of domains, as roster dev gives them.
var names = []string{
	"alpha.test", "beta.test", "gamma.test", "delta.test", "epsilon.test",
	"zeta.test", "eta.test", "theta.test", "iota.test", "kappa.test",
}

// A Mesh is domains that peer, each with each. Its methods fail the test on what
// a story cannot go on after, and are for one goroutine unless they say more.
type Mesh struct {
	T       testing.TB
	Net     *Network
	Domains []*Domain

	options Options
	log     *slog.Logger
	bundles *trust.Bundles // of all domains: the clients believe them
	dir     string

	mu      sync.Mutex              // guards the model and clients
	agents  map[string]*Agent       // by rid
	gone    map[string]bool         // node and rid: that node has stopped showing it
	clients map[string]*http.Client // by node and identity

	transports []*http.Transport // of clients

	journal journal

	drowsing atomic.Bool
}

// A Domain is one trust domain with its nodes.
type Domain struct {
	Name  string
	Nodes []*Node

	td spiffeid.TrustDomain
	ca *trust.CA

	next *trust.CA // while the domain's CA is rotated
}

// Start starts a mesh and waits, in virtual time, until every node is ready and
// every domain peers with every other. It stops the mesh when the test ends.
// STORY_LOG=debug (or info, warn, error) shows the nodes' logs.
func Start(t testing.TB, o Options) *Mesh {
	t.Helper()
	o.Domains, o.Nodes = max(o.Domains, 1), max(o.Nodes, 1)
	if o.SVIDs == 0 {
		o.SVIDs = svidTTL
	}
	m := &Mesh{
		T: t, Net: New(o.Seed), options: o, log: logger(t), bundles: trust.NewBundles(), dir: t.TempDir(),
		agents: map[string]*Agent{}, gone: map[string]bool{}, clients: map[string]*http.Client{},
		journal: journal{begun: time.Now()},
	}
	m.Net.SetAll(o.Link)
	for i := range o.Domains {
		m.Domains = append(m.Domains, m.plan(i))
	}
	t.Cleanup(func() { m.journal.print(t) })
	t.Cleanup(m.stop)
	for _, n := range m.nodes() {
		m.Restart(n)
	}
	m.Eventually(o.patience(), "all nodes are ready", func() error {
		for _, n := range m.nodes() {
			if err := n.Ready(); err != nil {
				return fmt.Errorf("%s: %w", n.Name, err)
			}
		}
		return nil
	})
	for _, d := range m.Domains {
		m.peer(d)
	}
	m.Eventually(2*time.Minute, "all domains have heard each other", m.Synced)
	return m
}

func logger(t testing.TB) *slog.Logger {
	var level slog.Level
	if level.UnmarshalText([]byte(os.Getenv("STORY_LOG"))) != nil {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: level}))
}

// plan makes domain number i: its CA, its bundle, and its nodes, not yet
// started.
func (m *Mesh) plan(i int) *Domain {
	td := spiffeid.RequireTrustDomainFromString(names[i])
	ca, err := trust.NewCA(td, time.Now())
	m.must(err)
	m.must(m.bundles.SetX509(td, ca.Bundle().X509Authorities()))
	d := &Domain{Name: td.Name(), td: td, ca: ca}
	for j := range m.options.Nodes {
		d.Nodes = append(d.Nodes, m.planNode(d, i+1, j+1))
	}
	return d
}

// peer makes every other domain a peer of d, by its operator's command.
func (m *Mesh) peer(d *Domain) {
	for _, other := range m.Domains {
		if other == d {
			continue
		}
		jwks, err := other.ca.Bundle().Marshal()
		m.must(err)
		p := directory.Peering{Domain: other.td, State: directory.PeeringActive, Bundle: jwks, Mesh: true}
		if m.options.Endpoints {
			p.Endpoint = directory.BundleEndpoint{URL: other.Nodes[0].URL() + api.BundlePath, Profile: directory.ProfileSPIFFE}
		}
		for _, n := range other.Nodes {
			p.Addresses = append(p.Addresses, n.URL())
			if !m.options.NoGossip {
				p.Gossip = append(p.Gossip, n.gossip())
			}
		}
		m.Eventually(time.Minute, d.Name+" peers with "+other.Name, func() error {
			ctx, cancel := m.request()
			defer cancel()
			return m.client(d.Nodes[0], operator).SetPeering(ctx, api.WirePeering(p))
		})
	}
}

// Synced returns nil when every living node has all that every other domain has
// announced.
func (m *Mesh) Synced() error {
	for _, n := range m.Living() {
		peers, err := m.peersOf(n)
		if err != nil {
			return err
		}
		if len(peers) != len(m.Domains)-1 {
			return fmt.Errorf("%s has %d peers", n.Name, len(peers))
		}
		for _, p := range peers {
			if p.LastHeard.IsZero() || p.LagRevisions > 0 || p.LastError != "" {
				return fmt.Errorf("%s is %d revisions behind %s, which it heard at %v: %s", n.Name, p.LagRevisions, p.Domain, p.LastHeard, p.LastError)
			}
		}
	}
	return nil
}

// peersOf returns what a node tells of its domain's peers.
func (m *Mesh) peersOf(n *Node) ([]apiclient.Peer, error) {
	ctx, cancel := m.request()
	defer cancel()
	peers, _, err := m.client(n, operator).Peers(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", n.Name, err)
	}
	return peers, nil
}

// Frozen returns nil when every living node of another domain has frozen these,
// and nobody else.
func (m *Mesh) Frozen(liars ...string) error {
	for _, n := range m.Living() {
		peers, err := m.peersOf(n)
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
		ctx, cancel := m.request()
		err := m.client(n, operator).ChangePeering(ctx, name, apiclient.PeerRelease)
		cancel()
		if err != nil {
			return fmt.Errorf("%s: %w", n.Name, err)
		}
	}
	return nil
}

// Evidence returns the first evidence that a node has against a domain.
func (m *Mesh) Evidence(n *Node, against string) []byte {
	m.T.Helper()
	ctx, cancel := m.request()
	defer cancel()
	r, err := m.client(n, operator).Evidence(ctx, against, "")
	if err != nil {
		m.T.Fatalf("%s: %v", n.Name, err)
	}
	return r.Body
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
		ctx, cancel := m.request()
		members, _, err := m.client(n, operator).Members(ctx)
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
	for _, tr := range m.transports {
		tr.CloseIdleConnections()
	}
	var all sync.WaitGroup
	for _, n := range m.Living() {
		all.Go(func() {
			// One that has just been handed a leadership by another that ends waits for it as
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
		return // nobody waits that long for what ends by itself
	}
	// net/http does not end a dial that nobody needs any more; it gives up by itself.
	time.Sleep(max(3*time.Minute, m.options.patience()))
}

// late reports whether an error, and each that is joined in it, is that time was over.
func late(err error) bool {
	if all, ok := err.(interface{ Unwrap() []error }); ok {
		return !slices.ContainsFunc(all.Unwrap(), func(err error) bool { return !late(err) })
	}
	return errors.Is(err, context.DeadlineExceeded)
}

// Bundle returns what whoever trusts the domain trusts.
func (d *Domain) Bundle() *spiffebundle.Bundle { return d.ca.Bundle() }

// FederationSent returns how many bytes the nodes have sent each other so far
// for the mesh's sake: gossip, heads, pages and records, to peers and to
// siblings, and not what Raft says.
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

// Eventually tries until try returns nil, and fails the test when it has not
// within the bound. It returns how long it took, to 50 ms.
func (m *Mesh) Eventually(bound time.Duration, what string, try func() error) time.Duration {
	m.T.Helper()
	start := time.Now()
	for {
		err := try()
		took := time.Since(start)
		if err == nil {
			m.Note("%s, after %v", what, took)
			return took
		}
		if took >= bound {
			m.T.Fatalf("not within %v: %s: %v", bound, what, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
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

func (m *Mesh) must(err error) {
	m.T.Helper()
	if err != nil {
		m.T.Fatal(err)
	}
}

func (m *Mesh) report(err error) {
	if err != nil {
		m.T.Error(err)
	}
}
