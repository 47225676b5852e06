package node

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"golang.org/x/time/rate"

	"github.com/roster-mesh/roster/api"
	apioperator "github.com/roster-mesh/roster/api/operator"
	"github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/consensus"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/durable"
	"github.com/roster-mesh/roster/directory/egress"
	"github.com/roster-mesh/roster/directory/index"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/federation"
	"github.com/roster-mesh/roster/federation/gossip"
	"github.com/roster-mesh/roster/federation/peering"
	"github.com/roster-mesh/roster/gateway/probe"
	"github.com/roster-mesh/roster/limit"
	"github.com/roster-mesh/roster/node/config"
	"github.com/roster-mesh/roster/node/dnssd"
	"github.com/roster-mesh/roster/node/listener"
	"github.com/roster-mesh/roster/node/memory"
	"github.com/roster-mesh/roster/node/metrics"
	"github.com/roster-mesh/roster/node/port"
	"github.com/roster-mesh/roster/node/tracing"
	"github.com/roster-mesh/roster/trust"
	"github.com/roster-mesh/roster/trust/audit"
	"github.com/roster-mesh/roster/trust/policy"
)

// wire starts the parts of a node in one straight line. The stops run in reverse.
func (n *Node) wire(env Env) error {
	if err := n.wireAdmin(); err != nil {
		return err
	}

	if err := wireTracing(n); err != nil {
		return err
	}

	if err := n.wireIdentity(env); err != nil {
		return err
	}

	// The Workload API that wireIdentity has opened may provide the gateway's SVID, too.
	if err := n.outbound.open(n); err != nil {
		return err
	}

	// All ports are bound before the state is loaded: an address that is taken fails the start at once.
	ln, err := bind(n.net, &n.cfg)
	if err != nil {
		return err
	}

	// Other members learn these addresses by consensus, so that no gateway of the domain connects to them (threats.md,
	// S6).
	bound := slices.Concat(n.open, []net.Listener{ln.api, ln.cluster, ln.gossip})
	n.outbound.listeners = listener.Addresses(consensus.MaxListeners, bound, n.member().Cluster,
		n.cfg.Gossip.Advertise)

	wireDebug(n) // before the data is loaded, so that a slow start can be profiled

	// Close stops the parts that have started. The listeners that no part has taken over yet are closed here.
	if err := n.wireDirectory(ln, env); err != nil {
		return errors.Join(err, ln.close())
	}

	n.face = n.wireAPI()
	if err := startServer(n, ln.api); err != nil {
		return errors.Join(err, ln.close())
	}

	// A scrape reads every part, so the metrics are shown once all parts exist.
	registerMetrics(n)

	n.admin.show(n.metrics, n.Ready, n.mesh.Shed)

	// Stops run in reverse, so /readyz fails before the API's server begins to drain.
	n.life.onStop("readiness", func(context.Context) error {
		n.admin.show(nil, func() error { return errors.New("stopping") }, nil)
		return nil
	})

	if err := n.wireCrawl(); err != nil {
		return err
	}

	if err := n.wireProbe(); err != nil {
		return err
	}

	// Only a started node is reloaded, so the reloader gets its parts last.
	n.reloader.level, n.reloader.front, n.reloader.face, n.reloader.store = env.Level, &n.admin, n.face, n.store

	return n.wireDNSSD(ln.api.Addr())
}

// startServer serves the API on ln.
func startServer(n *Node, ln net.Listener) error {
	n.server = listener.NewServer(n.face.Handler(), trust.ServerTLS(n.source, n.bundles, n.metrics.HandshakeRefused),
		n.log)
	closeInvalid := listener.ExpireWithCertificates(n.server, n.callers.Holds)
	n.life.loop("connections by dropped authorities", func(ctx context.Context) {
		n.dialled.followBundles(ctx, n.bundles, closeInvalid)
	})
	listener.LeaveWhile(n.server, n.draining.Load)
	listener.CloseAborted(n.server)

	// BoundStreams has net/http set up HTTP/2 from the server's settings, so it is the last to change them.
	if err := listener.BoundStreams(n.server); err != nil {
		return err
	}

	// Shutdown waits for pending answers. Long polls and streams would outlast its bound, so they are ended when it
	// begins. The API is first, so that it logs none of them as a fault.
	n.server.RegisterOnShutdown(func() {
		n.face.Drain()
		n.mesh.Drain()

		if n.gateway != nil {
			n.gateway.Drain()
		}
	})

	limits := &n.cfg.Limits
	n.serve(apiListener, n.server, n.limited(apiListener, ln, limits.Connections, limits.ConnectionsPerAddress))

	return nil
}

// registerMetrics registers the metrics that read the node's state.
func registerMetrics(n *Node) {
	n.metrics.Registry.MustRegister(&metrics.Collector{
		Data:     n.cfg.Data,
		Store:    n.store,
		View:     n.view,
		Source:   n.source,
		Audit:    n.trail,
		Server:   n.face,
		Mesh:     n.mesh,
		Panics:   n.panics,
		Tracing:  n.tracing,
		Finder:   n.finder,
		Findings: n.findings,
		Bundles:  n.keeper,
		Cosigned: n.witnessing.leaves,
	})
}

// wireDNSSD announces the directory on the local network, if that is configured.
func (n *Node) wireDNSSD(listener net.Addr) error {
	if !n.cfg.DNSSD.Enabled {
		return nil
	}

	announcer, err := dnssd.Announce(
		n.cfg.DNSSD, dnssd.Directory{Node: n.id, PublicURL: n.cfg.PublicURL, Listener: listener}, n.log)
	if err != nil {
		return err
	}

	n.life.onStop("dns_sd", func(context.Context) error { return announcer.Close() })

	return nil
}

// wireDirectory starts the parts that hold and share the node's data, before the API
// serves them.
func (n *Node) wireDirectory(ln listeners, env Env) error {
	if err := n.wireTrust(); err != nil {
		return err
	}

	if err := n.wireAudit(); err != nil {
		return err
	}

	n.view = index.NewViewBy(n.cfg.TrustDomain, directory.NewCheckedClock(env.Clock))

	// Consensus answers other members from the findings, so they exist before it.
	if n.cfg.Probe.Enabled {
		n.findings = probe.NewFindings()
	}

	if err := n.wireConsensus(ln.cluster, &env); err != nil {
		return err
	}

	if err := n.wireFederation(ln.gossip, env); err != nil {
		return err
	}

	if err := n.wireDiscovery(); err != nil {
		return err
	}

	// The keeper asks the mesh for further addresses of a peer's nodes, so it runs once the mesh is open.
	n.life.loop("bundles of peers", n.keeper.Run)

	return nil
}

// wireAdmin starts the listeners without authentication first, so that a node that waits for
// its identity can report that.
func (n *Node) wireAdmin() error {
	n.admin.publicURL = n.cfg.PublicURL
	n.admin.hosts.Store(&n.cfg.Listen.Hosts)
	n.admin.show(nil, func() error { return errors.New("starting") }, nil)

	for _, each := range []struct {
		name, address string
		handler       http.Handler
	}{
		{"admin", n.cfg.Listen.Admin, n.admin.handler(func(h *frontHandlers) http.Handler { return h.admin })},
		{"health", n.cfg.Listen.Health, n.admin.handler(func(h *frontHandlers) http.Handler { return h.health })},
		{"metrics", n.cfg.Listen.Metrics, n.admin.handler(func(h *frontHandlers) http.Handler { return h.metrics })},
	} {
		if each.address == "" {
			continue
		}

		ln, err := n.net.Listen(each.address)
		if err != nil {
			return port.Explain("listen."+each.name, each.address, err)
		}

		n.open = append(n.open, ln)

		// The admin listener is on loopback, so other machines can't use up its connections.
		if each.name != "admin" {
			ln = n.limited(each.name, ln, maxProbeConns, 0)
		}

		if !egress.IsLoopback(each.address) {
			n.log.Warn("other machines can reach a listener without authentication; restrict access by a firewall",
				"listener", each.name, "address", ln.Addr().String())
		}

		n.serve(each.name, listener.NewServer(each.handler, nil, n.log), ln)
	}

	return nil
}

// wireTracing starts the export of traces, if that is configured. It stops after all parts that
// record.
func wireTracing(n *Node) error {
	trace := &n.cfg.Trace
	if trace.Endpoint == "" {
		return nil
	}

	roots, err := readRoots(trace.CA)
	if err != nil {
		return fmt.Errorf("trace.ca: %w", err)
	}

	n.tracing, err = tracing.Start(tracing.Config{Endpoint: trace.Endpoint, Roots: roots, Sample: trace.Sample,
		Asked: trace.Asked, Version: programVersion(), Logger: n.log})
	if err != nil {
		return err
	}

	n.life.onStop("traces", func(bound context.Context) error {
		bound, cancel := context.WithTimeout(bound, tracesBound)
		defer cancel()

		return n.tracing.Stop(bound)
	})

	return nil
}

// tracesBound is the time that a node which stops gives the collector.
const tracesBound = 2 * time.Second

// maxProbeConns caps the connections of listen.health and listen.metrics each: an address
// may have a sixteenth.
const maxProbeConns = 256

// wireDebug serves profiles at a socket that only the node's account may open (SEC-016).
func wireDebug(n *Node) {
	if n.net.private == nil {
		return
	}

	path := n.cfg.DebugSocket()

	// A first start comes here before the directory is there.
	if err := os.MkdirAll(n.cfg.Data, 0o700); err != nil {
		n.log.Warn("profiles have no socket", "path", path, "err", err)
		return
	}

	ln, err := n.net.private(path)
	if err != nil {
		// The path of a socket is bounded; operators have profiles at the API.
		n.log.Warn("profiles have no socket", "path", path, "err", err)
		return
	}

	n.serve("debug", listener.NewServer(apioperator.NewDebug(n.cfg.PublicURL), nil, n.log), ln)
	n.life.onStop("debug socket", func(context.Context) error { return ignoreAbsent(os.Remove(path)) })
}

func ignoreAbsent(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}

	return err
}

// wireTrust loads the authorities that this node trusts, and its signing key.
func (n *Node) wireTrust() (err error) {
	// A node's first start makes its data folder.
	if err := makePrivate(n.cfg.Data, n.log); err != nil {
		return fmt.Errorf("data: %w", err)
	}

	td := n.cfg.TrustDomain
	if n.key, err = trust.OpenKey(n.cfg.Data); err != nil {
		return fmt.Errorf("data: the signing key: %w", err)
	}

	n.keyring = trust.NewKeyring(td, n.key, n.bundles)
	if n.policy, err = policy.New(n.cfg.Policy, td); err != nil {
		return fmt.Errorf("policy: %w", err)
	}

	n.policy.Failing(reportForbids(n.metrics.Forbids.Inc, n.log))

	// The agreements of the last run provide the peers' bundles before the log is applied.
	n.agreements, err = peering.Load(peering.Config{
		Dir:     filepath.Join(n.cfg.Data, "peers"),
		Bundles: n.bundles,
		Client: func(former directory.Peering) (*http.Client, func(), error) {
			return stranger(n.net, former, n.source)
		},
		Removal: n.removals.of,
		Proven: func(peer spiffeid.TrustDomain, bundle []byte) bool {
			return n.store.Commands.Proven(peer, bundle)
		},
		Judge:       func(change *directory.BundleChange) { n.judgeBundle(change) },
		Changed:     n.policy.Reconsider, // a peer's identities see the exports to their domain
		ReplaceFile: durable.WriteFile,
		Logger:      n.log,
	})
	if err != nil {
		return fmt.Errorf("data: peers: %w", err)
	}

	// Policy and agreements refer to each other, so the policy gets this function once both exist.
	n.policy.Exports(n.agreements.ExportsTo)

	return n.wireCallers()
}

// wireAudit opens the trail of changes and refusals.
func (n *Node) wireAudit() error {
	trail, err := audit.Open(filepath.Join(n.cfg.Data, "audit.jsonl"), audit.Options{
		Domain: n.cfg.TrustDomain, Size: n.cfg.Audit.Size << 20, Files: n.cfg.Audit.Files, Keep: n.cfg.Audit.Keep,
		Logger: n.log,
	})
	if err != nil {
		return fmt.Errorf("data: the audit trail: %w", err)
	}

	n.trail = trail
	n.misconduct = &misconductReporter{
		log: n.log, trail: trail, refused: n.metrics.Misconduct,
		lines: limit.NewLines[misconductKey](maxMisconducts, misconductRate),
	}
	n.life.onStop("audit", func(context.Context) error { return trail.Close() })
	n.life.loop("audit of refusals", trail.Run)

	return nil
}

// member returns this node among the members.
func (n *Node) member() *config.Member { return n.cfg.Member(n.id) }

// wireConsensus starts the domain's own state, and the loops that follow it.
func (n *Node) wireConsensus(ln net.Listener, env *Env) error {
	cfg := consensusConfig(n, ln, env)

	var err error
	if n.orders, err = newOrders(n); err != nil {
		return err
	}

	cfg.CheckOperator = n.orders.CheckCommand
	cfg.Misconduct = n.misconduct.report
	cfg.CheckFarewell = n.orders.CheckFarewell
	cfg.Bundles = n.agreements.BundlesInForce
	n.logs = n.witnessedLogs()
	cfg.CheckCheckpoint = n.checkCheckpoint

	keeper, sources, err := n.newKeeper()
	if err != nil {
		return err
	}

	n.keeper, cfg.CheckBundle = keeper, keeper.Confirm
	cfg.CheckAttestation = func(key signed.SigningKey) error { return trust.CheckAttestations(key, n.bundles) }

	cfg.Authorities = func() []byte {
		bundle, err := n.bundles.Authorities(n.cfg.TrustDomain)
		if err != nil {
			return nil
		}

		return bundle
	}

	store, err := consensus.Open(cfg)
	if err != nil {
		return fmt.Errorf("consensus: %w", err)
	}

	n.store = store

	// The data directory is this process's own from here on.
	if err := durable.Clean(n.cfg.Data); err != nil {
		n.log.Warn("what a crash left of writes stays in the data directory", "path", n.cfg.Data, "err", err)
	}

	n.outbound.members = store.RaftPeers
	n.agreements.Begin(store)
	n.life.onStop("consensus", func(bound context.Context) error { return within(bound, store.Close) })

	startAttester(n)
	startCommandAudit(n, sources)

	n.life.loop("peerings", n.agreements.Run)
	n.life.loop("key document", func(ctx context.Context) { followKeys(ctx, store, n.keyring) })

	return nil
}

// consensusConfig returns the configuration of this member, without the checks of operators'
// commands and of bundles.
func consensusConfig(n *Node, ln net.Listener, env *Env) consensus.Config {
	own := AuthorizeNodesOf(n.cfg.TrustDomain)

	cfg := consensus.Config{
		Domain: n.cfg.TrustDomain, Node: n.id, Dir: n.cfg.ConsensusDir(),
		Listener: n.limited("cluster", ln, maxNodeConns, 0), Dial: n.net.Dial,
		ServerTLS: trust.NodeServerTLS(n.source, n.bundles, own, n.metrics.HandshakeRefused),
		ClientTLS: trust.ClientTLS(n.source, n.bundles, own),
		Clock:     n.view.Clock(), Index: n.view.Own(),
		Grants: n.grants, Basis: policyBasis(n.cfg.Policy), CheckPolicy: checkPolicy,
		Commission: n.policy.Commission, Permit: permitter(n.policy),
		Policy:      n.applyPolicy,
		MaxLifetime: n.cfg.Lifetimes.Max, KeepHistory: n.cfg.History.Keep, HistoryBytes: n.cfg.History.MaxBytes,
		Timing: env.Timing, Logger: n.log, Tracer: n.tracing.Tracer(),
		Rules: consensusRules(&n.cfg),
	}
	for _, m := range n.cfg.Members {
		cfg.Members = append(cfg.Members, consensus.Member{ID: m.ID, Address: m.Cluster})
	}

	cfg.FormatsOf = n.formatsOf
	if n.findings != nil {
		cfg.Aside = n.findings.Answer
	}

	cfg.Join, cfg.Expect, cfg.Reader = n.cfg.Join, n.cfg.Expect, !n.cfg.Voter
	cfg.BeginWithout = env.BeginWithout
	cfg.Resolve = n.net.resolve
	cfg.API, cfg.RemoveDead, cfg.Listeners = n.member().API, n.cfg.RemoveDead, n.outbound.listeners

	cfg.Timing.SlowDisk, cfg.Timing.SlowDiskFor = n.cfg.Disk.Slow, n.cfg.Disk.HandOverAfter
	if cfg.Timing.SlowDisk == 0 {
		// For consensus, 0 is its default, and a negative time is off.
		cfg.Timing.SlowDisk = -1
	}

	return cfg
}

// startAttester starts the attestation of this node's signing key.
func startAttester(n *Node) {
	n.attester = &attester{
		node: n.id, dir: n.cfg.Data, source: n.source, store: n.store, keyring: n.keyring, log: n.log,
		busy: make(chan struct{}, 1), key: n.key,
	}
	n.life.loop("attestation", n.attester.run)
}

// startCommandAudit starts the checks of changed bundles, at their sources, and of operators'
// commands, as members find them in the log.
func startCommandAudit(n *Node, sources bundleSources) {
	judge := &bundleJudge{
		found:   func(change *directory.BundleChange) bool { return n.keeper.Found(change.Was.Domain, change.Next) },
		confirm: sources.confirm, holds: n.agreements.Holds, confirmed: n.agreements.Confirm,
		trail: n.trail, log: n.log, invalid: n.metrics.Proofs.Inc,
		unchecked: n.metrics.Unchecked.WithLabelValues(metrics.MissedEndpoint).Inc,
		pause:     bundlePause, during: bundleJudgeTime, waiting: make(chan bundleCheck, bundlesWait),
	}
	n.judgeBundle = judge.add
	n.life.loop("check of peers' bundles", judge.run)

	recorder := &commandRecorder{
		store: n.store, orders: n.orders, trail: n.trail, log: n.log, invalid: n.metrics.Proofs.Inc,
		unchecked: n.metrics.Unchecked, bundle: judge.add, removals: &n.removals,
	}
	n.life.loop("audit of operators' commands", recorder.run)
	n.life.loop("audit head", func(ctx context.Context) { pinAuditHeads(ctx, n.store, n.trail, n.log) })

	changes := &changeRecorder{
		node: n.id, feed: n.store.Changes, trail: n.trail, log: n.log, unsent: n.metrics.Unsent.Inc,
	}
	n.life.loop("audit of other members' changes", changes.run)
}

// followKeys gives the keyring the domain's newest key document.
func followKeys(ctx context.Context, store *consensus.Store, keyring *trust.Keyring) {
	var known *signed.KeyDocument

	for {
		// The channel is taken before the document is read, so each later document closes it.
		changed := store.Agreed()
		if doc := store.KeyDocument(); doc != nil && doc != known {
			keyring.SetOwn(doc)
			known = doc
		}

		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

// formatsOf returns the formats that a peer reads, and the time until which that holds. known is false before the mesh
// is open.
func (n *Node) formatsOf(peer spiffeid.TrustDomain) (formats signed.Formats, until time.Time, known bool) {
	// Consensus may ask as soon as it is open, which is before wireFederation has set the mesh.
	mesh := n.meshed.Load()
	if mesh == nil {
		return nil, until, false
	}

	return mesh.FormatsOf(peer)
}

// within stops waiting for f when bound ends: closing a log waits for its disk,
// which may hang.
func within(bound context.Context, f func() error) error {
	// The buffer lets the goroutine end if f returns after bound.
	done := make(chan error, 1)
	go func() { done <- f() }()

	select {
	case err := <-done:
		return err
	case <-bound.Done():
		return bound.Err()
	}
}

// federationBound bounds the end of federation, whose disk may hang, and leaves time for
// the end of consensus.
const federationBound = CloseTimeout / 4

// wireFederation starts the exchange with other domains.
func (n *Node) wireFederation(ln net.Listener, env Env) error {
	cfg := federation.Config{
		Domain: n.cfg.TrustDomain, Node: n.id, Inside: n.policy.Inside, PublicURL: n.cfg.PublicURL,
		Address: n.member().API,
		Dir:     filepath.Join(n.cfg.Data, "federation"),
		Source:  n.store, Keys: n.keyring, LogKeys: n.keyring.LogKeys, View: n.view, Peerings: n.agreements.List,
		WitnessKeys: n.keyring.WitnessKeys,
		Cosigned:    func(log string) string { taken, _, _ := n.store.Cosigned(log); return taken.Note },
		Siblings:    n.store.Siblings, Member: newMembership(n).isMember,
		Client: n.client, Dialect: signed.OwnDialect(), Logger: n.log, Tracer: n.tracing.Tracer(),
		Doubted:  n.misconduct.doubted,
		Farewell: n.endedByPeer, Verifier: evidenceVerifier{n.keyring, n.agreements}, Stretch: env.Stretch,
		MemoryLimit: memory.Limit(), MemoryInUse: memory.InUse, Panics: n.panics,
	}
	cfg.Records, cfg.Bytes = n.cfg.Limits.PeerQuotas(memory.Limit())

	if ln != nil {
		cfg.Gossip = n.gossip(ln, env)
	}

	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return fmt.Errorf("data: %w", err)
	}

	mesh, err := federation.Open(cfg)
	if err != nil {
		return fmt.Errorf("federation: %w", err)
	}

	n.mesh = mesh

	// The loops of consensus run already, and read the mesh by this pointer.
	n.meshed.Store(mesh)
	n.life.onStop("federation", func(bound context.Context) error {
		bound, cancel := context.WithTimeout(bound, federationBound)
		defer cancel()

		return within(bound, mesh.Close)
	})

	// Stops run in reverse, so the loops end before the mesh closes.
	n.life.loopWithin("federation loops", federationBound, func(ctx context.Context) {
		if err := mesh.Run(ctx); err != nil {
			n.log.Error("federation has stopped", "err", err)
		}
	})

	startWitnesses(n, env.Stretch)

	n.life.loop("quotas", func(ctx context.Context) {
		metrics.WatchQuotas(ctx, n.log, func() []metrics.QuotaUse { return metrics.QuotaUses(n.store, n.mesh) })
	})

	states := &stateLog{
		leader: n.store.Leader, ready: n.Ready, log: n.log, pace: env.Stretch,
		svid: func() *x509.Certificate {
			if svid := n.source.SVID(); svid != nil {
				return svid.Certificates[0]
			}

			return nil
		},
		lines: rate.NewLimiter(rate.Every(stateLinePace), stateLines),
	}
	n.life.loop("state log", states.run)

	return nil
}

func (n *Node) gossip(ln net.Listener, env Env) *gossip.Config {
	// A reload and a new peering change the seeds, so they are read at each use.
	seeds := func() []string {
		return slices.Concat(n.reloader.current.Load().Gossip.Seeds, n.agreements.Seeds())
	}
	allow := func(id spiffeid.ID) error {
		if !n.mesh.Admits(id) {
			return fmt.Errorf("%s is no present node of this domain or of an active peer", id)
		}

		return nil
	}

	return &gossip.Config{
		Node: n.id, Listener: n.limited("gossip", ln, maxNodeConns, 0), Dial: n.net.Dial,
		Bound:     func(server *http.Server) { listener.ExpireWithCertificates(server, n.callers.Holds) },
		ServerTLS: trust.NodeServerTLS(n.source, n.bundles, allow, n.metrics.HandshakeRefused),
		ClientTLS: trust.ClientTLS(n.source, n.bundles, allow),
		Advertise: advertised(n, ln), Allow: func(id spiffeid.ID) bool { return n.mesh.Admits(id) }, Seeds: seeds,
		Logger: n.log, Timing: env.Gossip,
	}
}

// advertised is where other nodes reach the gossip listener: as configured, or
// the listener's port at the address by which the domain's members reach this
// node.
func advertised(n *Node, ln net.Listener) string {
	if n.cfg.Gossip.Advertise != "" {
		return n.cfg.Gossip.Advertise
	}

	// Neither can fail: the listener is bound, and Validate has checked the member's address.
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	host, _, _ := net.SplitHostPort(n.member().Cluster)

	return net.JoinHostPort(host, port)
}

// operator returns the routes of operators.
func (n *Node) operator() operator {
	self := selfReport{n.id, n.cfg.Data, n.store, n.source, n.bundles, n.Ready, n.witnessing.status}
	return operator{self, n.store, n.view, n.mesh, n.policy, n.keeper, n.agreements, n.attester.rotate}
}

// wireAPI makes the directory's HTTP face.
func (n *Node) wireAPI() *api.Server {
	cfg := api.Config{
		Domain: n.cfg.TrustDomain, PublicURL: n.cfg.PublicURL, Service: n.agreements.Service,
		Registry: n.store, View: n.view, Policy: n.policy, Finder: n.finder, StrictFilters: n.cfg.Discovery.Strict,
		Frozen: n.mesh.Frozen, Panics: n.panics, IsPeer: n.agreements.IsActive,
		Ledger: n.ledgers(), Logged: n.logged, Past: n.past,
		Bundle: n.ownBundle(), Bundles: heldBundles{n.bundles},
		VerifyProof: heldBundles{n.bundles}.verifyProof, Identify: n.identify, Claimed: claimedBy(n.callers),
		ConsumeProof:    n.store.Spend,
		CredentialLives: n.cfg.Lifetimes.Credentials, AcceptedCredentials: n.acceptedCredentials(),
		CredentialRefused: n.metrics.CredentialRefused,
		Witness:           n.newWitness().Handler(),
		Federation:        n.mesh.Handler(peerNode), Records: records{n.cfg.TrustDomain, n.mesh, n.store, n.keyring,
			n.bundles, n.ledgers()}, Recipients: n.recipients, AuditLog: n.trail, Trail: n.trail, Node: n.id,
		Operator: n.operator(), Orders: n.orders, Stranger: newMembership(n).isStranger,
		Nodes:    newMembership(n).addresses,
		Peerings: &peers{n.source.SVID().ID, n.agreements, &n.cfg, n.net, n.bundles, n.store, n.mesh},
		Cluster:  cluster{n.cfg.TrustDomain, n.store}, Backups: backups{n.store},
		CaughtUp: n.store.Settled, Position: n.mesh.Position, Await: n.await, Observe: n.metrics.Observe,
		MaxStale: n.cfg.MaxStale, Logger: n.log, Tracer: n.tracing.Tracer(),
		Workers: n.cfg.Limits.Workers, Waiting: n.cfg.Limits.Waiting, MemoryInUse: memory.InUse,
		Shed: n.metrics.RequestShed, Without: n.mesh.Shed,
		Sizes: n.cfg.Limits.Sizes(), IsOperator: n.isOperator, OwnPrefixes: n.callers.OwnPrefixes(),
		Limits: n.cfg.Limits.Rates(), CallerLimits: n.cfg.Limits.CallerTerms(),
		MinLifetime: n.cfg.Lifetimes.Min,
	}
	if n.findings != nil {
		cfg.Probed = n.findings.Of
	}

	if n.gateway = n.wireGateway(); n.gateway != nil {
		g := n.gateway
		cfg.Gateway = g
		cfg.Invocable = g.Invocable
		cfg.MaxInvocation = n.cfg.Gateway.MaxRequest
	}

	return api.New(cfg)
}

// peerNode returns the SPIFFE ID that a peer's node shows.
func peerNode(r *http.Request) (spiffeid.ID, bool) { return trust.PeerID(r.TLS) }

// grants decides which domains may read a registration; the leader writes the result
// into the command.
func (n *Node) grants(subject consensus.Subject) []directory.Grant {
	return grants(n.policy, n.store.Peerings(), subject)
}

// recipients returns the peers to which a registration of the domain is sent, or not.
func (n *Node) recipients(entry *directory.Entry) []wire.Recipient {
	return audience(n.policy, n.store.Peerings(), entry)
}

func checkPolicy(text []byte) error { return policy.Check(policyFile, text) }

// Each policy that fails is logged once a minute, and so many at a time.
const maxFailingPolicies = 64

var failingPolicyRate = limit.Rate{PerSecond: 1.0 / 60, Burst: 1}

// reportForbids counts and logs the forbids that can't be evaluated.
func reportForbids(count func(), log *slog.Logger) func(id, action, reason string) {
	lines := limit.NewLines[string](maxFailingPolicies, failingPolicyRate)

	return func(id, action, reason string) {
		count()

		// Any caller can repeat a request that the policy fails on, so the rate is that of each policy.
		if skipped, due := lines.Take(id); due {
			log.Warn("a forbid of the domain's policy can't be evaluated, so it forbids every such request; "+
				"correct it, see roster policy check",
				"policy", id, "action", action, "err", reason, "skipped", skipped)
		}
	}
}

// applyPolicy puts the domain's policy in force at this node.
func (n *Node) applyPolicy(text []byte, revision uint64) {
	if err := n.policy.Set(text, revision); err != nil {
		n.log.Error("this release can't read the domain's policy; nothing is permitted here until it is upgraded",
			"version", revision, "err", err)
	}
}

// await waits until this node has reached a position of a domain's history: of its own by
// consensus, of another by federation.
func (n *Node) await(ctx context.Context, td spiffeid.TrustDomain, at directory.Position) error {
	if td == n.cfg.TrustDomain {
		return n.store.Await(ctx, at)
	}

	return n.mesh.Await(ctx, td, at)
}

// newKeeper returns the keeper of peers' bundles, which does nothing before it runs.
func (n *Node) newKeeper() (*peering.BundleKeeper, bundleSources, error) {
	roots, err := readRoots(n.cfg.Bundles.CA)
	if err != nil {
		return nil, bundleSources{}, fmt.Errorf("bundles.ca: %w", err)
	}

	sources := bundleSources{
		fetcher: trust.NewFetcher(n.bundles, roots, n.net.fetch),
		known:   func(td spiffeid.TrustDomain) []string { return n.mesh.StatedAddresses(td) },
	}

	return &peering.BundleKeeper{
		Peerings: func() []directory.Peering {
			// Without a membership, this node can't propose a bundle; the members agree on bundles without it.
			if n.store.IsOutside() {
				return nil
			}

			return n.agreements.List()
		},
		Fetch: sources.fetch,
		Propose: func(ctx context.Context, td spiffeid.TrustDomain, held, bundle []byte) error {
			return n.store.SetBundle(ctx, td, held, bundle)
		},
		Same:   trust.SameBundle,
		Panics: n.panics,
		Logger: n.log,
	}, sources, nil
}

// ownBundle returns the handler's source of BundlePath; nil if it is not served.
func (n *Node) ownBundle() func() ([]byte, error) {
	if !n.cfg.Bundles.Serve {
		return nil
	}

	return func() ([]byte, error) {
		data, err := n.bundles.Publish(n.cfg.TrustDomain)
		if errors.Is(err, trust.ErrNoBundle) {
			return nil, directory.Refuse(directory.Unavailable, "this node has no bundle of its own domain")
		}

		return data, err
	}
}
