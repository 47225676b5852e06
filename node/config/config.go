package config

import (
	_ "embed"
	"net"
	"path/filepath"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"go.yaml.in/yaml/v3"

	"github.com/roster-mesh/roster/consensus"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/discovery"
	"github.com/roster-mesh/roster/node/dnssd"
)

// Sample is a complete configuration with every key, its meaning and its default.
//
//go:embed sample.yaml
var Sample string

// Config is the configuration of one node.
type Config struct {
	TrustDomain spiffeid.TrustDomain `yaml:"trust_domain"`
	PublicURL   string               `yaml:"public_url"`
	Data        string               `yaml:"data"`
	Listen      Listen               `yaml:"listen"`
	Identity    Identity             `yaml:"identity"`
	Bundles     Bundles              `yaml:"bundles"`
	Members     []Member             `yaml:"members"`
	Join        []string             `yaml:"join"`
	Expect      int                  `yaml:"bootstrap_expect"`
	Voter       bool                 `yaml:"voter"`
	RemoveDead  time.Duration        `yaml:"remove_dead"`
	Gossip      Gossip               `yaml:"gossip"`
	DNSSD       dnssd.Config         `yaml:"dns_sd"`
	Callers     Callers              `yaml:"callers"`
	Crawl       Crawl                `yaml:"crawl"`
	Probe       Probe                `yaml:"probe"`
	Policy      string               `yaml:"policy"`
	Operator    Operator             `yaml:"operator"`
	Lifetimes   Lifetimes            `yaml:"lifetimes"`
	History     History              `yaml:"history"`
	Names       Names                `yaml:"names"`
	Limits      Limits               `yaml:"limits"`
	Discovery   Discovery            `yaml:"discovery"`
	Gateway     Gateway              `yaml:"gateway"`
	MaxStale    time.Duration        `yaml:"max_stale"`
	Drain       time.Duration        `yaml:"drain" reload:"yes"`
	Disk        Disk                 `yaml:"disk"`
	Audit       Audit                `yaml:"audit"`
	Log         Log                  `yaml:"log"`
	Trace       Trace                `yaml:"trace"`
	Witness     Witness              `yaml:"witness"`
}

// Default returns the configuration of an empty file. The trust domain, public_url, data,
// identity and members have no default.
func Default() Config {
	return Config{
		Listen: Listen{
			API:     "0.0.0.0:8400",
			Admin:   "127.0.0.1:8401",
			Cluster: "0.0.0.0:8402",
			Gossip:  "0.0.0.0:8403",
		},
		Bundles:   Bundles{Serve: true},
		Voter:     true,
		Gossip:    Gossip{Enabled: true},
		Policy:    "shipped",
		Lifetimes: Lifetimes{Min: directory.MinLifetime, Max: directory.MaxLifetime},
		History:   History{Keep: 90 * 24 * time.Hour, MaxBytes: 4 << 30},
		Limits:    defaultLimits(),
		Discovery: Discovery{Weights: Weights(discovery.DefaultWeights)},
		MaxStale:  5 * time.Minute,
		Drain:     5 * time.Second,
		Gateway:   defaultGateway(),
		Probe:     defaultProbe(),
		Disk: Disk{
			Slow:          consensus.DefaultTiming.SlowDisk,
			HandOverAfter: consensus.DefaultTiming.SlowDiskFor,
		},
		Audit:   Audit{Size: 64, Files: 32},
		Log:     Log{Level: "info", Format: LogAuto},
		Trace:   Trace{Sample: 0.01, Asked: 10},
		Witness: Witness{Every: defaultWitnessEvery, Quorum: 1},
	}
}

// Load reads a configuration file strictly. Relative paths in it are relative to the file.
// An error is of type *Errors if the file can be read, and names file, line and key of each
// unknown key, wrong type and invalid value.
func Load(path string) (Config, error) {
	text, err := readAtMost(path, maxFile)
	if err != nil {
		return Config{}, err
	}

	config := Default()
	report := report{lines: map[string]int{}}
	config.decode(text, &report)

	// A text that is not YAML has no keys to judge.
	if err := report.result(path); err != nil && report.lines[""] == 0 {
		return Config{}, err
	}

	config.resolvePaths(filepath.Dir(path))
	config.validate(&report)

	if err := report.result(path); err != nil {
		return Config{}, err
	}

	return config, nil
}

// resolvePaths makes relative paths relative to a directory.
func (c *Config) resolvePaths(dir string) {
	paths := []*string{
		&c.Data, &c.Identity.Cert, &c.Identity.Key, &c.Identity.Bundle, &c.Bundles.CA,
		&c.Discovery.Embeddings.KeyFile, &c.Crawl.CA, &c.Probe.CA, &c.Gateway.Identity.Cert, &c.Gateway.Identity.Key,
		&c.Trace.CA,
	}

	for i := range c.Discovery.Taxonomies {
		paths = append(paths, &c.Discovery.Taxonomies[i])
	}

	for _, path := range append(paths, c.Callers.paths()...) {
		if *path != "" && !filepath.IsAbs(*path) {
			*path = filepath.Join(dir, *path)
		}
	}
}

// Validate reports the keys with values that a node can't start with, as *Errors.
func (c *Config) Validate() error {
	report := report{}
	c.validate(&report)

	return report.result("")
}

func (c *Config) validate(r *report) {
	c.validateDomain(r)
	c.Identity.validate(r)
	c.Bundles.validate(r)
	c.Listen.validate(r)
	c.Gossip.validate(r)
	c.validateMembers(r)
	c.DNSSD.Validate(c.TrustDomain, r.addf)
	c.Callers.validate(r)
	c.Crawl.validate(r)
	c.Probe.validate(r)
	c.Gateway.validate(r)
	c.Discovery.validate(r)
	c.Lifetimes.validate(r)
	c.History.validate(r)
	c.Names.validate(r)
	c.Disk.validate(r)
	c.Audit.validate(r)
	c.Log.validate(r)
	c.Trace.validate(r)
	c.Witness.validate(r)
	c.Limits.validate(r, c.Lifetimes)

	// The largest body fits into the share of an address.
	least := 16 * c.Gateway.MaxRequest
	r.require(c.Limits.RequestBytes >= least, "limits.request_bytes",
		"must be at least %d, 16 times gateway.max_request, got %d", least, c.Limits.RequestBytes)
}

// validateDomain checks the keys that are in no section.
func (c *Config) validateDomain(r *report) {
	r.require(!c.TrustDomain.IsZero(), "trust_domain", "missing: give the domain's SPIFFE trust domain")
	r.require(c.TrustDomain.Name() != directory.Mesh.String(), "trust_domain",
		"%q is reserved for the audience of all domains", c.TrustDomain.Name())
	r.require(c.PublicURL != "", "public_url", "missing: give the URL at which clients and peers reach the directory")
	r.require(isBaseURL(c.PublicURL), "public_url", "must be https://HOST[:PORT], got %q", c.PublicURL)
	r.require(c.Data != "", "data", "missing: give the directory for the node's data")
	r.require(c.Policy == "shipped" || c.Policy == "development", "policy", "must be shipped or development, got %q",
		c.Policy)
	r.require(c.MaxStale > 0, "max_stale", "must be positive, got %s", c.MaxStale)
	r.require(c.Drain >= 0 && c.Drain <= maxDrain, "drain", "must be from 0s to %s, got %s", maxDrain, c.Drain)
}

// ConsensusDir returns the directory of the node's part of the replicated state: its log, votes
// and snapshots.
func (c *Config) ConsensusDir() string { return filepath.Join(c.Data, "consensus") }

// DebugSocket returns the path of the Unix socket with the node's profiles.
func (c *Config) DebugSocket() string { return filepath.Join(c.Data, "debug.sock") }

// Text returns all keys of the configuration with their values, as YAML. Keys have no secrets as
// values, but URLs may have: the reader of the text decides.
func (c *Config) Text() ([]byte, error) { return yaml.Marshal(c) }

// OwnAddress is the base URL of the node's API on its own machine.
func (c *Config) OwnAddress() string { return "https://" + LocalAddress(c.Listen.API) }

// LocalAddress returns the address at which a listener is reached on its own machine: a
// listener on all interfaces is reached on loopback.
func LocalAddress(listen string) string {
	host, port, err := net.SplitHostPort(listen)
	if ip := net.ParseIP(host); err == nil && (host == "" || ip != nil && ip.IsUnspecified()) {
		return net.JoinHostPort("127.0.0.1", port)
	}

	return listen
}

// Operator configures the requirements of changes by an operator.
type Operator struct {
	// RequireProof is whether each change needs the operator's proof; nil is true unless the
	// policy is development.
	RequireProof *bool `yaml:"require_proof"`
}

// RequiresProof reports whether operators' changes need a proof.
func (c *Config) RequiresProof() bool {
	if c.Operator.RequireProof != nil {
		return *c.Operator.RequireProof
	}

	return c.Policy != "development"
}
