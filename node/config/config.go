package config

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
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
	Names       Names                `yaml:"names"`
	Limits      Limits               `yaml:"limits"`
	Discovery   Discovery            `yaml:"discovery"`
	Gateway     Gateway              `yaml:"gateway"`
	MaxStale    time.Duration        `yaml:"max_stale"`
	Drain       time.Duration        `yaml:"drain"`
	Disk        Disk                 `yaml:"disk"`
	Audit       Audit                `yaml:"audit"`
	Log         Log                  `yaml:"log"`
}

// Default returns the configuration of an empty file. Identity, members and public_url
// have no default.
func Default() Config {
	return Config{
		Data: "data",
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
		Audit: Audit{Size: 64, Files: 32},
		Log:   Log{Level: "info", Format: "json"},
	}
}

// Load reads a configuration file strictly: the error for an unknown key or a wrong type
// names file and line, that for an invalid value names the key. Relative paths in it are
// relative to the file.
func Load(path string) (Config, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return Config{}, err
	}

	config := Default()
	if err := config.decode(text); err != nil {
		return Config{}, fmt.Errorf("%s: %w", path, err)
	}

	config.resolvePaths(filepath.Dir(path))

	if err := config.Validate(); err != nil {
		return Config{}, fmt.Errorf("%s: %w", path, err)
	}

	return config, nil
}

func (c *Config) decode(text []byte) error {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)

	if err := decoder.Decode(c); err != nil && !errors.Is(err, io.EOF) {
		return err
	}

	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return errors.New("the file has more than one document: remove the text from the first --- on")
	}

	return nil
}

// resolvePaths makes relative paths relative to a directory.
func (c *Config) resolvePaths(dir string) {
	paths := []*string{
		&c.Data, &c.Identity.Cert, &c.Identity.Key, &c.Identity.Bundle, &c.Bundles.CA,
		&c.Discovery.Embeddings.KeyFile, &c.Crawl.CA, &c.Probe.CA, &c.Gateway.Identity.Cert, &c.Gateway.Identity.Key,
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

// Validate reports the first key with a value that a node can't start with.
func (c *Config) Validate() error {
	checks := []func() error{
		c.validateDomain,
		c.Bundles.validate,
		c.Listen.validate,
		c.Gossip.validate,
		c.validateMembers,
		func() error { return c.DNSSD.Validate(c.TrustDomain) },
		c.Callers.validate,
		c.Crawl.validate,
		c.Probe.validate,
		c.Gateway.validate,
		c.Discovery.validate,
		c.validatePolicy,
		c.Lifetimes.validate,
		c.Names.validate,
		c.Disk.validate,
		c.Audit.validate,
		c.Log.validate,
		func() error { return c.Limits.validate(c.Lifetimes) },
		c.validateBodies,
	}

	for _, check := range checks {
		if err := check(); err != nil {
			return err
		}
	}

	return nil
}

func (c *Config) validateDomain() error {
	switch {
	case c.TrustDomain.IsZero():
		return errors.New("trust_domain: missing: give the domain's SPIFFE trust domain")
	case c.TrustDomain.Name() == directory.Mesh.String():
		return fmt.Errorf("trust_domain: %q is reserved for the audience of all domains", c.TrustDomain.Name())
	}

	if err := c.Identity.validate(); err != nil {
		return err
	}

	u, err := url.Parse(c.PublicURL)
	if err != nil || u.Host == "" || c.PublicURL != "https://"+u.Host {
		return fmt.Errorf("public_url: must be https://HOST[:PORT], got %q", c.PublicURL)
	}

	return nil
}

// validateBodies checks that the largest body fits into the share of an address.
func (c *Config) validateBodies() error {
	if least := 16 * c.Gateway.MaxRequest; c.Limits.RequestBytes < least {
		return fmt.Errorf("limits.request_bytes: must be at least %d, 16 times gateway.max_request, got %d", least,
			c.Limits.RequestBytes)
	}

	return nil
}

func (c *Config) validatePolicy() error {
	switch {
	case c.Policy != "shipped" && c.Policy != "development":
		return fmt.Errorf("policy: must be shipped or development, got %q", c.Policy)
	case c.MaxStale <= 0:
		return fmt.Errorf("max_stale: must be positive, got %s", c.MaxStale)
	case c.Drain < 0 || c.Drain > maxDrain:
		return fmt.Errorf("drain: must be from 0s to %s, got %s", maxDrain, c.Drain)
	}

	return nil
}

// ConsensusDir returns the directory of the node's part of the replicated state: its log, votes
// and snapshots.
func (c *Config) ConsensusDir() string { return filepath.Join(c.Data, "consensus") }

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
