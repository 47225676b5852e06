package node

import (
	"context"
	"crypto/x509"
	"fmt"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/gateway"
	"github.com/roster-mesh/roster/gateway/probe"
	"github.com/roster-mesh/roster/trust"
)

// wireProbe starts to probe the domain's agents, if that is configured.
func (n *Node) wireProbe() error {
	c := &n.cfg.Probe
	if n.findings == nil {
		return nil
	}

	guard, err := n.probeGuard()
	if err != nil {
		return err
	}

	cfg := probe.ProberConfig{
		Guard:      guard,
		Findings:   n.findings,
		Index:      n.view.Own(),
		Consensus:  n.store,
		Interval:   c.Every,
		Concurrent: c.Concurrent,
		Contain:    n.containAnswer,
		Count:      func(state directory.ProbeState) { n.metrics.probes.WithLabelValues(string(state)).Inc() },
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
				return directory.Caller{Identity: as, Commissioning: n.policy.Commission(as), RequestID: "prober"}
			},
		}
	}

	n.life.loop("prober", probe.NewProber(cfg).Run)

	return nil
}

// probeGuard makes the client of probes, which presents this node's certificate.
func (n *Node) probeGuard() (*gateway.Guard, error) {
	cfg, err := guardConfig("probe", n.cfg.Probe.Allow, n.cfg.Probe.CA)
	if err != nil {
		return nil, err
	}

	cfg.Timeout = probe.Timeout
	cfg.Certificate = n.source.Certificate
	cfg.Judge = func(chain []*x509.Certificate) (spiffeid.ID, error) {
		return trust.VerifyServer(chain, n.bundles)
	}

	guard := gateway.NewGuard(cfg)
	n.life.onStop("probe", func(context.Context) error { guard.Close(); return nil })

	return guard, nil
}
