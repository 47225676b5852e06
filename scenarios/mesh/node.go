package mesh

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/node"
	"github.com/roster-mesh/roster/trust"
)

// A Node is one node of a domain: its host, its disk, and, while it lives, its
// parts.
type Node struct {
	Name   string // alpha.test/1
	Domain *Domain

	host    string
	cfg     node.Config
	source  *trust.Source
	running atomic.Pointer[node.Node] // nil while it is dead
	ending  sync.WaitGroup            // the parts of a killed node, which still unwind
}

// Lives reports whether the node runs.
func (n *Node) Lives() bool { return n.running.Load() != nil }

// Ready returns nil when the node runs, has a leader and can sign.
func (n *Node) Ready() error {
	if running := n.running.Load(); running != nil {
		return running.Ready()
	}
	return errors.New(n.Name + " does not run")
}

// URL returns the base of the node's directory.
func (n *Node) URL() string { return "https://" + net.JoinHostPort(n.host, "8400") }

// Data is the directory in which the node keeps what it has.
func (n *Node) Data() string { return n.cfg.Data }

func (n *Node) gossip() string { return net.JoinHostPort(n.host, "8403") }

// Hears returns where the node hears others: those of its domain, and all that gossip.
func (n *Node) Hears() []string { return []string{net.JoinHostPort(n.host, clusterPort), n.gossip()} }

// clusterPort is where the members of a domain hear each other.
const clusterPort = "8402"

// hostOf returns the host of node j of domain i; both count from 1.
func hostOf(i, j int) string { return fmt.Sprintf("10.%d.0.%d", i, j) }

// planNode gives node j of d, which is domain i, its identity, configuration and
// disk.
func (m *Mesh) planNode(d *Domain, i, j int) *Node {
	dir := filepath.Join(m.dir, d.Name, fmt.Sprint(j))
	m.must(os.MkdirAll(filepath.Join(dir, "data"), 0o700))
	svid, err := d.ca.Issue(fmt.Sprint(trust.NodePath, j), m.options.SVIDs, time.Now())
	m.must(err)
	bundle, _ := d.ca.PEM()
	id := node.Identity{Cert: filepath.Join(dir, "node.pem"), Key: filepath.Join(dir, "node.key"), Bundle: filepath.Join(dir, "bundle.pem")}
	m.must(os.WriteFile(id.Bundle, bundle, 0o600))
	m.must(trust.WriteSVID(svid, id.Cert, id.Key))

	n := &Node{Name: fmt.Sprintf("%s/%d", d.Name, j), Domain: d, host: hostOf(i, j), source: trust.NewSource(svid)}
	n.cfg = node.DefaultConfig()
	n.cfg.TrustDomain = d.td
	n.cfg.PublicURL = "https://ad." + d.Name
	n.cfg.Data = filepath.Join(dir, "data")
	n.cfg.Identity = id
	n.cfg.Policy = "development"
	n.cfg.Limits = node.Limits{} // many requests have one time here
	n.cfg.Gossip.Enabled = !m.options.NoGossip
	n.cfg.Listen = node.Listen{
		API: net.JoinHostPort(n.host, "8400"), Admin: "127.0.0.1:8401",
		Cluster: net.JoinHostPort(n.host, clusterPort), Gossip: net.JoinHostPort(n.host, "8403"),
	}
	for k := 1; k <= m.options.Nodes; k++ {
		n.cfg.Members = append(n.cfg.Members, node.Member{
			ID:      spiffeid.RequireFromPath(d.td, fmt.Sprint(trust.NodePath, k)),
			Cluster: net.JoinHostPort(hostOf(i, k), clusterPort), API: "https://" + net.JoinHostPort(hostOf(i, k), "8400"),
		})
	}
	if m.options.Configure != nil {
		m.options.Configure(&n.cfg)
	}
	return n
}

// Restart starts a node on the disk that it has; after a Kill, or for the first
// time.
func (m *Mesh) Restart(n *Node) {
	m.T.Helper()
	n.ending.Wait()
	m.Note("%s is started", n.Name)
	m.Net.Revive(n.host)
	raft, gossip := m.options.timings()
	running, err := node.Start(n.cfg, node.Env{
		Source: n.source, Logger: m.log.With("node", n.Name), Timing: raft, Gossip: gossip, Stretch: m.stretch,
		Network: node.Network{
			Listen: func(addr string) (net.Listener, error) { return m.Net.Listen(n.onHost(addr)) },
			Dial: func(ctx context.Context, addr string) (net.Conn, error) {
				ctx, cancel := context.WithTimeout(ctx, dialTimeout)
				defer cancel()
				return m.Net.Dial(ctx, n.host, n.onHost(addr))
			},
		},
	})
	if err != nil {
		m.T.Fatalf("starting %s: %v", n.Name, err)
	}
	n.running.Store(running)
}

// dialTimeout is that of the dialler which a node has on a real network.
const dialTimeout = 5 * time.Second

// onHost gives the loopback of this node an address of its own: all nodes share
// one Network.
func (n *Node) onHost(addr string) string {
	if host, port, err := net.SplitHostPort(addr); err == nil && host == "127.0.0.1" {
		return net.JoinHostPort(n.host, port)
	}
	return addr
}

// Kill ends a node as kill -9 does, as far as others and its disk can tell: at
// once nothing of it reaches anybody. Its parts unwind in the background.
func (m *Mesh) Kill(n *Node) {
	m.Note("%s is killed", n.Name)
	m.Net.Kill(n.host)
	running := n.running.Swap(nil)
	n.ending.Go(func() { _ = running.Close() }) // a killed node's last errors are nobody's
}

// KillDomain kills all nodes of a domain.
func (m *Mesh) KillDomain(name string) {
	for _, n := range m.Domain(name).Nodes {
		if n.Lives() {
			m.Kill(n)
		}
	}
}

// Leader returns the node that leads the domain, as a majority of it sees it.
func (m *Mesh) Leader(name string) *Node {
	m.T.Helper()
	d := m.Domain(name)
	var leader *Node
	m.Eventually(m.options.patience(), name+" has a leader", func() error {
		votes := map[string]int{}
		for _, n := range d.Nodes {
			if !n.Lives() {
				continue
			}
			ctx, cancel := m.request()
			status, _, err := m.client(n, operator).Raft(ctx)
			cancel()
			if err == nil {
				votes[status.Leader]++
			}
		}
		for _, n := range d.Nodes {
			if n.Lives() && votes[n.source.SVID().ID.String()] > len(d.Nodes)/2 {
				leader = n
				return nil
			}
		}
		return fmt.Errorf("votes: %v", votes)
	})
	return leader
}
