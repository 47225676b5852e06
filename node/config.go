package node

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"go.yaml.in/yaml/v3"

	"github.com/roster-mesh/roster/consensus"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/discovery"
	"github.com/roster-mesh/roster/node/dnssd"
	"github.com/roster-mesh/roster/trust"
)

// SampleConfig is a complete configuration with every key, its meaning and its
// default.
//
//go:embed config.sample.yaml
var SampleConfig string

// Config is what one node needs to know: one YAML file, which config.sample.yaml
// documents.
type Config struct {
	TrustDomain spiffeid.TrustDomain `yaml:"trust_domain"`
	PublicURL   string               `yaml:"public_url"`
	Data        string               `yaml:"data"`
	Listen      Listen               `yaml:"listen"`
	Identity    Identity             `yaml:"identity"`
	Bundles     BundleExchange       `yaml:"bundles"`
	Members     []Member             `yaml:"members"`
	Join        []string             `yaml:"join"`
	Expect      int                  `yaml:"bootstrap_expect"`
	Voter       bool                 `yaml:"voter"`
	RemoveDead  time.Duration        `yaml:"remove_dead"`
	Gossip      Gossip               `yaml:"gossip"`
	DNSSD       dnssd.Config         `yaml:"dns_sd"`
	Callers     Callers              `yaml:"callers"`
	Crawl       Crawling             `yaml:"crawl"`
	Probe       Probing              `yaml:"probe"`
	Policy      string               `yaml:"policy"`
	Lifetimes   Lifetimes            `yaml:"lifetimes"`
	Names       Names                `yaml:"names"`
	Limits      Limits               `yaml:"limits"`
	Discovery   Discovery            `yaml:"discovery"`
	Gateway     Gateway              `yaml:"gateway"`
	MaxStale    time.Duration        `yaml:"max_stale"`
	Disk        Disk                 `yaml:"disk"`
	Audit       Audit                `yaml:"audit"`
	Log         Log                  `yaml:"log"`
}

// Listen has the addresses that a node listens on, host:port each.
type Listen struct {
	API     string `yaml:"api"`
	Admin   string `yaml:"admin"`
	Cluster string `yaml:"cluster"`
	Gossip  string `yaml:"gossip"`
}

// Member is one node of the domain.
type Member struct {
	ID      spiffeid.ID `yaml:"id"`
	Cluster string      `yaml:"cluster"`
	API     string      `yaml:"api"`
}

// Gossip is how a node takes part in the mesh's gossip.
type Gossip struct {
	Enabled   bool     `yaml:"enabled"`
	Advertise string   `yaml:"advertise"`
	Seeds     []string `yaml:"seeds"`
}

// Lifetimes bounds what registrations are granted: in seconds, and in lifetimes of the
// credential by which they were asked for; 0 of these is no bound. Shorter ones than Min
// are refused.
type Lifetimes struct {
	Min         uint32 `yaml:"min"`
	Max         uint32 `yaml:"max"`
	Credentials uint32 `yaml:"credentials"`
}

// Names is what holds for agent names. All nodes of a domain have the same.
type Names struct {
	Hold time.Duration `yaml:"hold"`
}

// Audit bounds the audit trail: MiB of one file, how many are kept, and for how long;
// a Keep of 0 is as long as there is room.
type Audit struct {
	Size  int64         `yaml:"size"`
	Files int           `yaml:"files"`
	Keep  time.Duration `yaml:"keep"`
}

// Disk is when a leader hands over because its disk is slow: each write to the log
// has taken longer than Slow for all of HandOverAfter. A Slow of 0 is never.
type Disk struct {
	Slow          time.Duration `yaml:"slow"`
	HandOverAfter time.Duration `yaml:"hand_over_after"`
}

// minHandOver is the shortest Disk.HandOverAfter: a new leader takes a second or two.
const minHandOver = 2 * time.Second

// Log is how a node logs.
type Log struct {
	Level  string `yaml:"level"`
	Format string `yaml:"format"`
}

// Logger returns a logger to w as l says.
func (l Log) Logger(w io.Writer) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(l.Level)) // Validate has tried it
	o := &slog.HandlerOptions{Level: level}
	if l.Format == "text" {
		return slog.New(slog.NewTextHandler(w, o))
	}
	return slog.New(slog.NewJSONHandler(w, o))
}

// DefaultConfig returns the configuration that an empty file has. Identity,
// members and public_url have no default.
func DefaultConfig() Config {
	return Config{
		Data:      "data",
		Listen:    Listen{API: "0.0.0.0:8400", Admin: "127.0.0.1:8401", Cluster: "0.0.0.0:8402", Gossip: "0.0.0.0:8403"},
		Bundles:   BundleExchange{Serve: true},
		Voter:     true,
		Gossip:    Gossip{Enabled: true},
		Policy:    "shipped",
		Lifetimes: Lifetimes{Min: directory.MinLifetime, Max: directory.MaxLifetime},
		Limits:    defaultLimits(),
		Discovery: Discovery{Weights: Weights(discovery.DefaultWeights)},
		MaxStale:  5 * time.Minute,
		Gateway:   defaultGateway(),
		Probe:     defaultProbing(),
		Disk:      Disk{Slow: consensus.DefaultTiming.SlowDisk, HandOverAfter: consensus.DefaultTiming.SlowDiskFor},
		Audit:     Audit{Size: 64, Files: 16},
		Log:       Log{Level: "info", Format: "json"},
	}
}

// LoadConfig reads a configuration file, strictly: an unknown key or a wrong
// type is an error that names file and line, a bad value one that names the key.
// Relative paths in it are relative to the file.
func LoadConfig(path string) (Config, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return Config{}, err
	}
	c := DefaultConfig()
	d := yaml.NewDecoder(bytes.NewReader(b))
	d.KnownFields(true)
	if err := d.Decode(&c); err != nil && !errors.Is(err, io.EOF) {
		return Config{}, fmt.Errorf("%s: %w", path, err)
	}
	if err := d.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return Config{}, fmt.Errorf("%s: there is more than one document in it, and what stands behind the first --- would not be read", path)
	}
	paths := []*string{&c.Data, &c.Identity.Cert, &c.Identity.Key, &c.Identity.Bundle, &c.Bundles.CA, &c.Discovery.Embeddings.KeyFile, &c.Crawl.CA, &c.Probe.CA}
	for i := range c.Discovery.Taxonomies {
		paths = append(paths, &c.Discovery.Taxonomies[i])
	}
	for _, p := range paths {
		if *p != "" && !filepath.IsAbs(*p) {
			*p = filepath.Join(filepath.Dir(path), *p)
		}
	}
	c.Callers.relativeTo(filepath.Dir(path))
	if err := c.Validate(); err != nil {
		return Config{}, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

// Validate reports the first key whose value a node can't start with.
func (c *Config) Validate() error {
	for _, check := range []func() error{c.validateDomain, c.validateBundles, c.validateListen, c.validateMembers, c.validateDNSSD, c.validateCallers, c.validateCrawl, c.validateProbe, c.validateGateway, c.validateDiscovery, c.validateRest, c.validateLimits} {
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
		return errors.New("trust_domain: no domain may be called mesh, which names the audience of all")
	}
	if err := c.Identity.validate(); err != nil {
		return err
	}
	u, err := url.Parse(c.PublicURL)
	if err != nil || u.Host == "" || c.PublicURL != "https://"+u.Host {
		return fmt.Errorf("public_url: %q is not https://HOST[:PORT] and nothing else", c.PublicURL)
	}
	return nil
}

func (c *Config) validateDNSSD() error { return c.DNSSD.Validate(c.TrustDomain) }

func (c *Config) validateListen() error {
	for _, l := range []struct{ key, addr string }{
		{"api", c.Listen.API}, {"admin", c.Listen.Admin}, {"cluster", c.Listen.Cluster}, {"gossip", c.Listen.Gossip},
	} {
		if _, _, err := net.SplitHostPort(l.addr); err != nil {
			return fmt.Errorf("listen.%s: %q is not host:port", l.key, l.addr)
		}
	}
	if a := c.Gossip.Advertise; a != "" {
		if _, _, err := net.SplitHostPort(a); err != nil {
			return fmt.Errorf("gossip.advertise: %q is not host:port", a)
		}
	}
	host, _, _ := net.SplitHostPort(c.Listen.Admin)
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("listen.admin: %q is not a loopback address; this listener has no authentication", c.Listen.Admin)
	}
	return nil
}

func (c *Config) validateMembers() error {
	if n := len(c.Members); n != 1 && n != 3 && n != 5 {
		return fmt.Errorf("members: %d are given; list the nodes with which the domain begins, this one too: one, three or five; with join this one alone", n)
	}
	if err := c.validateJoin(); err != nil {
		return err
	}
	for i, m := range c.Members {
		if !trust.IsNode(m.ID, c.TrustDomain) {
			return fmt.Errorf("members[%d].id: %q is not under spiffe://%s%s", i, m.ID, c.TrustDomain.Name(), trust.NodePath)
		}
		if _, _, err := net.SplitHostPort(m.Cluster); err != nil {
			return fmt.Errorf("members[%d].cluster: %q is not host:port", i, m.Cluster)
		}
		if slices.ContainsFunc(c.Members[:i], func(o Member) bool { return o.ID == m.ID || o.Cluster == m.Cluster }) {
			return fmt.Errorf("members[%d]: its id or address occurs twice", i)
		}
	}
	return nil
}

// validateJoin is for the keys of a node that is not one of its domain's first, or
// does not know them.
func (c *Config) validateJoin() error {
	for i, address := range c.Join {
		if _, _, err := net.SplitHostPort(address); err != nil {
			return fmt.Errorf("join[%d]: %q is not host:port of a node's cluster listener", i, address)
		}
	}
	joins := len(c.Join) > 0
	switch {
	case len(c.Join) > maxJoin:
		return fmt.Errorf("join: %d addresses are given; %d are enough", len(c.Join), maxJoin)
	case joins && len(c.Members) != 1:
		return fmt.Errorf("members: %d are given; with join list this node alone", len(c.Members))
	case c.Expect != 0 && !joins:
		return errors.New("bootstrap_expect: it needs join: the addresses at which the other nodes are found")
	case c.Expect != 0 && c.Expect != 1 && c.Expect != 3 && c.Expect != 5:
		return fmt.Errorf("bootstrap_expect: %d is none of 0, 1, 3, 5", c.Expect)
	case !c.Voter && !joins:
		return errors.New("voter: a domain does not begin with a node that has no vote: give the addresses to join at")
	case !c.Voter && c.Expect != 0:
		return errors.New("voter: a node without a vote does not begin a domain: leave bootstrap_expect out")
	case c.RemoveDead != 0 && c.RemoveDead < minDead:
		return fmt.Errorf("remove_dead: %s is under %s; a node may take that long to come back", c.RemoveDead, minDead)
	}
	return nil
}

// Bounds of what an operator may ask for.
const (
	maxJoin      = 64
	minDead      = 10 * time.Minute
	maxHold      = 365 * 24 * time.Hour
	maxAudit     = 10_000
	minAuditKeep = time.Hour
	maxAuditKeep = 100 * maxHold
)

func (c *Config) validateRest() error {
	switch {
	case c.Policy != "shipped" && c.Policy != "development":
		return fmt.Errorf("policy: %q is neither shipped nor development", c.Policy)
	case c.Lifetimes.Max < directory.MinLifetime:
		return fmt.Errorf("lifetimes.max: %d s is under the %d s that the Agent Directory demands", c.Lifetimes.Max, directory.MinLifetime)
	case c.Names.Hold < 0 || c.Names.Hold > maxHold || c.Names.Hold%time.Second != 0:
		return fmt.Errorf("names.hold: %s is not whole seconds from 0s to %s", c.Names.Hold, maxHold)
	case c.Disk.Slow < 0:
		return fmt.Errorf("disk.slow: %s is negative", c.Disk.Slow)
	case c.Disk.HandOverAfter < minHandOver:
		return fmt.Errorf("disk.hand_over_after: %s is under %s; a moment's slowness is no reason", c.Disk.HandOverAfter, minHandOver)
	case c.MaxStale <= 0:
		return fmt.Errorf("max_stale: %s is not a positive duration", c.MaxStale)
	case c.Audit.Size < 1 || c.Audit.Size > maxAudit:
		return fmt.Errorf("audit.size: %d is no number of MiB from 1 to %d", c.Audit.Size, maxAudit)
	case c.Audit.Keep != 0 && (c.Audit.Keep < minAuditKeep || c.Audit.Keep > maxAuditKeep):
		return fmt.Errorf("audit.keep: %s is neither 0s nor from %s to %s", c.Audit.Keep, minAuditKeep, maxAuditKeep)
	case c.Audit.Keep != 0 && c.Audit.Files == 1:
		return fmt.Errorf("audit.keep: with audit.files of 1 there is no older file that could be removed; keep 2 at least")
	case c.Audit.Files < 1 || c.Audit.Files > maxAudit:
		return fmt.Errorf("audit.files: %d is none from 1 to %d", c.Audit.Files, maxAudit)
	case new(slog.Level).UnmarshalText([]byte(c.Log.Level)) != nil:
		return fmt.Errorf("log.level: %q is none of debug, info, warn, error", c.Log.Level)
	case c.Log.Format != "json" && c.Log.Format != "text":
		return fmt.Errorf("log.format: %q is neither json nor text", c.Log.Format)
	}
	return nil
}

// LocalAddress returns the address at which a listener is reached on its own machine: a
// listener on all interfaces is reached on loopback.
func LocalAddress(listen string) string {
	host, port, err := net.SplitHostPort(listen)
	if ip := net.ParseIP(host); err == nil && (host == "" || ip != nil && ip.IsUnspecified()) {
		return net.JoinHostPort("127.0.0.1", port)
	}

	return listen
}

// OwnAddress is the base URL at which a node is asked on its own machine.
func (c *Config) OwnAddress() string { return "https://" + LocalAddress(c.Listen.API) }

// Member returns the member with an ID; nil if no member has it.
func (c *Config) Member(id spiffeid.ID) *Member {
	for i := range c.Members {
		if c.Members[i].ID == id {
			return &c.Members[i]
		}
	}

	return nil
}
