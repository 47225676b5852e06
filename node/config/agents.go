package config

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/gateway"
	"github.com/roster-mesh/roster/gateway/crawl"
)

const (
	maxGatewayBody       = 64 << 20 // bytes
	maxGatewayStream     = 1 << 40  // bytes
	maxGatewayTime       = 24 * time.Hour
	maxGatewayConcurrent = 100_000

	maxOrigins = 256

	minProbeEvery      = time.Minute
	maxProbeEvery      = 30 * 24 * time.Hour
	maxProbeConcurrent = 256
)

// Gateway configures the invocation of agents through a node.
type Gateway struct {
	Enabled       bool                `yaml:"enabled"`
	Identity      GatewayIdentity     `yaml:"identity"`
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

	InsecureLoopback bool `yaml:"insecure_loopback"`
}

// GatewayIdentity names the files of the X.509-SVID with which a node calls agents. With
// identity.workload_api, that provides it.
type GatewayIdentity struct {
	Cert string `yaml:"cert"`
	Key  string `yaml:"key"`
}

func defaultGateway() Gateway {
	return Gateway{
		Timeout:       gateway.DefaultTimeout,
		StreamTimeout: gateway.DefaultStreamTimeout,
		MaxRequest:    1 << 20,
		MaxAnswer:     gateway.DefaultMaxBody,
		MaxStream:     gateway.DefaultMaxStream,
		Concurrent:    gateway.DefaultConcurrent,
		PerSecond:     gateway.DefaultPerSecond,
		KeyWindow:     gateway.DefaultKeyWindow,
	}
}

func (g *Gateway) validate() error {
	if _, err := ParseRanges("gateway.allow_networks", g.AllowNetworks); err != nil {
		return err
	}

	if (g.Identity.Cert == "") != (g.Identity.Key == "") {
		return errors.New("gateway.identity: it needs both cert and key, or neither")
	}

	for _, duration := range []struct {
		key   string
		value time.Duration
	}{
		{"timeout", g.Timeout},
		{"stream_timeout", g.StreamTimeout},
		{"key_window", g.KeyWindow},
	} {
		if duration.value < time.Second || duration.value > maxGatewayTime {
			return fmt.Errorf("gateway.%s: must be from 1s to %s, got %s", duration.key, maxGatewayTime, duration.value)
		}
	}

	for _, size := range []struct {
		key        string
		value, max int64
	}{
		{"max_request", g.MaxRequest, maxGatewayBody},
		{"max_answer", g.MaxAnswer, maxGatewayBody},
		{"max_stream", g.MaxStream, maxGatewayStream},
	} {
		if size.value < 1 || size.value > size.max {
			return fmt.Errorf("gateway.%s: must be from 1 to %d bytes, got %d", size.key, size.max, size.value)
		}
	}

	switch {
	case g.Concurrent < 1 || g.Concurrent > maxGatewayConcurrent:
		return fmt.Errorf("gateway.concurrent: must be from 1 to %d, got %d", maxGatewayConcurrent, g.Concurrent)
	case !(g.PerSecond > 0 && g.PerSecond <= maxRate):
		return fmt.Errorf("gateway.per_second: must be over 0 and at most %d requests per second, got %v",
			maxRate, g.PerSecond)
	}

	return g.validateNames()
}

// validateNames checks the names of hosts and headers.
func (g *Gateway) validateNames() error {
	for agent, names := range g.PassHeaders {
		for _, name := range names {
			if err := gateway.CheckPassHeader(name); err != nil {
				return fmt.Errorf("gateway.pass_headers: %s: %w", agent, err)
			}
		}
	}

	for i, host := range g.AllowHosts {
		if host == "" || host != strings.ToLower(host) || strings.ContainsAny(host, "/:*") {
			return fmt.Errorf("gateway.allow_hosts[%d]: must be the name of one host, in lower case, without a "+
				"port, got %q",
				i, host)
		}
	}

	return nil
}

// Crawl names the origins whose Web of Agents documents a domain follows, and the
// identity that registers the agents that they list. Without origins it follows none.
type Crawl struct {
	As      string   `yaml:"as"`
	Origins []string `yaml:"origins"`
	Allow   []string `yaml:"allow"`
	CA      string   `yaml:"ca"`
}

func (c *Crawl) validate() error {
	if len(c.Origins) == 0 {
		return nil
	}

	if _, err := directory.ParseIdentity(c.As); err != nil {
		return fmt.Errorf("crawl.as: must be the identity that owns the registrations, got %q", c.As)
	}

	if n := len(c.Origins); n > maxOrigins {
		return fmt.Errorf("crawl.origins: at most %d are allowed, got %d", maxOrigins, n)
	}

	// Agents are named after the host, so two documents of one host would conflict.
	hosts := map[string]bool{}

	for i, text := range c.Origins {
		origin, err := crawl.ParseOrigin(text)
		switch {
		case err != nil:
			return fmt.Errorf("crawl.origins[%d]: %w", i, err)
		case hosts[origin.Host]:
			return fmt.Errorf("crawl.origins[%d]: another document of %s is given", i, origin.Host)
		}

		hosts[origin.Host] = true
	}

	_, err := ParseRanges("crawl.allow", c.Allow)

	return err
}

// Probe configures whether a domain compares its registrations with the agents'
// descriptions of themselves, and how often.
type Probe struct {
	Enabled    bool          `yaml:"enabled"`
	Every      time.Duration `yaml:"every"`
	Concurrent int           `yaml:"concurrent"`
	Renew      bool          `yaml:"renew"`
	As         string        `yaml:"as"`
	Allow      []string      `yaml:"allow"`
	CA         string        `yaml:"ca"`
}

func defaultProbe() Probe { return Probe{Every: time.Hour, Concurrent: 8} }

func (p *Probe) validate() error {
	switch {
	case p.Every < minProbeEvery || p.Every > maxProbeEvery:
		return fmt.Errorf("probe.every: must be from %s to %s, got %s", minProbeEvery, maxProbeEvery, p.Every)
	case p.Concurrent < 1 || p.Concurrent > maxProbeConcurrent:
		return fmt.Errorf("probe.concurrent: must be from 1 to %d, got %d", maxProbeConcurrent, p.Concurrent)
	case p.Renew && !p.Enabled:
		return errors.New("probe.renew: it needs probe.enabled")
	}

	if _, err := directory.ParseIdentity(p.As); p.Renew && err != nil {
		return fmt.Errorf("probe.as: must be the identity that renews registrations, got %q", p.As)
	}

	_, err := ParseRanges("probe.allow", p.Allow)

	return err
}

// ParseRanges parses the address ranges of a key.
func ParseRanges(key string, texts []string) ([]netip.Prefix, error) {
	var ranges []netip.Prefix

	for i, text := range texts {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("%s[%d]: must be an address range such as 10.0.0.0/8, got %q", key, i, text)
		}

		ranges = append(ranges, prefix)
	}

	return ranges, nil
}
