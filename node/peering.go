package node

import (
	"context"
	"crypto/sha256"
	"net"
	"net/http"
	"time"

	apioperator "github.com/roster-mesh/roster/api/operator"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/consensus"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/federation"
	"github.com/roster-mesh/roster/federation/peering"
	"github.com/roster-mesh/roster/node/config"
	"github.com/roster-mesh/roster/node/listener"
	"github.com/roster-mesh/roster/trust"
)

// peers implements operator.Peers by the domain's agreements: it makes and reads tokens, and
// presents offers to other domains.
type peers struct {
	node       spiffeid.ID // this one
	agreements *peering.Agreements
	cfg        *config.Config
	net        Network
	bundles    *trust.Bundles
	store      *consensus.Store
	mesh       *federation.Mesh
}

// ourselves returns the data of this domain that another domain needs for a peering.
func (ps *peers) ourselves() (directory.Peering, error) {
	us := directory.Peering{Domain: ps.cfg.TrustDomain, Endpoint: ps.bundleEndpoint()}

	var err error
	if us.Bundle, err = ps.bundles.Publish(us.Domain); err != nil {
		return us, directory.Refuse(directory.Unavailable, "this node has no bundle of its own domain: %w", err)
	}

	for _, m := range ps.store.RaftPeers() {
		if m.API != "" {
			us.Addresses = append(us.Addresses, m.API)
		}
	}

	// No member has announced its API yet, so the configured URL must do.
	if len(us.Addresses) == 0 {
		us.Addresses = []string{ps.cfg.PublicURL}
	}

	for _, m := range ps.mesh.Members() {
		if m.ID.TrustDomain() == us.Domain {
			us.Gossip = append(us.Gossip, m.Address)
		}
	}

	return us, nil
}

// Invite implements operator.Peers. The domain keeps the secret's hash alone.
func (ps *peers) Invite(ctx context.Context, peer spiffeid.TrustDomain, life time.Duration,
	hash directory.Hash) (wire.Invitation, error) {
	var made wire.Invitation

	us, err := ps.ourselves()
	if err != nil {
		return made, err
	}

	// The token and the log have whole seconds.
	until := time.Now().Add(life).Truncate(time.Second)
	token := apioperator.Token{Domain: us.Domain.Name(), Addresses: ps.invitingAddresses(&us),
		BundleHash: sha256.Sum256(us.Bundle), Until: until.Unix()} // the operator appends the secret
	made = wire.Invitation{Token: token.String(), Until: until.UTC(), Fingerprints: fingerprintsOf(us)}

	return made, ps.agreements.Invite(ctx, peer, hash, until)
}

// stranger returns a client for nodes of a domain that is no peer, by the bundle of an
// agreement.
func stranger(network Network, with directory.Peering, as *trust.Source) (*http.Client, func(), error) {
	// The node's own bundles don't have the domain, which is not a peer yet, or not any more.
	believed := trust.NewBundles()
	if err := believed.Set(with.Domain, with.Bundle); err != nil {
		return nil, nil, err
	}

	t := &http.Transport{
		DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
			return network.Dial(ctx, addr)
		},
		TLSClientConfig:     trust.ClientTLS(as, believed, AuthorizeNodesOf(with.Domain), "h2", "http/1.1"),
		ForceAttemptHTTP2:   true,
		TLSHandshakeTimeout: listener.HeaderTimeout,
	}
	c := &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}

	return c, t.CloseIdleConnections, nil
}

// Invited implements operator.Peers.
func (ps *peers) Invited(secret string, peer spiffeid.TrustDomain) bool {
	p, ok := ps.agreements.With(peer)
	return ok && p.Secret == sha256.Sum256([]byte(secret))
}

// Change implements operator.Peers.
func (ps *peers) Change(ctx context.Context, peer spiffeid.TrustDomain, verb wire.PeerVerb) error {
	switch verb {
	case wire.PeerRemove:
		return ps.agreements.Remove(ctx, peer)
	case wire.PeerRelease:
		// A frozen peer has contradicted itself, so its release has conditions that the mesh judges.
		if now, _ := ps.agreements.With(peer); now.State == directory.PeeringFrozen {
			if err := ps.mesh.MayRelease(ctx, peer); err != nil {
				return err
			}
		}

		return ps.agreements.Release(ctx, peer)
	}

	return ps.agreements.Export(ctx, peer, verb == wire.PeerExport)
}

// Set implements operator.Peers.
func (ps *peers) Set(ctx context.Context, peer spiffeid.TrustDomain, to apioperator.PeerSettings) error {
	if to.Bundle != nil {
		if err := trust.CheckBundle(peer, to.Bundle, time.Now()); err != nil {
			return directory.Refuse(directory.BadRequest, "the bundle of %s is not usable: %w", peer.Name(), err).
				At("/bundle")
		}
	}

	return ps.agreements.Set(ctx, peer, to.Apply)
}

// fingerprintsOf is empty if a peering has no usable bundle.
func fingerprintsOf(p directory.Peering) []string {
	prints, err := trust.Fingerprints(p.Domain, p.Bundle)
	if err != nil {
		return nil
	}

	return prints
}
