package node

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/gateway"
	"github.com/roster-mesh/roster/gateway/probe"
	"github.com/roster-mesh/roster/trust"
)

// Probing is whether a domain asks its agents, at their base, what they say of
// themselves, and how often.
type Probing struct {
	Enabled    bool          `yaml:"enabled"`
	Every      time.Duration `yaml:"every"`
	Concurrent int           `yaml:"concurrent"`
	Renew      bool          `yaml:"renew"`
	As         string        `yaml:"as"`
	Allow      []string      `yaml:"allow"`
	CA         string        `yaml:"ca"`
}

func defaultProbing() Probing { return Probing{Every: time.Hour, Concurrent: 8} }

// Bounds of what a Probing may be configured to.
const (
	minProbeEvery      = time.Minute
	maxProbeEvery      = 30 * 24 * time.Hour
	maxProbeConcurrent = 256
)

func (c *Config) validateProbe() error {
	p := &c.Probe
	switch {
	case p.Every < minProbeEvery || p.Every > maxProbeEvery:
		return fmt.Errorf("probe.every: %s is not from %s to %s", p.Every, minProbeEvery, maxProbeEvery)
	case p.Concurrent < 1 || p.Concurrent > maxProbeConcurrent:
		return fmt.Errorf("probe.concurrent: %d is not from 1 to %d", p.Concurrent, maxProbeConcurrent)
	case p.Renew && !p.Enabled:
		return errors.New("probe.renew: nothing is renewed where probe.enabled is false")
	}
	if _, err := directory.ParseIdentity(p.As); p.Renew && err != nil {
		return fmt.Errorf("probe.as: %q is no identity: say as whom what answers is renewed", p.As)
	}
	_, err := parseRanges("probe.allow", p.Allow)
	return err
}

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
