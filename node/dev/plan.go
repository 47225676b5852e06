package dev

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"go.yaml.in/yaml/v3"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/durable"
	"github.com/roster-mesh/roster/node/config"
	"github.com/roster-mesh/roster/trust"
)

// A Mesh is the contents of mesh.json, which describes a development mesh for people
// and for scripts.
type Mesh struct {
	Ready bool `json:"ready"`
	// Peered is whether all domains were made peers of each other. From then on the peerings are
	// their operators'.
	Peered  bool     `json:"peered,omitzero"`
	Domains []Domain `json:"domains"`
}

// A Domain is one domain of a development mesh.
type Domain struct {
	TrustDomain string     `json:"trust_domain"`
	Bundle      string     `json:"bundle"`
	CAKey       string     `json:"ca_key"`
	Nodes       []Node     `json:"nodes"`
	Identities  []Identity `json:"identities"`
}

// A Node is one node of a development mesh.
type Node struct {
	ID     string `json:"id"`
	API    string `json:"api"`
	Admin  string `json:"admin"`
	Gossip string `json:"gossip"`
	Raft   string `json:"raft"`
	Config string `json:"config"`
	Data   string `json:"data"`
	PID    int    `json:"pid"`
}

// An Identity is an X.509-SVID in files.
type Identity struct {
	SPIFFEID string `json:"spiffe_id"`
	Cert     string `json:"cert"`
	Key      string `json:"key"`
}

var (
	domainNames   = []string{"alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa"}
	identityPaths = []string{
		"/agent/ada", "/agent/bob", "/agent/eve", "/tool/commissioner",
		"/client/reader", "/ops/operator", "/audit/auditor",
	}
)

// certificateLifetime is how long dev's certificates hold: longer than anybody tries it out.
const certificateLifetime = 30 * 24 * time.Hour

// meshFile is the file that describes a development mesh.
func meshFile(dir string) string { return filepath.Join(dir, "mesh.json") }

// ReadMesh reads the description of the mesh in dir.
func ReadMesh(dir string) (*Mesh, error) {
	data, err := os.ReadFile(meshFile(dir))
	if err != nil {
		return nil, err
	}

	var mesh Mesh
	if err := json.Unmarshal(data, &mesh); err != nil {
		return nil, fmt.Errorf("%s: %w", meshFile(dir), err)
	}

	return &mesh, nil
}

func (m *Mesh) write(dir string) error {
	data, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}

	return durable.WriteFile(meshFile(dir), append(data, '\n'), 0o644)
}

// lay plans a mesh and writes mesh.json.
func (o *Options) lay() (_ *Mesh, _ *portPlan, err error) {
	unlock, err := lockMesh(o.Dir)
	if err != nil {
		return nil, nil, err
	}

	defer func() { err = errors.Join(err, unlock()) }()

	mesh, ports, err := o.plan()
	if err != nil {
		return nil, nil, err
	}

	return mesh, ports, mesh.write(o.Dir)
}

// plan lays a mesh out in o.Dir: certificate authorities, identities, and a
// configuration for every node. A directory that holds one already is taken as
// it is, with its ports and data; of a new one the ports are held until the caller
// lets go of them.
func (o *Options) plan() (*Mesh, *portPlan, error) {
	if m, err := ReadMesh(o.Dir); err == nil {
		if pid, runs := m.running(); runs {
			return nil, nil, fmt.Errorf("the mesh in %s is running, process %d", o.Dir, pid)
		}

		if ignored := o.ignored(m); len(ignored) > 0 {
			fmt.Fprintf(o.Out, "The mesh in %s keeps its settings; ignored: %s.\n", o.Dir,
				strings.Join(ignored, ", "))
		}

		// A mesh that was killed may have left mesh.json as ready.
		m.Ready = false

		return m, &portPlan{}, nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}

	ports, err := choosePorts(o.Port, o.Domains*o.Nodes)
	if err != nil {
		return nil, nil, err
	}

	mesh := &Mesh{}
	for _, name := range domainNames[:o.Domains] {
		domain, err := o.planDomain(spiffeid.RequireTrustDomainFromString(name+".test"), ports)
		if err != nil {
			ports.close()
			return nil, nil, err
		}

		mesh.Domains = append(mesh.Domains, *domain)
	}

	return mesh, ports, nil
}

// ignored returns the flags that differ from a mesh that was made before.
func (o *Options) ignored(m *Mesh) (flags []string) {
	given := func(name string) bool { return slices.Contains(o.Given, name) }

	if given("domains") && o.Domains != len(m.Domains) {
		flags = append(flags, fmt.Sprintf("--domains %d (it has %d)", o.Domains, len(m.Domains)))
	}

	nodes := m.Domains[0].Nodes
	if given("nodes") && o.Nodes != len(nodes) {
		flags = append(flags, fmt.Sprintf("--nodes %d (each domain has %d)", o.Nodes, len(nodes)))
	}

	if port := nodes[0].API[strings.LastIndex(nodes[0].API, ":")+1:]; given("port") && strconv.Itoa(o.Port) != port {
		flags = append(flags, fmt.Sprintf("--port %d (the first port is %s)", o.Port, port))
	}

	if given("trace") {
		flags = append(flags, "--trace (set trace.endpoint in the configuration of each node)")
	}

	return append(flags, o.ignoredSwitches(nodes[0].Config)...)
}

// ignoredSwitches returns the switches that differ from the configuration of a node that was
// made before.
func (o *Options) ignoredSwitches(file string) (flags []string) {
	cfg, err := config.Load(file)
	if err != nil {
		return nil // its node says so when it starts
	}

	limits := cfg.Operator.RequireProof != nil && *cfg.Operator.RequireProof
	for _, s := range []struct {
		name       string
		given, has bool
		key        string // in the configuration of each node; "" if several are set
	}{
		{"gateway", o.Gateway, cfg.Gateway.Enabled, "gateway.enabled"},
		{"insecure-loopback", o.Insecure, cfg.Gateway.InsecureLoopback, "gateway.insecure_loopback"},
		{"limits", o.Limits, limits, ""},
	} {
		if !slices.Contains(o.Given, s.name) || s.given == s.has {
			continue
		}

		advice := "make a new mesh"
		if s.key != "" {
			advice = "set " + s.key + " in the configuration of each node"
		}

		flags = append(flags, fmt.Sprintf("--%s=%t (%s)", s.name, s.given, advice))
	}

	return flags
}

func (o *Options) planDomain(td spiffeid.TrustDomain, ports *portPlan) (*Domain, error) {
	dir := filepath.Join(o.Dir, td.Name())
	if err := os.MkdirAll(filepath.Join(dir, "identities"), 0o755); err != nil {
		return nil, err
	}

	ca, err := trust.NewCA(td, time.Now())
	if err != nil {
		return nil, err
	}

	domain := &Domain{TrustDomain: td.Name(), Bundle: filepath.Join(dir, "bundle.pem"),
		CAKey: filepath.Join(dir, "ca.key")}

	cert, key := ca.PEM()
	if err := errors.Join(durable.WriteFile(domain.Bundle, cert, 0o644),
		durable.WriteFile(domain.CAKey, key, 0o600)); err != nil {
		return nil, err
	}

	for _, path := range identityPaths {
		id, err := domain.issue(ca, dir, path)
		if err != nil {
			return nil, err
		}

		domain.Identities = append(domain.Identities, id)
	}

	for i := range o.Nodes {
		domain.Nodes = append(domain.Nodes, Node{
			ID:     td.IDString() + trust.NodePath + strconv.Itoa(i+1),
			API:    "https://" + ports.nextAPI(),
			Admin:  "http://" + ports.next(),
			Gossip: ports.next(),
			Raft:   ports.next(),
			Config: filepath.Join(dir, "node-"+strconv.Itoa(i+1), "node.yaml"),
			Data:   filepath.Join(dir, "node-"+strconv.Itoa(i+1), "data"),
		})
	}

	// Each configuration lists all nodes, so their addresses are chosen before.
	for i := range domain.Nodes {
		if err := domain.writeNode(ca, i, o); err != nil {
			return nil, err
		}
	}

	return domain, nil
}

// issue writes the certificate and key of one more identity.
func (d *Domain) issue(ca *trust.CA, dir, path string) (Identity, error) {
	svid, err := ca.Issue(path, certificateLifetime, time.Now())
	if err != nil {
		return Identity{}, err
	}

	file := filepath.Join(dir, "identities", strings.ReplaceAll(strings.TrimPrefix(path, "/"), "/", "-"))
	id := Identity{SPIFFEID: svid.ID.String(), Cert: file + ".pem", Key: file + ".key"}

	return id, trust.WriteSVID(svid, id.Cert, id.Key)
}

// writeNode writes the identity and the configuration of node i.
func (d *Domain) writeNode(ca *trust.CA, i int, options *Options) error {
	n := d.Nodes[i]

	dir := filepath.Dir(n.Config)
	if err := os.MkdirAll(n.Data, 0o700); err != nil {
		return err
	}

	id := spiffeid.RequireFromString(n.ID)

	svid, err := ca.Issue(id.Path(), certificateLifetime, time.Now())
	if err != nil {
		return err
	}

	cfg := config.Default()
	cfg.TrustDomain = id.TrustDomain()
	cfg.PublicURL = n.API
	cfg.Data = n.Data
	cfg.Listen = config.Listen{API: strings.TrimPrefix(n.API, "https://"),
		Admin: strings.TrimPrefix(n.Admin, "http://"), Cluster: n.Raft, Gossip: n.Gossip}
	cfg.Identity = config.Identity{Cert: filepath.Join(dir, "node.pem"), Key: filepath.Join(dir, "node.key"),
		Bundle: d.Bundle}
	cfg.Policy = "development"
	cfg.Drain = 0

	if options.Gateway {
		cfg.Gateway = openGateway()
		cfg.Gateway.InsecureLoopback = options.Insecure
		cfg.Gateway.Identity = config.GatewayIdentity{Cert: filepath.Join(dir, "gateway.pem"),
			Key: filepath.Join(dir, "gateway.key")}

		own, err := ca.Issue(directory.GatewayPath+strconv.Itoa(i+1), certificateLifetime, time.Now())
		if err != nil {
			return err
		}

		if err := trust.WriteSVID(own, cfg.Gateway.Identity.Cert, cfg.Gateway.Identity.Key); err != nil {
			return err
		}
	}

	if options.Limits {
		required := true
		cfg.Operator.RequireProof = &required
	} else {
		// Rates and quotas may be absent, but Validate requires the sizes of pools.
		cfg.Limits = cfg.Limits.Pools()
	}

	if options.Trace != "" {
		cfg.Trace.Endpoint, cfg.Trace.Sample, cfg.Trace.Asked = options.Trace, 1, 1000
	}

	cfg.Log.Format = "text"
	for _, m := range d.Nodes {
		cfg.Members = append(cfg.Members, config.Member{ID: spiffeid.RequireFromString(m.ID), Cluster: m.Raft,
			API: m.API})
	}

	data, err := yaml.Marshal(cfg)
	if err != nil {
		return err
	}

	return errors.Join(trust.WriteSVID(svid, cfg.Identity.Cert, cfg.Identity.Key),
		durable.WriteFile(n.Config, data, 0o644))
}

// openGateway is the gateway of a development mesh: agents on loopback, with the mesh's
// own certificates (docs/guides/domain.md, "The development setting").
func openGateway() config.Gateway {
	gateway := config.Default().Gateway
	gateway.Enabled = true
	gateway.AnyBundle = true
	gateway.AllowNetworks = []string{"127.0.0.0/8", "::1/128"}

	return gateway
}

// lockMesh waits until no other process changes the mesh in a directory. The lock is on the directory itself, because
// mesh.json is replaced at each change.
func lockMesh(dir string) (unlock func() error, err error) {
	file, err := os.Open(dir)
	if err != nil {
		return nil, err
	}

	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(err, file.Close())
	}

	return file.Close, nil // which ends the lock
}

// Mint makes another identity in a development mesh, adds it to mesh.json and
// returns it.
func Mint(dir, domain, path string) (_ *Identity, err error) {
	// Without the lock, two processes at once could lose one of their identities from mesh.json.
	unlock, err := lockMesh(dir)
	if err != nil {
		return nil, fmt.Errorf("%s has no development mesh: start one with roster dev --dir: %w", dir, err)
	}

	defer func() { err = errors.Join(err, unlock()) }()

	mesh, err := ReadMesh(dir)
	if err != nil {
		return nil, fmt.Errorf("%s has no development mesh: start one with roster dev --dir: %w", dir, err)
	}

	i := slices.IndexFunc(mesh.Domains, func(d Domain) bool { return d.TrustDomain == domain })
	if i < 0 {
		return nil, fmt.Errorf("the mesh in %s has no domain %q", dir, domain)
	}

	d := &mesh.Domains[i]
	cert, err1 := os.ReadFile(d.Bundle)

	key, err2 := os.ReadFile(d.CAKey)
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}

	ca, err := trust.LoadCA(cert, key)
	if err != nil {
		return nil, err
	}

	id, err := d.issue(ca, filepath.Dir(d.Bundle), path)
	if err != nil {
		return nil, err
	}

	d.Identities = slices.DeleteFunc(d.Identities, func(o Identity) bool { return o.SPIFFEID == id.SPIFFEID })
	d.Identities = append(d.Identities, id)

	return &id, mesh.write(dir)
}
