package setup

import (
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/roster-mesh/roster/cmd/roster/authority"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/node/config"
	"github.com/roster-mesh/roster/trust"
)

//go:embed node.yaml
var nodeText string

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
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}

	file := filepath.Join(dir, configFile)
	if err := trust.WriteFile(file, p.render(m), 0o644); err != nil {
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

// render returns the commented configuration of a member. It fills in the text by names:
// text/template would let the linker drop no method of any type.
func (p *plan) render(m member) []byte {
	return []byte(strings.NewReplacer(
		"{id}", m.id.String(),
		"{trust_domain}", p.trustDomain.Name(),
		"{public_url}", p.publicURL,
		"{api}", m.listen(0),
		"{admin}", m.admin(),
		"{cluster}", m.listen(clusterOffset),
		"{gossip}", m.listen(gossipOffset),
		"{identity}", p.identitySection(),
		"{members}", p.membersSection(),
		"{gateway_identity}", p.gatewaySection(),
	).Replace(nodeText))
}

// identitySection returns the source of a node's SVID.
func (p *plan) identitySection() string {
	switch p.identities {
	case fromCA:
		return "  # Files beside this one, which the node watches. \"roster ca renew\" renews them.\n" + identityFiles
	case fromFiles:
		return "  # Files beside this one, which the node watches.\n" + identityFiles
	}

	return "  # A SPIFFE Workload API, such as a SPIRE agent's, provides and renews them.\n" +
		"  workload_api: " + p.identities
}

const identityFiles = "  cert: " + certFile + "\n  key: " + keyFile + "\n  bundle: " + bundleFile

// gatewaySection returns the source of the gateway's SVID; a Workload API needs no key.
func (p *plan) gatewaySection() string {
	if p.identities != fromCA {
		return ""
	}

	return "\n  # X.509-SVID that the gateway presents to agents. No directory trusts it." +
		"\n  identity: {cert: gateway.pem, key: gateway.key}"
}

// membersSection returns the list of all members.
func (p *plan) membersSection() string {
	var list []string
	for _, m := range p.members {
		list = append(list, "  - id: "+m.id.String()+"\n    cluster: "+m.address(clusterOffset)+"\n    api: "+m.api())
	}

	return strings.Join(list, "\n")
}
