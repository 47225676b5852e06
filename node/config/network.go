package config

import (
	"fmt"
	"net"
	"strings"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/egress"
	"github.com/roster-mesh/roster/trust"
)

// Listen has the addresses that a node listens on, HOST:PORT each.
type Listen struct {
	API     string `yaml:"api"`
	Admin   string `yaml:"admin"`
	Cluster string `yaml:"cluster"`
	Gossip  string `yaml:"gossip"`
	// Health and Metrics serve probes and scrapes from other machines; empty is off.
	Health  string `yaml:"health"`
	Metrics string `yaml:"metrics"`
	// Hosts are names by which the listeners without authentication may be asked.
	Hosts []string `yaml:"hosts" reload:"yes"`
}

// maxHosts bounds listen.hosts.
const maxHosts = 64

func (l *Listen) validate(r *report) {
	var before []address

	for _, each := range []address{
		{"listen.api", l.API},
		{"listen.admin", l.Admin},
		{"listen.cluster", l.Cluster},
		{"listen.gossip", l.Gossip},
		{"listen.health", l.Health},
		{"listen.metrics", l.Metrics},
	} {
		if each.text == "" && (each.key == "listen.health" || each.key == "listen.metrics") {
			continue
		}

		_, port, err := net.SplitHostPort(each.text)
		r.require(err == nil, each.key, "must be HOST:PORT, got %q", each.text)
		r.require(isPort(port), each.key, "the port must be from 0 to 65535, got %q", each.text)

		for _, other := range before {
			r.require(!each.meets(other), each.key, "%s is taken by %s", each.text, other.key)
		}

		before = append(before, each)
	}

	r.require(len(l.Hosts) <= maxHosts, "listen.hosts", "at most %d names, got %d", maxHosts, len(l.Hosts))

	for i, name := range l.Hosts {
		r.require(name != "" && !strings.ContainsAny(name, ":/* "), fmt.Sprintf("listen.hosts[%d]", i),
			"must be a host name without a port, got %q", name)
	}

	r.require(egress.IsLoopback(l.Admin), "listen.admin",
		"must be a loopback address, because it has no authentication, "+
			"got %q; other machines ask listen.health and listen.metrics", l.Admin)
}

// An address is that of a listener.
type address struct{ key, text string }

// meets reports whether two listeners can't be open at once. With port 0, the system chooses.
func (a address) meets(other address) bool {
	host, port, _ := net.SplitHostPort(a.text)
	otherHost, otherPort, _ := net.SplitHostPort(other.text)

	return port == otherPort && port != "0" && (host == otherHost || isEverywhere(host) || isEverywhere(otherHost))
}

// isEverywhere reports whether a host is all addresses of the machine.
func isEverywhere(host string) bool {
	ip := net.ParseIP(host)
	return host == "" || ip != nil && ip.IsUnspecified()
}

// Gossip configures a node's part in the mesh's gossip.
type Gossip struct {
	Enabled   bool     `yaml:"enabled"`
	Advertise string   `yaml:"advertise"`
	Seeds     []string `yaml:"seeds" reload:"yes"`
}

func (g *Gossip) validate(r *report) {
	if g.Advertise != "" {
		r.hostPort("gossip.advertise", g.Advertise)
	}

	for i, seed := range g.Seeds {
		r.hostPort(fmt.Sprintf("gossip.seeds[%d]", i), seed)
	}
}

// Identity names the source of the node's X.509-SVID and its domain's bundle: three
// files, or a SPIFFE Workload API.
type Identity struct {
	Cert        string `yaml:"cert"`
	Key         string `yaml:"key"`
	Bundle      string `yaml:"bundle"`
	WorkloadAPI string `yaml:"workload_api"`
}

func (i *Identity) validate(r *report) {
	noFiles := i.Cert == "" && i.Key == "" && i.Bundle == ""

	switch {
	case i.WorkloadAPI != "" && !noFiles:
		r.addf("identity", "workload_api replaces cert, key and bundle: give one or the other")
	case i.WorkloadAPI != "":
		if err := trust.CheckWorkloadAPI(i.WorkloadAPI); err != nil {
			r.addf("identity.workload_api", "must be unix:///PATH or tcp://IP:PORT, got %q: %v", i.WorkloadAPI, err)
		}
	case i.Cert == "" || i.Key == "" || i.Bundle == "":
		r.addf("identity", "cert, key and bundle are needed (PEM files; the bundle may be a SPIFFE JWKS), or "+
			"workload_api")
	}
}

// Bundles configures the publication of this domain's trust bundle to peers, and the CA
// by which theirs are fetched.
type Bundles struct {
	Serve    bool                     `yaml:"serve"`
	Endpoint directory.BundleEndpoint `yaml:"endpoint"`
	CA       string                   `yaml:"ca"`
}

func (b *Bundles) validate(r *report) { r.check("bundles.endpoint", b.Endpoint.Check()) }
