package node

import (
	"context"
	"crypto/x509"
	"fmt"
	"strings"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/gateway"
	"github.com/roster-mesh/roster/trust"
)

// Gateway is how agents are invoked through a node, if they are.
type Gateway struct {
	Enabled       bool                `yaml:"enabled"`
	AllowNetworks []string            `yaml:"allow_networks"`
	AllowHosts    []string            `yaml:"allow_hosts"`
	Ports         []uint16            `yaml:"ports"`
	AnyBundle     bool                `yaml:"any_bundle"`
	Timeout       time.Duration       `yaml:"timeout"`
	StreamTimeout time.Duration       `yaml:"stream_timeout"`
	MaxRequest    int64               `yaml:"max_request"`
	MaxAnswer     int64               `yaml:"max_answer"`
	MaxStream     int64               `yaml:"max_stream"`
	Concurrent    int                 `yaml:"concurrent"`
	PerSecond     float64             `yaml:"per_second"`
	KeyWindow     time.Duration       `yaml:"key_window"`
	PassHeaders   map[string][]string `yaml:"pass_headers"`
}

func defaultGateway() Gateway {
	return Gateway{
		Timeout: gateway.DefaultTimeout, StreamTimeout: gateway.DefaultStreamTimeout, MaxRequest: 1 << 20,
		MaxAnswer: gateway.DefaultMaxBody, MaxStream: gateway.DefaultMaxStream,
		Concurrent: gateway.DefaultConcurrent, PerSecond: gateway.DefaultPerSecond, KeyWindow: gateway.DefaultKeyWindow,
	}
}

// Bounds of what a Gateway may be configured to.
const (
	maxGatewayBody = 64 << 20
	maxGatewayTime = 24 * time.Hour
)

func (c *Config) validateGateway() error {
	g := &c.Gateway
	if _, err := parseRanges("gateway.allow_networks", g.AllowNetworks); err != nil {
		return err
	}
	for _, d := range []struct {
		key string
		is  time.Duration
	}{{"timeout", g.Timeout}, {"stream_timeout", g.StreamTimeout}, {"key_window", g.KeyWindow}} {
		if d.is < time.Second || d.is > maxGatewayTime {
			return fmt.Errorf("gateway.%s: %s is not from 1s to %s", d.key, d.is, maxGatewayTime)
		}
	}
	for _, b := range []struct {
		key      string
		is, most int64
	}{{"max_request", g.MaxRequest, maxGatewayBody}, {"max_answer", g.MaxAnswer, maxGatewayBody}, {"max_stream", g.MaxStream, 1 << 40}} {
		if b.is < 1 || b.is > b.most {
			return fmt.Errorf("gateway.%s: %d is not from 1 to %d bytes", b.key, b.is, b.most)
		}
	}
	switch {
	case g.Concurrent < 1 || g.Concurrent > 100_000:
		return fmt.Errorf("gateway.concurrent: %d is not from 1 to 100000", g.Concurrent)
	case g.PerSecond <= 0 || g.PerSecond > maxRate:
		return fmt.Errorf("gateway.per_second: %v is no number of requests per second up to %d", g.PerSecond, maxRate)
	}
	for agent, names := range g.PassHeaders {
		for _, name := range names {
			if err := gateway.CheckPassHeader(name); err != nil {
				return fmt.Errorf("gateway.pass_headers: %s: %w", agent, err)
			}
		}
	}
	for _, h := range g.AllowHosts {
		if h == "" || h != strings.ToLower(h) || strings.ContainsAny(h, "/:*") {
			return fmt.Errorf("gateway.allow_hosts: %q is not the name of one host, in lower case, without a port", h)
		}
	}
	return nil
}

// wireGateway makes what invokes agents; nil where that is off.
func (n *Node) wireGateway() *gateway.Gateway {
	c := &n.cfg.Gateway
	if !c.Enabled {
		return nil
	}
	allow, _ := parseRanges("gateway.allow_networks", c.AllowNetworks) // Validate has tried it
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
