// Package node runs one node of a Roster domain. It is the only package that
// knows the others, and introduces them to each other: wire.go starts the parts
// in one straight line, each beside its stop.
//
//	cfg, err := config.Load("node.yaml")
//	n, err := node.Start(cfg, node.Env{})
//	<-ctx.Done()
//	err = n.Close()
//
// # Files
//
//	node, wire, wire_agents, lifecycle
//	                       the start, in order, and the stop
//	network, listen, admin addresses and servers
//	reload                 changes of the configuration while the node runs
//	identity, callers, attest, membership
//	                       identities of this node, of its callers, and of members
//	outbound               connections to agents and to other sites
//	operator, status, cluster, records, grants, ownership_rules, formats
//	                       interfaces between api, federation and consensus
//	orders                 the check of operators' commands when they are applied
//	peering, accept, bundles, evidence
//	                       peerings, made, followed and kept
//	files                  the data directory
//
// # Packages
//
//	config     the configuration
//	listener   limits of connections        dnssd    the local network
//	memory     the process's memory         disk     the disk's room
//	doctor     the diagnosis of a node      dev      a mesh on loopback
//	metrics    Prometheus metrics           tracing  the export of traces
package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/api"
	"github.com/roster-mesh/roster/consensus"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/contain"
	"github.com/roster-mesh/roster/directory/index"
	"github.com/roster-mesh/roster/discovery"
	"github.com/roster-mesh/roster/federation"
	"github.com/roster-mesh/roster/federation/gossip"
	"github.com/roster-mesh/roster/federation/peering"
	"github.com/roster-mesh/roster/federation/witness"
	"github.com/roster-mesh/roster/gateway"
	"github.com/roster-mesh/roster/gateway/probe"
	"github.com/roster-mesh/roster/node/config"
	"github.com/roster-mesh/roster/node/metrics"
	"github.com/roster-mesh/roster/node/tracing"
	"github.com/roster-mesh/roster/trust"
	"github.com/roster-mesh/roster/trust/audit"
	"github.com/roster-mesh/roster/trust/credentials"
	"github.com/roster-mesh/roster/trust/policy"
)

// Env is the environment of a node. The defaults are the machine's network, the
// configured files and standard error.
type Env struct {
	Network Network
	Logger  *slog.Logger
	Level   *slog.LevelVar     // of Logger, which a reload changes; nil if it can't
	Timing  consensus.Timing   // zero for the defaults
	Gossip  gossip.Timing      // zero for the defaults
	Stretch federation.Stretch // of federation's pace; nil is 1
	Clock   func() time.Time   // the machine's wall clock, by which leases run; nil is time.Now
	Source  *trust.Source      // the node's SVID; nil for the configured one
	Context context.Context    // ends a Start that waits for the node's SVID; nil for one that nothing ends

	// BeginWithout are addresses of members or join at which no node has the domain's history, as an
	// operator says. See consensus.Config.
	BeginWithout []string

	// Together says that all nodes of the mesh stop at the same time, as in development: Close waits
	// briefly for answers under way, and for members of the gossip pool that are gone already.
	Together bool
}

// A Node is one running node.
type Node struct {
	cfg      config.Config
	id       spiffeid.ID
	net      Network
	log      *slog.Logger
	panics   *contain.Panics
	tracing  *tracing.Tracing // nil if it is off
	life     lifecycle
	admin    front
	source   *trust.Source
	bundles  *trust.Bundles
	key      *trust.Key
	keyring  *trust.Keyring
	policy   *policy.Policy
	callers  *credentials.Verifier
	trail    *audit.Log
	view     *index.View
	finder   *discovery.Finder
	store    *consensus.Store
	mesh     *federation.Mesh
	meshed   atomic.Pointer[federation.Mesh] // the same, for the parts that run before it is set
	findings *probe.Findings                 // nil if nothing is probed
	metrics  *metrics.Set
	face     *api.Server
	gateway  *gateway.Gateway // nil if it is off

	outbound outbound
	reloader reloader
	open     []net.Listener // without authentication
	answers  time.Duration  // that answers under way may take when the node stops

	agreements  *peering.Agreements
	attester    *attester
	keeper      *peering.BundleKeeper
	judgeBundle func(*directory.BundleChange) // has a bundle that is held back checked
	orders      *orders
	misconduct  *misconductReporter
	removals    removals // of peerings, of late
	logs        *witness.Logs
	witnessing  *witnessing

	server   *http.Server // of the API
	draining atomic.Bool

	mu      sync.Mutex // guards clients
	clients map[spiffeid.TrustDomain]*http.Client

	dialled dialledConns // to nodes of peers and of the own domain
}

// CloseTimeout bounds the whole of a node's stopping.
const CloseTimeout = 15 * time.Second

// Start starts a node. It returns once all listeners are open and the stored state is
// loaded. If a Workload API gives the identity and is not available yet, Start waits for
// it, and the admin listener reports that. Ready reports when the node can serve. If the
// start fails, Start stops the parts that it has started.
func Start(cfg config.Config, env Env) (*Node, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}

	node := &Node{cfg: cfg, net: env.Network.orTCP(), log: env.Logger, clients: map[spiffeid.TrustDomain]*http.Client{}}
	node.reloader.current.Store(&cfg)
	node.metrics = metrics.New(programVersion())
	node.answers = drainTimeout

	if env.Together {
		node.answers = togetherTime
		env.Gossip.Leave = togetherTime
	}

	if node.log == nil {
		node.log = cfg.Log.Logger(os.Stderr, nil)
	}

	node.panics = contain.New(node.log)
	if err := node.wire(env); err != nil {
		return nil, errors.Join(err, node.Close())
	}

	return node, nil
}

// Drain makes the node not ready, and serves for the configured time. Each answer meanwhile is
// the last of its connection, so that clients go to another node. Close follows it, and closes
// the connections that are still idle.
func (n *Node) Drain() {
	drain := n.reloader.current.Load().Drain
	n.log.Info("stopping", "drain_ms", drain.Milliseconds())
	n.draining.Store(true)

	// All members may be stopping, so the silence of another one is no warning from here on.
	n.store.Stopping()
	<-time.After(drain)
}

// Reload applies the reloadable keys of a valid configuration, all together, and logs their
// names. Other keys that differ from the running configuration are named in one line of the
// log, and change nothing before a restart (OPS-031).
func (n *Node) Reload(next *config.Config) {
	changed, restart := n.reloader.reload(next)
	n.log.Info("configuration reloaded", "changed", changed)

	if len(restart) > 0 {
		n.log.Warn("changed keys of the configuration need a restart; they are not applied", "keys", restart)
	}
}

// Close stops the node: it hands leadership over, answers the pending requests and ends
// every loop. It is safe to call twice.
func (n *Node) Close() error {
	bound, cancel := context.WithTimeout(context.Background(), CloseTimeout)
	defer cancel()

	return n.life.close(bound)
}

// errStopping says why a node that stops is not ready.
var errStopping = errors.New("the node is stopping")

// ID returns the node's SPIFFE ID.
func (n *Node) ID() spiffeid.ID { return n.id }

// Failed returns a channel that is closed when the node can't continue and must end: its
// log can't be written, or holds entries that this release doesn't know. Ready returns
// the cause, and the log has it. Nothing is acknowledged after that; everything
// acknowledged before is safe.
func (n *Node) Failed() <-chan struct{} { return n.store.Failed() }

// Alive takes the locks that requests and the replicated log take, and returns. It waits for
// no disk and no other node: if it doesn't return, the node hangs and only a restart helps.
func (n *Node) Alive() {
	n.store.Quotas()
	n.agreements.List()
	n.view.Own().Len()

	for _, origin := range n.view.Origins() {
		n.view.Origin(origin).Len()
	}
}

// Ready returns nil when the node has an identity and a leader, is caught up, can
// sign and can write its audit trail, and does not stop; else the check that fails.
func (n *Node) Ready() error {
	if n.draining.Load() {
		return errStopping
	}

	if err := n.source.Err(); err != nil {
		return fmt.Errorf("identity: %w", err)
	}

	if err := n.store.Ready(); err != nil {
		return err
	}

	if _, _, ok := n.keyring.Keys(n.cfg.TrustDomain); !ok {
		return errors.New("keys: the domain has issued no key document yet")
	}

	if err := n.trail.Err(); err != nil {
		return fmt.Errorf("audit: no change is made here while the trail can't be written: %w", err)
	}

	return nil
}
