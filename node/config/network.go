package config

import (
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/trust"
)

// Listen has the addresses that a node listens on, HOST:PORT each.
type Listen struct {
	API     string `yaml:"api"`
	Admin   string `yaml:"admin"`
	Cluster string `yaml:"cluster"`
	Gossip  string `yaml:"gossip"`
	// Hosts are names by which the admin listener may be asked.
	Hosts []string `yaml:"hosts"`
}

// maxHosts bounds listen.hosts.
const maxHosts = 64

func (l *Listen) validate() error {
	for _, each := range []struct{ key, address string }{
		{"listen.api", l.API},
		{"listen.admin", l.Admin},
		{"listen.cluster", l.Cluster},
		{"listen.gossip", l.Gossip},
	} {
		if err := validateHostPort(each.key, each.address); err != nil {
			return err
		}
	}

	if len(l.Hosts) > maxHosts {
		return fmt.Errorf("listen.hosts: at most %d names, got %d", maxHosts, len(l.Hosts))
	}

	for _, name := range l.Hosts {
		if name == "" || strings.ContainsAny(name, ":/* ") {
			return fmt.Errorf("listen.hosts: must be host names without a port, got %q", name)
		}
	}

	host, _, _ := net.SplitHostPort(l.Admin)
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("listen.admin: must be a loopback address, because it has no authentication, got %q", l.Admin)
	}

	return nil
}

// Gossip configures a node's part in the mesh's gossip.
type Gossip struct {
	Enabled   bool     `yaml:"enabled"`
	Advertise string   `yaml:"advertise"`
	Seeds     []string `yaml:"seeds"`
}

func (g *Gossip) validate() error {
	if g.Advertise == "" {
		return nil
	}

	return validateHostPort("gossip.advertise", g.Advertise)
}

// Identity names the source of the node's X.509-SVID and its domain's bundle: three
// files, or a SPIFFE Workload API.
type Identity struct {
	Cert        string `yaml:"cert"`
	Key         string `yaml:"key"`
	Bundle      string `yaml:"bundle"`
	WorkloadAPI string `yaml:"workload_api"`
}

func (i *Identity) validate() error {
	noFiles := i.Cert == "" && i.Key == "" && i.Bundle == ""

	switch {
	case i.WorkloadAPI != "" && !noFiles:
		return errors.New("identity: workload_api replaces cert, key and bundle: give one or the other")
	case i.WorkloadAPI != "":
		if err := trust.CheckWorkloadAPI(i.WorkloadAPI); err != nil {
			return fmt.Errorf("identity.workload_api: must be unix:///PATH or tcp://IP:PORT, got %q: %w",
				i.WorkloadAPI, err)
		}
	case i.Cert == "" || i.Key == "" || i.Bundle == "":
		return errors.New("identity: cert, key and bundle are needed (PEM files; the bundle may be a SPIFFE JWKS), " +
			"or workload_api")
	}

	return nil
}

// Bundles configures the publication of this domain's trust bundle to peers, and the CA
// by which theirs are fetched.
type Bundles struct {
	Serve    bool                     `yaml:"serve"`
	Endpoint directory.BundleEndpoint `yaml:"endpoint"`
	CA       string                   `yaml:"ca"`
}

func (b *Bundles) validate() error {
	if err := b.Endpoint.Check(); err != nil {
		return fmt.Errorf("bundles.endpoint: %w", err)
	}

	return nil
}
