package node

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
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"go.yaml.in/yaml/v3"

	"github.com/roster-mesh/roster/trust"
)

// DevMesh is mesh.json: what roster dev runs, for people and for scripts.
type DevMesh struct {
	Ready   bool        `json:"ready"`
	Domains []DevDomain `json:"domains"`
}

// DevDomain is one domain of a development mesh.
type DevDomain struct {
	TrustDomain string        `json:"trust_domain"`
	Bundle      string        `json:"bundle"`
	CAKey       string        `json:"ca_key"`
	Nodes       []DevNode     `json:"nodes"`
	Identities  []DevIdentity `json:"identities"`
}

// DevNode is one node of a development mesh.
type DevNode struct {
	ID     string `json:"id"`
	API    string `json:"api"`
	Admin  string `json:"admin"`
	Gossip string `json:"gossip"`
	Raft   string `json:"raft"`
	Config string `json:"config"`
	Data   string `json:"data"`
	PID    int    `json:"pid"`
}

// DevIdentity is an X.509-SVID in files.
type DevIdentity struct {
	SPIFFEID string `json:"spiffe_id"`
	Cert     string `json:"cert"`
	Key      string `json:"key"`
}

var (
	devDomainNames = []string{"alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa"}
	devIdentities  = []string{"/agent/ada", "/agent/bob", "/agent/eve", "/tool/commissioner", "/client/reader", "/ops/operator", "/audit/auditor"}
)

// devTTL is how long dev's certificates hold: longer than anybody tries it out.
const devTTL = 30 * 24 * time.Hour

// meshFile is where a development mesh is described.
func meshFile(dir string) string { return filepath.Join(dir, "mesh.json") }

// ReadDevMesh reads the description of the mesh in dir.
func ReadDevMesh(dir string) (*DevMesh, error) {
	b, err := os.ReadFile(meshFile(dir))
	if err != nil {
		return nil, err
	}
	var m DevMesh
	if err := json.Unmarshal(b, &m); err != nil {
		return nil, fmt.Errorf("%s: %w", meshFile(dir), err)
	}
	return &m, nil
}

func (m *DevMesh) write(dir string) error {
	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	return writeFile(meshFile(dir), append(b, '\n'), 0o644)
}

// writeFile replaces a file whole: a reader sees the old or the new one.
func writeFile(path string, b []byte, mode fs.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	err = errors.Join(err, f.Chmod(mode), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		err = errors.Join(err, os.Remove(f.Name()))
	}
	return err
}

// plan lays a mesh out in o.Dir: certificate authorities, identities, and a
// configuration for every node. A directory that holds one already is taken as
// it is, with its ports and data; of a new one the ports are held until the caller
// lets go of them.
func (o *DevOptions) plan() (*DevMesh, *portPlan, error) {
	if m, err := ReadDevMesh(o.Dir); err == nil {
		m.Ready = false
		return m, &portPlan{}, nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	ports, err := choosePorts(o.Port, o.Domains*o.Nodes)
	if err != nil {
		return nil, nil, err
	}
	m := &DevMesh{}
	for _, name := range devDomainNames[:o.Domains] {
		d, err := o.planDomain(spiffeid.RequireTrustDomainFromString(name+".test"), ports)
		if err != nil {
			ports.close()
			return nil, nil, err
		}
		m.Domains = append(m.Domains, *d)
	}
	return m, ports, nil
}

func (o *DevOptions) planDomain(td spiffeid.TrustDomain, ports *portPlan) (*DevDomain, error) {
	dir := filepath.Join(o.Dir, td.Name())
	if err := os.MkdirAll(filepath.Join(dir, "identities"), 0o755); err != nil {
		return nil, err
	}
	ca, err := trust.NewCA(td, time.Now())
	if err != nil {
		return nil, err
	}
	d := &DevDomain{TrustDomain: td.Name(), Bundle: filepath.Join(dir, "bundle.pem"), CAKey: filepath.Join(dir, "ca.key")}
	cert, key := ca.PEM()
	if err := errors.Join(writeFile(d.Bundle, cert, 0o644), writeFile(d.CAKey, key, 0o600)); err != nil {
		return nil, err
	}
	for _, path := range devIdentities {
		id, err := d.issue(ca, dir, path)
		if err != nil {
			return nil, err
		}
		d.Identities = append(d.Identities, id)
	}
	for i := range o.Nodes {
		d.Nodes = append(d.Nodes, DevNode{
			ID:     td.IDString() + trust.NodePath + strconv.Itoa(i+1),
			API:    "https://" + ports.nextAPI(),
			Admin:  "http://" + ports.next(),
			Gossip: ports.next(),
			Raft:   ports.next(),
			Config: filepath.Join(dir, "node-"+strconv.Itoa(i+1), "node.yaml"),
			Data:   filepath.Join(dir, "node-"+strconv.Itoa(i+1), "data"),
		})
	}
	for i := range d.Nodes {
		if err := d.writeNode(ca, i, o); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// issue writes the certificate and key of one more identity.
func (d *DevDomain) issue(ca *trust.CA, dir, path string) (DevIdentity, error) {
	svid, err := ca.Issue(path, devTTL, time.Now())
	if err != nil {
		return DevIdentity{}, err
	}
	file := filepath.Join(dir, "identities", strings.ReplaceAll(strings.TrimPrefix(path, "/"), "/", "-"))
	id := DevIdentity{SPIFFEID: svid.ID.String(), Cert: file + ".pem", Key: file + ".key"}
	return id, trust.WriteSVID(svid, id.Cert, id.Key)
}

// writeNode writes the identity and the configuration of node i.
func (d *DevDomain) writeNode(ca *trust.CA, i int, o *DevOptions) error {
	n := d.Nodes[i]
	dir := filepath.Dir(n.Config)
	if err := os.MkdirAll(n.Data, 0o700); err != nil {
		return err
	}
	id := spiffeid.RequireFromString(n.ID)
	svid, err := ca.Issue(id.Path(), devTTL, time.Now())
	if err != nil {
		return err
	}
	cfg := DefaultConfig()
	cfg.TrustDomain = id.TrustDomain()
	cfg.PublicURL = n.API
	cfg.Data = n.Data
	cfg.Listen = Listen{API: strings.TrimPrefix(n.API, "https://"), Admin: strings.TrimPrefix(n.Admin, "http://"), Cluster: n.Raft, Gossip: n.Gossip}
	cfg.Identity = Identity{Cert: filepath.Join(dir, "node.pem"), Key: filepath.Join(dir, "node.key"), Bundle: d.Bundle}
	cfg.Policy = "development"
	cfg.Gossip.Enabled = !o.noGossip
	if o.Gateway {
		cfg.Gateway = developmentGateway()
	}
	if !o.Limits {
		cfg.Limits = Limits{}
	}
	cfg.Log.Format = "text"
	for _, m := range d.Nodes {
		cfg.Members = append(cfg.Members, Member{ID: spiffeid.RequireFromString(m.ID), Cluster: m.Raft, API: m.API})
	}
	b, err := yaml.Marshal(cfg)
	if err != nil {
		return err
	}
	return errors.Join(trust.WriteSVID(svid, cfg.Identity.Cert, cfg.Identity.Key), writeFile(n.Config, b, 0o644))
}

// Mint makes another identity in a development mesh, adds it to mesh.json and
// returns it.
func Mint(dir, domain, path string) (*DevIdentity, error) {
	m, err := ReadDevMesh(dir)
	if err != nil {
		return nil, fmt.Errorf("%s has no development mesh: start one with roster dev --dir: %w", dir, err)
	}
	i := slices.IndexFunc(m.Domains, func(d DevDomain) bool { return d.TrustDomain == domain })
	if i < 0 {
		return nil, fmt.Errorf("the mesh in %s has no domain %q", dir, domain)
	}
	d := &m.Domains[i]
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
	d.Identities = slices.DeleteFunc(d.Identities, func(o DevIdentity) bool { return o.SPIFFEID == id.SPIFFEID })
	d.Identities = append(d.Identities, id)
	return &id, m.write(dir)
}
