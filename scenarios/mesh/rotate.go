package mesh

import (
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/roster-mesh/roster/trust"
)

// AddCA gives a domain another CA: its bundle has both from now on, in the files of
// its nodes, and the old one still issues.
func (m *Mesh) AddCA(name string) {
	m.T.Helper()
	d := m.Domain(name)
	m.Note("%s has a second CA", name)
	ca, err := trust.NewCA(d.td, time.Now())
	m.must(err)
	d.next = ca
	m.publish(d, d.ca, ca)
}

// UseCA has all nodes of the domain show SVIDs of the CA that AddCA added, and the
// domain's clients too.
func (m *Mesh) UseCA(name string) {
	m.T.Helper()
	d := m.Domain(name)
	m.mu.Lock()
	d.ca = d.next // clients are made with it meanwhile
	m.mu.Unlock()
	m.Renew(name)
	m.mu.Lock()
	defer m.mu.Unlock()
	for key := range m.clients {
		if strings.HasPrefix(key, name+"/") {
			delete(m.clients, key)
		}
	}
}

// Renew gives all nodes of the domain new SVIDs. Connections keep those that they were
// made with.
func (m *Mesh) Renew(name string) {
	m.T.Helper()
	d := m.Domain(name)
	m.Note("the nodes of %s have new SVIDs", name)
	for i, n := range d.Nodes {
		svid, err := d.ca.Issue(fmt.Sprint(trust.NodePath, i+1), m.options.SVIDs, time.Now())
		m.must(err)
		n.source.Set(svid)
	}
}

// DropCA takes the CA that UseCA took out of use out of the domain's bundle.
func (m *Mesh) DropCA(name string) {
	m.T.Helper()
	d := m.Domain(name)
	m.Note("%s drops its first CA", name)
	m.publish(d, d.ca)
}

// publish puts a domain's bundle into the files of its nodes, and has this mesh's
// clients believe it.
func (m *Mesh) publish(d *Domain, cas ...*trust.CA) {
	var text []byte
	var authorities []*x509.Certificate
	for _, ca := range cas {
		pem, _ := ca.PEM()
		text = append(text, pem...)
		authorities = append(authorities, ca.Bundle().X509Authorities()...)
	}
	m.must(m.bundles.SetX509(d.td, authorities))
	for _, n := range d.Nodes {
		m.must(os.WriteFile(n.cfg.Identity.Bundle, text, 0o600))
	}
}

// LoseKey takes the signing key from the disk of a node that is dead: it makes itself
// another when it starts.
func (m *Mesh) LoseKey(n *Node) {
	m.T.Helper()
	m.must(os.Remove(filepath.Join(n.cfg.Data, "signing.key")))
}
