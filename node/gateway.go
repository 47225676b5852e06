package node

import (
	"context"
	"crypto/x509"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/gateway"
	"github.com/roster-mesh/roster/node/config"
	"github.com/roster-mesh/roster/trust"
)

// wireGateway makes what invokes agents; nil where that is off.
func (n *Node) wireGateway() *gateway.Gateway {
	c := &n.cfg.Gateway
	if !c.Enabled {
		return nil
	}
	allow, _ := config.ParseRanges("gateway.allow_networks", c.AllowNetworks) // Validate has tried it
	var tokens gateway.Tokens
	if n.cfg.Identity.WorkloadAPI != "" {
		tokens = n.source // files give none
	}
	guard := gateway.NewGuard(gateway.GuardConfig{
		Allow: allow, Hosts: c.AllowHosts, Ports: c.Ports, AnyBundle: c.AnyBundle, Timeout: c.Timeout,
		Judge:       func(chain []*x509.Certificate) (spiffeid.ID, error) { return trust.VerifyServer(chain, n.bundles) },
		Certificate: n.source.Certificate,
	})
	n.life.onStop("gateway", func(context.Context) error { guard.Close(); return nil })
	g := gateway.New(gateway.Config{
		Guard: guard, Timeout: c.Timeout, StreamTimeout: c.StreamTimeout, MaxBody: c.MaxAnswer, MaxStream: c.MaxStream,
		Concurrent: c.Concurrent, PerSecond: c.PerSecond, KeyWindow: c.KeyWindow, PassHeaders: c.PassHeaders,
		Claims: n.store, Tokens: tokens, Domain: n.cfg.TrustDomain, Logger: n.log,
	})
	n.life.onStop("invocations", g.Close)
	return g
}
