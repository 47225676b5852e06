package mesh

import (
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"time"

	apiclient "github.com/roster-mesh/roster/api/client"
	apiwire "github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/trust"
)

// AddCA gives the domain another CA: its bundle has both from now on, in the files of its
// nodes, and the old one still issues.
func (d *Domain) AddCA() {
	d.env.T.Helper()
	d.env.Note("%s has a second CA", d.Name)
	ca, err := trust.NewCA(d.td, time.Now())
	d.env.must(err)

	d.mu.Lock()
	d.next = ca
	old := d.ca
	d.mu.Unlock()
	d.publish(old, ca)
}

// UseCA gives all nodes and clients of the domain SVIDs of the CA that AddCA added.
func (d *Domain) UseCA() {
	d.env.T.Helper()
	d.mu.Lock()
	d.ca = d.next
	clear(d.clients) // later ones get SVIDs of the new CA
	d.mu.Unlock()
	d.Renew()
}

// Renew gives all nodes of the domain new SVIDs. Connections keep those that they were
// made with.
func (d *Domain) Renew() {
	d.env.T.Helper()
	d.env.Note("the nodes of %s have new SVIDs", d.Name)

	ca := d.issuer()
	for i, n := range d.Nodes {
		svid, err := ca.Issue(fmt.Sprint(trust.NodePath, i+1), d.env.options.SVIDs, time.Now())
		d.env.must(err)
		n.source.Set(svid)
	}
}

// DropCA removes the CA that UseCA replaced from the domain's bundle.
func (d *Domain) DropCA() {
	d.env.T.Helper()
	d.env.Note("%s drops its first CA", d.Name)
	d.publish(d.issuer())
}

// ReplaceCA gives the domain another CA in the place of a stolen one: its nodes have new SVIDs and
// a bundle of the new CA alone, without overlap.
func (d *Domain) ReplaceCA() {
	d.env.T.Helper()
	d.env.Note("%s replaces its CA", d.Name)
	ca, err := trust.NewCA(d.td, time.Now())
	d.env.must(err)

	d.mu.Lock()
	d.ca = ca
	clear(d.clients)
	d.mu.Unlock()
	d.publish(ca)
	d.Renew()
}

// Trust gives a peer's authorities to a domain in the place of those that it trusts, by its
// operator's command.
func (d *Domain) Trust(peer *Domain) {
	d.env.T.Helper()
	jwks, err := peer.Bundle().Marshal()
	d.env.must(err)
	d.env.Note("%s trusts the present CA of %s alone", d.Name, peer.Name)
	ctx, cancel := request()
	defer cancel()
	d.env.must(d.living().client(operator).Operator().SetPeer(ctx, peer.Name, apiclient.PeerSettings{Bundle: jwks}))
}

// Release releases a frozen peer, by the domain's operator.
func (d *Domain) Release(peer *Domain) error {
	ctx, cancel := request()
	defer cancel()

	return d.living().client(operator).Operator().ChangePeering(ctx, peer.Name, apiclient.PeerRelease)
}

// Follow has a domain refresh a peer's bundle from the peer's endpoint again.
func (d *Domain) Follow(peer *Domain) {
	d.env.T.Helper()
	ctx, cancel := request()
	defer cancel()
	d.env.must(d.living().client(operator).Operator().SetPeer(ctx, peer.Name, apiclient.PeerSettings{
		BundleEndpoint: &apiclient.BundleEndpoint{URL: peer.Nodes[0].URL() + apiwire.BundlePath,
			Profile: directory.ProfileSPIFFE}}))
}

// publish writes the domain's bundle into the files of its nodes, and has the stories'
// clients trust it.
func (d *Domain) publish(cas ...*trust.CA) {
	var (
		text        []byte
		authorities []*x509.Certificate
	)
	for _, ca := range cas {
		pem, _ := ca.PEM()
		text = append(text, pem...)
		authorities = append(authorities, ca.Bundle().X509Authorities()...)
	}

	d.env.must(d.env.bundles.SetX509(d.td, authorities))

	for _, n := range d.Nodes {
		d.env.must(os.WriteFile(n.cfg.Identity.Bundle, text, 0o600))
	}
}

// LoseKey removes the signing key from the disk of a dead node. The node makes another
// key when it starts.
func (n *Node) LoseKey() {
	n.env.T.Helper()
	n.env.must(os.Remove(filepath.Join(n.cfg.Data, "signing.key")))
}
