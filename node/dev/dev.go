package dev

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/roster-mesh/roster/api/operator"

	"golang.org/x/sync/errgroup"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/directory"
)

// Options configure a development mesh.
type Options struct {
	Domains   int      // 1 to 10
	Nodes     int      // per domain: 1, 3 or 5
	Processes bool     // each node a child process of its own
	Port      int      // the first API port; 0 picks free ones
	Dir       string   // kept when given; else a temporary one, removed at the end
	Sample    int      // agents to register
	Gateway   bool     // callers invoke agents through the nodes
	Insecure  bool     // agents are also called by plain http on loopback
	Trace     string   // URL of a collector to which all traces are exported; empty is none
	Limits    bool     // rates, quotas and proofs of operators as in production; else none
	Given     []string // names of the flags that were given, for notes about those without effect
	Program   string   // how people call this program, for the lines that are printed
	Out       io.Writer
}

// Check returns an error for the first invalid option, by its flag.
func (o *Options) Check() error {
	switch {
	case o.Domains < 1 || o.Domains > len(domainNames):
		return fmt.Errorf("--domains is %d; it is 1 to %d", o.Domains, len(domainNames))
	case o.Nodes != 1 && o.Nodes != 3 && o.Nodes != 5:
		return fmt.Errorf("--nodes is %d; a domain has 1, 3 or 5 nodes", o.Nodes)
	case o.Port < 0 || o.Port > 65535:
		return fmt.Errorf("--port is %d, which is no TCP port", o.Port)
	case o.Insecure && !o.Gateway:
		return errors.New("--insecure-loopback is for the gateway, which --gateway=false switches off")
	case o.Sample < 0:
		return fmt.Errorf("--sample is %d; it is a number of agents", o.Sample)
	}

	return nil
}

// A runningMesh is a running development mesh.
type runningMesh struct {
	*Mesh
	opt    Options
	ports  *portPlan // of the nodes that have not been started yet
	nodes  []startedNode
	agents []sampleAgent
}

// Run runs whole domains on loopback until ctx ends: each with its own
// certificate authority, peered with all others, with sample agents that
// register and refresh through the API as any agent would. It prints where
// everything is once a lookup crosses the mesh.
func Run(ctx context.Context, options Options) (err error) {
	if err := options.Check(); err != nil {
		return err
	}

	if options.Dir == "" {
		if options.Dir, err = os.MkdirTemp("", "roster-dev-"); err != nil {
			return err
		}

		defer func() { err = errors.Join(err, os.RemoveAll(options.Dir)) }()
	}

	if options.Dir, err = absolute(options.Dir); err != nil {
		return err
	}

	plan, ports, err := options.lay()
	if err != nil {
		return err
	}
	defer ports.close()

	mesh := &runningMesh{Mesh: plan, opt: options, ports: ports}

	// The nodes that have started are stopped after a failed start, too.
	defer func() { err = errors.Join(err, mesh.stop(), mesh.save(false)) }()

	if err := mesh.start(ctx); err != nil {
		return mesh.interrupted(ctx, err)
	}

	mesh.printReady()
	mesh.keepAlive(ctx)

	return nil
}

// interrupted hides the errors that the request to stop causes.
func (m *runningMesh) interrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}

	return err
}

func absolute(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}

	return dir, os.MkdirAll(dir, 0o755)
}

// readyTimeout bounds the whole start.
const readyTimeout = 60 * time.Second

func (m *runningMesh) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	m.note("Starting a mesh in %s: domains: %d, nodes of each: %d.", m.opt.Dir, len(m.Domains), len(m.Domains[0].Nodes))
	m.note("This is a development mesh: everything is readable by everybody and exported to every domain.")

	if err := m.writeFiles(); err != nil {
		return err
	}

	if err := m.startNodes(ctx); err != nil {
		return err
	}

	if err := m.save(false); err != nil {
		return err
	}

	if err := m.peerOnce(ctx); err != nil {
		return err
	}

	return m.save(true)
}

// save writes mesh.json, which says whether everything runs. Identities that were minted meanwhile stay.
func (m *runningMesh) save(ready bool) (err error) {
	unlock, err := lockMesh(m.opt.Dir)
	if err != nil {
		return err
	}

	defer func() { err = errors.Join(err, unlock()) }()

	now, err := ReadMesh(m.opt.Dir)
	if err != nil {
		return err
	}

	for i := range m.Domains {
		m.Domains[i].Identities = now.Domains[i].Identities
	}

	m.Ready = ready

	return m.write(m.opt.Dir)
}

func (m *runningMesh) note(format string, args ...any) { fmt.Fprintf(m.opt.Out, format+"\n", args...) }

// startNodes starts every node and waits until each has a leader and keys.
func (m *runningMesh) startNodes(ctx context.Context) error {
	for i := range m.Domains {
		for j := range m.Domains[i].Nodes {
			node := &m.Domains[i].Nodes[j]

			run := startInProcess
			if m.opt.Processes {
				run = startProcess
			}

			// The ports are free for as short a time as possible: the node that starts next takes them.
			m.ports.letGo(node)

			startedNode, err := run(node)
			if err != nil {
				return fmt.Errorf("starting %s: %w", node.ID, err)
			}

			node.PID = startedNode.pid()
			m.nodes = append(m.nodes, startedNode)
		}
	}

	g, ctx := errgroup.WithContext(ctx)
	for _, d := range m.Domains {
		for _, n := range d.Nodes {
			g.Go(func() error { return until(ctx, n.ID+" ready", func() error { return readyz(ctx, n.Admin) }) })
		}
	}

	return g.Wait()
}

// stop ends every node.
func (m *runningMesh) stop() error {
	var g errgroup.Group
	for _, n := range m.nodes {
		g.Go(n.stop)
	}

	return g.Wait()
}

// resumeTime is how long a mesh that was stopped and started again waits until all domains show each
// other's agents, which its operators may have ended.
const resumeTime = 10 * time.Second

// peerOnce makes the domains peers, registers the sample agents, and waits until every node shows
// them. Peerings of an earlier start stay as operators left them: frozen, ended or without exports.
func (m *runningMesh) peerOnce(ctx context.Context) error {
	if !m.Peered {
		if err := m.peerAll(ctx); err != nil {
			return err
		}

		m.Peered = true

		if err := m.registerSamples(ctx); err != nil {
			return err
		}

		return m.awaitMesh(ctx)
	}

	if err := m.registerSamples(ctx); err != nil {
		return err
	}

	bound, cancel := context.WithTimeout(ctx, resumeTime)
	defer cancel()

	if err := m.awaitMesh(bound); err != nil {
		m.note("The peerings are as their operators left them, and not every agent is shown everywhere: %v", err)
		m.note("\"roster peer list\" and \"roster peer show DOMAIN\" show why.")
	}

	return ctx.Err()
}

// peerAll makes every domain a peer of every other, by the operator's command of
// each.
func (m *runningMesh) peerAll(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, at := range m.Domains {
		for _, peer := range m.Domains {
			if at.TrustDomain == peer.TrustDomain {
				continue
			}

			g.Go(func() error {
				peering, err := peer.peering()
				if err != nil {
					return err
				}

				client, err := at.client(at.Nodes[0].API, "/ops/operator")
				if err != nil {
					return err
				}

				// A domain that has just started may have no leader yet.
				return until(ctx, at.TrustDomain+" peered with "+peer.TrustDomain, func() error {
					return client.Operator().SetPeering(ctx, operator.WirePeering(peering))
				})
			})
		}
	}

	return g.Wait()
}

// peering returns the data of d that another domain needs for a peering.
func (d *Domain) peering() (directory.Peering, error) {
	bundle, err := bundleOf(d.Bundle, d.TrustDomain)
	if err != nil {
		return directory.Peering{}, err
	}

	jwks, err := bundle.Marshal()
	p := directory.Peering{Domain: bundle.TrustDomain(), State: directory.PeeringActive, Bundle: jwks, Mesh: true}

	p.Endpoint = directory.BundleEndpoint{URL: d.Nodes[0].API + wire.BundlePath, Profile: directory.ProfileSPIFFE}
	for _, n := range d.Nodes {
		p.Addresses = append(p.Addresses, n.API)
		p.Gossip = append(p.Gossip, n.Gossip)
	}

	return p, err
}

// awaitMesh waits until every node shows every sample agent and has met a node
// of every domain in the gossip pool.
func (m *runningMesh) awaitMesh(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, domain := range m.Domains {
		for _, node := range domain.Nodes {
			g.Go(func() error {
				client, err := domain.client(node.API, "/client/reader")
				if err != nil {
					return err
				}

				return until(ctx, "all agents visible at "+node.ID, func() error { return m.seesAll(ctx, client) })
			})
			g.Go(func() error {
				client, err := domain.client(node.API, "/ops/operator")
				if err != nil {
					return err
				}

				return until(ctx, "the gossip pool of "+node.ID, func() error { return m.hasMet(ctx, client) })
			})
		}
	}

	return g.Wait()
}

// hasMet reports whether a node has met one of every domain.
func (m *runningMesh) hasMet(ctx context.Context, c *apiclient.Client) error {
	members, _, err := c.Operator().Members(ctx)
	if err != nil {
		return err
	}

	for _, d := range m.Domains {
		if !slices.ContainsFunc(members, func(o wire.Member) bool { return o.Domain == d.TrustDomain }) {
			return fmt.Errorf("no node of %s has been met yet", d.TrustDomain)
		}
	}

	return nil
}

// until repeats try every 50 ms until it succeeds or ctx ends.
func until(ctx context.Context, what string, try func() error) error {
	for {
		err := try()
		if err == nil {
			return nil
		}

		select {
		case <-ctx.Done():
			return fmt.Errorf("not in time: %s: %w", what, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
