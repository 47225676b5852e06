package mesh

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/node"
	"github.com/roster-mesh/roster/node/config"
	"github.com/roster-mesh/roster/trust"
)

// A Node is one node of a domain: its host, its disk, and, while it lives, its
// parts.
type Node struct {
	Name   string // alpha.test/1
	Domain *Domain

	env     *environment
	host    string
	cfg     config.Config
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

// Data is the node's data directory.
func (n *Node) Data() string { return n.cfg.Data }

func (n *Node) gossip() string { return net.JoinHostPort(n.host, "8403") }

// clusterPort is the port for the members of a domain.
const clusterPort = "8402"

// hostOf returns the host of node j of domain i; both count from 1.
func hostOf(i, j int) string { return fmt.Sprintf("10.%d.0.%d", i, j) }

// newNode makes node j of d, which is domain i: its identity, configuration and disk.
func newNode(domain *Domain, i, j int) *Node {
	env := domain.env
	dir := filepath.Join(env.dir, domain.Name, fmt.Sprint(j))
	env.must(os.MkdirAll(filepath.Join(dir, "data"), 0o700))
	svid, err := domain.ca.Issue(fmt.Sprint(trust.NodePath, j), env.options.SVIDs, time.Now())
	env.must(err)
	bundle, _ := domain.ca.PEM()
	id := config.Identity{Cert: filepath.Join(dir, "node.pem"), Key: filepath.Join(dir, "node.key"),
		Bundle: filepath.Join(dir, "bundle.pem")}
	env.must(os.WriteFile(id.Bundle, bundle, 0o600))
	env.must(trust.WriteSVID(svid, id.Cert, id.Key))

	n := &Node{Name: fmt.Sprintf("%s/%d", domain.Name, j), Domain: domain, env: env, host: hostOf(i, j),
		source: trust.NewSource(svid)}
	n.cfg = config.Default()
	n.cfg.TrustDomain = domain.td
	n.cfg.PublicURL = "https://ad." + domain.Name
	n.cfg.Data = filepath.Join(dir, "data")
	n.cfg.Identity = id
	n.cfg.Policy = "development"
	n.cfg.Limits = n.cfg.Limits.Pools() // many requests have one time here
	n.cfg.Gossip.Enabled = !env.options.NoGossip

	n.cfg.Listen = config.Listen{
		API: net.JoinHostPort(n.host, "8400"), Admin: "127.0.0.1:8401",
		Cluster: net.JoinHostPort(n.host, clusterPort), Gossip: net.JoinHostPort(n.host, "8403"),
	}
	for k := 1; k <= env.options.Nodes; k++ {
		n.cfg.Members = append(n.cfg.Members, config.Member{
			ID:      spiffeid.RequireFromPath(domain.td, fmt.Sprint(trust.NodePath, k)),
			Cluster: net.JoinHostPort(hostOf(i, k), clusterPort),
			API:     "https://" + net.JoinHostPort(hostOf(i, k), "8400"),
		})
	}

	if env.options.Configure != nil {
		env.options.Configure(&n.cfg)
	}

	return n
}

// Restart starts the node on its disk: for the first time, or after a Kill.
func (n *Node) Restart() {
	n.env.T.Helper()
	n.ending.Wait()
	n.env.Note("%s is started", n.Name)
	n.env.Net.Revive(n.host)
	raft, gossip := n.env.options.timings()

	running, err := node.Start(n.cfg, node.Env{
		Source: n.source, Logger: n.env.log.With("node", n.Name), Timing: raft, Gossip: gossip, Stretch: n.env.stretch,
		Network: node.Network{
			Listen: func(addr string) (net.Listener, error) { return n.env.Net.Listen(n.onHost(addr)) },
			Dial: func(ctx context.Context, addr string) (net.Conn, error) {
				ctx, cancel := context.WithTimeout(ctx, dialTimeout)
				defer cancel()

				return n.env.Net.Dial(ctx, n.host, n.onHost(addr))
			},
		},
	})
	if err != nil {
		n.env.T.Fatalf("starting %s: %v", n.Name, err)
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

// Kill ends the node as kill -9 does, in the view of others and of its disk: nothing more
// of it reaches another host. Its parts unwind in the background.
func (n *Node) Kill() {
	n.env.Note("%s is killed", n.Name)
	n.env.Net.Kill(n.host)
	running := n.running.Swap(nil)
	n.ending.Go(func() { _ = running.Close() }) // a killed node reports no errors
}

// HTTP returns a client that speaks to the node as one of its domain's identities
// (/agent/ada), or anonymously if path is empty. Safe for concurrent use.
func (n *Node) HTTP(path string) *http.Client { return n.Domain.httpClient(n, path) }

// client returns a client of the node's API for one of its domain's identities. Safe for
// concurrent use.
func (n *Node) client(path string) *apiclient.Client {
	return apiclient.NewDirect(n.URL(), n.HTTP(path))
}

// write does one write at this node.
func (n *Node) write(do func(context.Context, *apiclient.Client) error) error {
	ctx, cancel := request()
	defer cancel()

	return do(ctx, n.client(registrant))
}

// asNode returns a client that speaks to another node with this node's identity.
func (n *Node) asNode(to *Node) *http.Client {
	allow := func(id spiffeid.ID) error {
		if id.TrustDomain() != to.Domain.td {
			return errors.New("another domain answers")
		}

		return nil
	}

	return &http.Client{Timeout: requestTimeout, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
			return n.env.Net.Dial(ctx, n.host, addr)
		},
		TLSClientConfig:   trust.ClientTLS(n.source, n.env.bundles, allow, "http/1.1"),
		DisableKeepAlives: true,
	}}
}

// peers returns the node's view of its domain's peers.
func (n *Node) peers() ([]apiclient.Peer, error) {
	ctx, cancel := request()
	defer cancel()

	peers, _, err := n.client(operator).Operator().Peers(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", n.Name, err)
	}

	return peers, nil
}

// Evidence returns the first evidence that the node has against a domain.
func (n *Node) Evidence(against string) []byte {
	n.env.T.Helper()
	ctx, cancel := request()
	defer cancel()

	r, err := n.client(operator).Operator().Evidence(ctx, against, "")
	if err != nil {
		n.env.T.Fatalf("%s: %v", n.Name, err)
	}

	return r.Body
}
