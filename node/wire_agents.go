package node

import (
	"context"
	"crypto/x509"
	"fmt"
	"os"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/contain"
	"github.com/roster-mesh/roster/discovery"
	"github.com/roster-mesh/roster/gateway"
	"github.com/roster-mesh/roster/gateway/crawl"
	"github.com/roster-mesh/roster/gateway/probe"
	"github.com/roster-mesh/roster/node/config"
	"github.com/roster-mesh/roster/trust"
)

// wireGateway returns the gateway that invokes agents; nil if it is off.
func (n *Node) wireGateway() *gateway.Gateway {
	c := &n.cfg.Gateway
	if !c.Enabled {
		return nil
	}

	allow, _ := config.ParseRanges("gateway.allow_networks", c.AllowNetworks) // Validate has tried it

	guard := gateway.NewGuard(gateway.GuardConfig{
		Allow: allow, Hosts: c.AllowHosts, Ports: c.Ports, AnyBundle: c.AnyBundle, Timeout: c.Timeout,
		IsOwn: n.outbound.isOwn,
		Judge: func(chain []*x509.Certificate) (spiffeid.ID, error) {
			return trust.VerifyServer(chain, n.bundles)
		},
		Certificate: n.outbound.Certificate, InsecureLoopback: c.InsecureLoopback,
	})
	n.reloader.gateway = guard
	n.life.onStop("gateway", func(context.Context) error { guard.Close(); return nil })
	g := gateway.New(gateway.Config{
		Guard: guard, Timeout: c.Timeout, StreamTimeout: c.StreamTimeout, MaxBody: c.MaxAnswer, MaxStream: c.MaxStream,
		Concurrent: c.Concurrent, PerSecond: c.PerSecond, KeyWindow: c.KeyWindow, PassHeaders: c.PassHeaders,
		Claims: n.store, Tokens: &n.outbound, Domain: n.cfg.TrustDomain,
		Operates: n.operates, Logger: n.log,
	})

	// Stops run in reverse, so invocations end before the guard closes their connections.
	n.life.onStop("invocations", g.Close)

	return g
}

// wireCrawl starts to follow the configured origins.
func (n *Node) wireCrawl() error {
	if len(n.cfg.Crawl.Origins) == 0 {
		return nil
	}

	id, err := directory.ParseIdentity(n.cfg.Crawl.As)
	if err != nil {
		return fmt.Errorf("crawl.as: %w", err)
	}

	guard, err := n.outbound.crawlGuard(&n.cfg.Crawl)
	if err != nil {
		return err
	}

	n.reloader.crawl = guard
	n.life.onStop("crawl", func(context.Context) error { guard.Close(); return nil })

	for _, text := range n.cfg.Crawl.Origins {
		origin, err := crawl.ParseOrigin(text)
		if err != nil {
			return fmt.Errorf("crawl.origins: %w", err)
		}

		follower := &crawl.Follower{
			Origin:   origin,
			As:       id,
			Guard:    guard,
			Registry: n.face.Registry(),
			Policy:   n.policy,
			Index:    n.view.Own(),
			IsLeader: n.store.IsLeader,
			Contain:  n.containAnswer,
			Logger:   n.log,
		}
		n.life.loop("crawl of "+origin.Host, follower.Run)
	}

	return nil
}

// containAnswer runs a function that reads the answer of an agent's server.
func (n *Node) containAnswer(f func()) { n.panics.Do(contain.Answer, f) }

// wireProbe starts to probe the domain's agents, if that is configured.
func (n *Node) wireProbe() error {
	c := &n.cfg.Probe
	if n.findings == nil {
		return nil
	}

	guard, err := n.outbound.probeGuard(c, n.bundles)
	if err != nil {
		return err
	}

	n.reloader.probe = guard
	n.life.onStop("probe", func(context.Context) error { guard.Close(); return nil })

	cfg := probe.ProberConfig{
		Guard:      guard,
		Findings:   n.findings,
		Index:      n.view.Own(),
		Consensus:  n.store,
		Interval:   c.Every,
		Concurrent: c.Concurrent,
		Contain:    n.containAnswer,
		Count:      func(state directory.ProbeState) { n.metrics.Probes.WithLabelValues(string(state)).Inc() },
		Logger:     n.log,
	}

	if c.Renew {
		as, err := directory.ParseIdentity(c.As)
		if err != nil {
			return fmt.Errorf("probe.as: %w", err)
		}

		cfg.Renew = &probe.Renewer{
			Registry: n.face.Registry(),
			Caller: func() directory.Caller {
				// The policy may have changed since the last batch.
				return directory.Caller{Identity: as, Commissioning: n.policy.Commission(as), RequestID: "prober"}
			},
			Permits: func(e *directory.Entry) bool { return n.policy.Renew(e).Allow },
		}
	}

	n.life.loop("prober", probe.NewProber(cfg).Run)

	return nil
}

// wireDiscovery starts the index that registrations are found by.
func (n *Node) wireDiscovery() error {
	d := &n.cfg.Discovery

	cfg := discovery.Config{View: n.view, Panics: n.panics, Class: n.policy.Class, Generation: n.policy.Generation,
		Logged: n.logged, Weights: discovery.Weights(d.Weights)}
	for i, file := range d.Taxonomies {
		t, err := config.LoadTaxonomy(file)
		if err != nil {
			return fmt.Errorf("discovery.taxonomies[%d]: %w", i, err)
		}

		for _, other := range cfg.Taxonomies {
			if other.ID == t.ID {
				return fmt.Errorf("discovery.taxonomies[%d]: %s has the id %q of another", i, file, t.ID)
			}
		}

		cfg.Taxonomies = append(cfg.Taxonomies, t)
	}

	if e := d.Embeddings; e.URL != "" {
		client, err := gateway.NewEmbeddings(e.URL, e.Model, e.KeyFile)
		if err != nil {
			return fmt.Errorf("discovery.embeddings: %w", err)
		}

		cfg.Embedder = client
		n.life.onStop("embeddings", func(context.Context) error { client.Close(); return nil })
	}

	finder, err := discovery.New(cfg)
	if err != nil {
		return fmt.Errorf("discovery: %w", err)
	}

	n.finder = finder

	// The loop below ends before the finder closes, because stops run in reverse.
	n.life.onStop("discovery", func(context.Context) error { finder.Close(); return nil })
	n.life.loop("discovery index", func(ctx context.Context) {
		if err := finder.Run(ctx); ctx.Err() == nil {
			n.log.Error("the discovery index follows no more", "err", err)
		}
	})

	return nil
}

// readRoots reads certificate authorities in PEM; nil, which is the system's, where
// no file is named.
func readRoots(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}

	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}

	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s has no certificate in PEM", file)
	}

	return roots, nil
}

// guardConfig returns the outbound rules of a block of the configuration: public addresses
// and those that the operator allows, with certificates of the web's CAs or of a file.
func guardConfig(key string, allow []string, ca string) (cfg gateway.GuardConfig, err error) {
	if cfg.Allow, err = config.ParseRanges(key+".allow", allow); err != nil {
		return cfg, err
	}

	if cfg.Roots, err = readRoots(ca); err != nil {
		return cfg, fmt.Errorf("%s.ca: %w", key, err)
	}

	return cfg, nil
}
