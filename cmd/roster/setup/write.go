package setup

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"text/template"

	"github.com/roster-mesh/roster/cmd/roster/authority"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/node/config"
	"github.com/roster-mesh/roster/trust"
)

//go:embed node.yaml.tmpl
var nodeText string

var nodeTemplate = template.Must(template.New("node.yaml").Parse(nodeText))

// operatorPath is the SPIFFE ID's path of the first operator, whom the shipped policy lets
// operate the directory.
const operatorPath = "/ops/operator"

// The names of the files in a node's directory.
const (
	configFile = "node.yaml"
	certFile   = "node.pem"
	keyFile    = "node.key"
	bundleFile = "bundle.pem"
)

// nodeDir is the directory of a member's files.
func (p *plan) nodeDir(m member) string { return filepath.Join(p.dir, m.name) }

// operatorDir is the directory of the operator's files.
func (p *plan) operatorDir() string { return filepath.Join(p.dir, "operator") }

// checkNothingExists refuses a directory with files that the plan would write.
func (p *plan) checkNothingExists() error {
	dirs := []string{p.operatorDir()}
	for _, m := range p.members {
		dirs = append(dirs, p.nodeDir(m))
	}

	for _, dir := range dirs {
		if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s exists: nothing is overwritten", dir)
		}
	}

	return nil
}

// write writes the configuration of each member and, from a certificate authority, the
// SVIDs of the members and of the first operator.
func (p *plan) write() error {
	var ca *authority.Store
	if p.identities == fromCA {
		var err error
		if ca, err = authority.Open(p.ca); err != nil {
			return err
		}
		defer ca.Close()

		if ca.TrustDomain() != p.trustDomain {
			return fmt.Errorf("the certificate authority in %s is that of %s", p.ca, ca.TrustDomain().Name())
		}
	}

	for _, m := range p.members {
		if err := p.writeNode(m, ca); err != nil {
			return err
		}
	}

	if ca == nil {
		return nil
	}

	dir := p.operatorDir()

	return issue(ca, dir, "operator", authority.Request{Path: operatorPath})
}

// writeNode writes the files of one member. The configuration is read again as a node
// would, so that a mistake shows here.
func (p *plan) writeNode(m member, ca *authority.Store) error {
	dir := p.nodeDir(m)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}

	text, err := p.render(m)
	if err != nil {
		return err
	}

	file := filepath.Join(dir, configFile)
	if err := trust.WriteFile(file, text, 0o644); err != nil {
		return err
	}

	if _, err := config.Load(file); err != nil {
		return err
	}

	if ca == nil {
		return nil
	}

	return errors.Join(
		issue(ca, dir, "node", authority.Request{Path: m.id.Path(), Hosts: m.hosts(p.publicURL)}),
		issue(ca, dir, "gateway", authority.Request{Path: directory.GatewayPath + m.name}),
	)
}

// issue writes an SVID and the authority's bundle into dir.
func issue(ca *authority.Store, dir, name string, request authority.Request) error {
	request.Cert = filepath.Join(dir, name+".pem")
	request.Key = filepath.Join(dir, name+".key")
	request.Lifetime = authority.DefaultLifetime

	if _, err := ca.Issue(request); err != nil {
		return err
	}

	return trust.WriteFile(filepath.Join(dir, bundleFile), ca.Bundle(), 0o644)
}

// render returns the commented configuration of a member.
func (p *plan) render(m member) ([]byte, error) {
	type peer struct{ ID, Cluster, API string }

	data := struct {
		ID, TrustDomain, PublicURL, WorkloadAPI, Gossip string

		CA      bool
		Listen  config.Listen
		Members []peer
	}{
		ID: m.id.String(), TrustDomain: p.trustDomain.Name(), PublicURL: p.publicURL,
		CA: p.identities == fromCA,
		Listen: config.Listen{
			API:     m.listen(0),
			Admin:   m.admin(),
			Cluster: m.listen(clusterOffset),
			Gossip:  m.listen(gossipOffset),
		},
	}

	if p.identities != fromCA && p.identities != fromFiles {
		data.WorkloadAPI = p.identities
	}

	for _, other := range p.members {
		data.Members = append(data.Members, peer{other.id.String(), other.address(clusterOffset), other.api()})
	}

	var text bytes.Buffer
	err := nodeTemplate.Execute(&text, data)

	return text.Bytes(), err
}
