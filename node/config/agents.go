package config

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
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
	AllowNetworks []string            `yaml:"allow_networks" reload:"yes"`
	AllowHosts    []string            `yaml:"allow_hosts" reload:"yes"`
	Ports         []uint16            `yaml:"ports" reload:"yes"`
	AnyBundle     bool                `yaml:"any_bundle" reload:"yes"`
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

func (g *Gateway) validate(r *report) {
	r.ranges("gateway.allow_networks", g.AllowNetworks)
	r.require((g.Identity.Cert == "") == (g.Identity.Key == ""), "gateway.identity",
		"it needs both cert and key, or neither")

	for _, duration := range []struct {
		key   string
		value time.Duration
	}{
		{"timeout", g.Timeout},
		{"stream_timeout", g.StreamTimeout},
		{"key_window", g.KeyWindow},
	} {
		r.require(duration.value >= time.Second && duration.value <= maxGatewayTime, "gateway."+duration.key,
			"must be from 1s to %s, got %s", maxGatewayTime, duration.value)
	}

	for _, size := range []struct {
		key        string
		value, max int64
	}{
		{"max_request", g.MaxRequest, maxGatewayBody},
		{"max_answer", g.MaxAnswer, maxGatewayBody},
		{"max_stream", g.MaxStream, maxGatewayStream},
	} {
		r.require(size.value >= 1 && size.value <= size.max, "gateway."+size.key, "must be from 1 to %d bytes, got %d",
			size.max, size.value)
	}

	r.require(g.Concurrent >= 1 && g.Concurrent <= maxGatewayConcurrent, "gateway.concurrent",
		"must be from 1 to %d, got %d", maxGatewayConcurrent, g.Concurrent)
	r.require(g.PerSecond > 0 && g.PerSecond <= maxRate, "gateway.per_second",
		"must be over 0 and at most %d requests per second, got %v", maxRate, g.PerSecond)
	g.validateNames(r)
}

// validateNames checks the names of hosts and headers.
func (g *Gateway) validateNames(r *report) {
	for _, agent := range slices.Sorted(maps.Keys(g.PassHeaders)) {
		for _, name := range g.PassHeaders[agent] {
			if err := gateway.CheckPassHeader(name); err != nil {
				r.addf("gateway.pass_headers", "%s: %v", agent, err)
			}
		}
	}

	for i, host := range g.AllowHosts {
		r.require(host != "" && host == strings.ToLower(host) && !strings.ContainsAny(host, "/:*"),
			fmt.Sprintf("gateway.allow_hosts[%d]", i),
			"must be the name of one host, in lower case, without a port, got %q", host)
	}
}

// Crawl names the origins whose Web of Agents documents a domain follows, and the
// identity that registers the agents that they list. Without origins it follows none.
type Crawl struct {
	As      string   `yaml:"as"`
	Origins []string `yaml:"origins"`
	Allow   []string `yaml:"allow" reload:"yes"`
	CA      string   `yaml:"ca"`
}

func (c *Crawl) validate(r *report) {
	if len(c.Origins) == 0 {
		return
	}

	_, err := directory.ParseIdentity(c.As)
	r.require(err == nil, "crawl.as", "must be the identity that owns the registrations, got %q", c.As)
	r.require(len(c.Origins) <= maxOrigins, "crawl.origins", "at most %d are allowed, got %d", maxOrigins,
		len(c.Origins))

	// Agents are named after the host, so two documents of one host would conflict.
	hosts := map[string]bool{}

	for i, text := range c.Origins {
		key := fmt.Sprintf("crawl.origins[%d]", i)

		origin, err := crawl.ParseOrigin(text)
		r.check(key, err)
		r.require(err != nil || !hosts[origin.Host], key, "another document of %s is given", origin.Host)

		hosts[origin.Host] = true
	}

	r.ranges("crawl.allow", c.Allow)
}

// Probe configures whether a domain compares its registrations with the agents'
// descriptions of themselves, and how often.
type Probe struct {
	Enabled    bool          `yaml:"enabled"`
	Every      time.Duration `yaml:"every"`
	Concurrent int           `yaml:"concurrent"`
	Renew      bool          `yaml:"renew"`
	As         string        `yaml:"as"`
	Allow      []string      `yaml:"allow" reload:"yes"`
	CA         string        `yaml:"ca"`
}

func defaultProbe() Probe { return Probe{Every: time.Hour, Concurrent: 8} }

func (p *Probe) validate(r *report) {
	r.require(p.Every >= minProbeEvery && p.Every <= maxProbeEvery, "probe.every", "must be from %s to %s, got %s",
		minProbeEvery, maxProbeEvery, p.Every)
	r.require(p.Concurrent >= 1 && p.Concurrent <= maxProbeConcurrent, "probe.concurrent",
		"must be from 1 to %d, got %d", maxProbeConcurrent, p.Concurrent)
	r.require(!p.Renew || p.Enabled, "probe.renew", "it needs probe.enabled")

	_, err := directory.ParseIdentity(p.As)
	r.require(!p.Renew || err == nil, "probe.as", "must be the identity that renews registrations, got %q", p.As)
	r.ranges("probe.allow", p.Allow)
}

// ranges checks the address ranges of a key.
func (r *report) ranges(key string, texts []string) {
	for i, text := range texts {
		_, err := netip.ParsePrefix(text)
		r.require(err == nil, fmt.Sprintf("%s[%d]", key, i),
			"must be an address range such as 10.0.0.0/8, got %q", text)
	}
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
