package local

import (
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/durable"
	"github.com/roster-mesh/roster/node/config"
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

// dirs returns the directories that the plan makes.
func (p *plan) dirs() []string {
	var dirs []string
	if !p.joins() {
		dirs = append(dirs, p.operatorDir())
	}

	for _, m := range p.members {
		dirs = append(dirs, p.nodeDir(m))
	}

	return dirs
}

// remove removes the files of write, so that a second try finds no file.
func (p *plan) remove() error {
	var failed error
	for _, dir := range p.dirs() {
		failed = errors.Join(failed, os.RemoveAll(dir))
	}

	for _, parent := range p.newParents {
		// Remove spares a directory that has other files by now.
		failed = errors.Join(failed, os.Remove(parent))
	}

	return failed
}

// missingParents returns a directory and those above it that do not exist, the deepest first.
func missingParents(dir string) []string {
	var missing []string
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
			return missing
		}

		missing = append(missing, dir)
	}
}

// checkNothingExists refuses a directory with files that the plan would write.
func (p *plan) checkNothingExists() error {
	for _, dir := range p.dirs() {
		if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s exists: nothing is overwritten", dir)
		}
	}

	return nil
}

// write writes the configuration of each member and, from a certificate authority, the
// SVIDs of the members and of the first operator; or nothing, if it fails.
func (p *plan) write() error {
	p.newParents = missingParents(p.dir)

	err := p.writeAll()
	if err != nil {
		err = errors.Join(err, p.remove())
	}

	return err
}

func (p *plan) writeAll() error {
	var ca *Store
	if p.identities == fromCA {
		var err error
		if ca, err = Open(p.ca); err != nil {
			return err
		}

		defer ca.Close()

		if ca.TrustDomain() != p.trustDomain {
			return fmt.Errorf("the certificate authority in %s is that of %s", p.ca, ca.TrustDomain().Name())
		}
	}

	// All configurations are checked before the authority records an SVID.
	for _, m := range p.members {
		if err := p.writeConfig(m); err != nil {
			return err
		}
	}

	if ca == nil {
		return nil
	}

	for _, m := range p.members {
		if err := p.issue(ca, m); err != nil {
			return err
		}
	}

	if p.joins() {
		// A domain that exists has an operator.
		return nil
	}

	dir := p.operatorDir()

	return issue(ca, dir, "operator", Request{Path: operatorPath})
}

// writeConfig writes the configuration of one member. It is read again as a node would, so
// that a mistake shows here, before the authority records an SVID.
func (p *plan) writeConfig(m member) error {
	dir := p.nodeDir(m)
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}

	file := filepath.Join(dir, configFile)
	if err := durable.WriteFile(file, p.render(m), 0o644); err != nil {
		return err
	}

	_, err := config.Load(file)

	return err
}

// issue writes the SVIDs of one member.
func (p *plan) issue(ca *Store, m member) error {
	dir := p.nodeDir(m)

	return errors.Join(
		issue(ca, dir, "node", Request{Path: m.id.Path(), Hosts: m.hosts(p.publicURL)}),
		issue(ca, dir, "gateway", Request{Path: directory.GatewayPath + m.name}),
	)
}

// issue writes an SVID and the authority's bundle into dir.
func issue(ca *Store, dir, name string, request Request) error {
	request.Cert = filepath.Join(dir, name+".pem")
	request.Key = filepath.Join(dir, name+".key")
	request.Lifetime = DefaultLifetime

	if _, err := ca.Issue(request); err != nil {
		return err
	}

	return durable.WriteFile(filepath.Join(dir, bundleFile), ca.Bundle(), 0o644)
}

// render returns the commented configuration of a member. It fills in the text by names:
// text/template would let the linker drop no method of any type.
func (p *plan) render(m member) []byte {
	return []byte(strings.NewReplacer(
		"{id}", m.id.String(),
		"{trust_domain}", scalar(p.trustDomain.Name()),
		"{public_url}", scalar(p.publicURL),
		"{api}", scalar(m.listen(0)),
		"{admin}", scalar(m.admin()),
		"{cluster}", scalar(m.listen(clusterOffset)),
		"{gossip}", scalar(m.listen(gossipOffset)),
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
		"  workload_api: " + scalar(p.identities)
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

// membersSection returns the list of all members, or this one and the addresses to join at.
func (p *plan) membersSection() string {
	lines := []string{"# The nodes with which the domain begins, the same list on each node.", "members:"}
	if p.joins() {
		lines = []string{"# This node; the others are found at join.", "members:"}
	}

	for _, m := range p.members {
		lines = append(lines, "  - id: "+scalar(m.id.String()), "    cluster: "+scalar(m.address(clusterOffset)),
			"    api: "+scalar(m.api()))
	}

	if p.joins() {
		lines = append(lines, "", "# Cluster addresses of the domain's nodes, for this one to join at.", "join:")
	}

	for _, address := range p.join {
		lines = append(lines, "  - "+scalar(address))
	}

	return strings.Join(lines, "\n")
}

// plainScalar is text that YAML reads as itself: it has a dot or a colon, and a letter that no number
// has; or it is an IPv4 address with a port.
var plainScalar = regexp.MustCompile(`^(?:[A-Za-z0-9][A-Za-z0-9._/-]*(?:\.|://)[A-Za-z0-9._:/-]*[A-Za-z0-9_/-]|` +
	`[0-9]+\.[0-9]+\.[0-9]+\.[0-9]+:[0-9]+)$`)

// scalar returns a text as a scalar of YAML, quoted if it could be read as anything else.
func scalar(text string) string {
	if plainScalar.MatchString(text) && (strings.ContainsAny(text, notInNumbers) || strings.Count(text, ".") == 3) {
		return text
	}

	return strconv.Quote(text)
}

const notInNumbers = "ghijklmnopqrstuvwyzGHIJKLMNOPQRSTUVWYZ"
