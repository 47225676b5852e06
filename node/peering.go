package node

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	apioperator "github.com/roster-mesh/roster/api/operator"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/consensus"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/federation"
	"github.com/roster-mesh/roster/federation/peering"
	"github.com/roster-mesh/roster/node/config"
	"github.com/roster-mesh/roster/node/listener"
	"github.com/roster-mesh/roster/trust"
)

// offerTime bounds the wait for one node of another domain to answer an offer.
const offerTime = 10 * time.Second

// peers implements operator.Peers by the domain's agreements: it makes and reads tokens, and
// presents offers to other domains.
type peers struct {
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
func (ps *peers) Invite(ctx context.Context, peer spiffeid.TrustDomain, life time.Duration) (wire.Invitation,
	error) {
	var made wire.Invitation

	us, err := ps.ourselves()
	if err != nil {
		return made, err
	}

	secret := rand.Text()
	until := time.Now().Add(life).Truncate(time.Second)
	token := apioperator.Token{Domain: us.Domain.Name(), Invited: peer.Name(), Bundle: us.Bundle,
		Addresses: us.Addresses, Gossip: us.Gossip, Endpoint: us.Endpoint, Secret: secret, Until: until.Unix()}

	made = wire.Invitation{Token: token.String(), Until: until.UTC(), Fingerprints: fingerprintsOf(us)}
	if len(made.Token) > apioperator.MaxToken {
		return made, directory.Refuse(directory.TooLarge, "the domain's bundle is too large for a token of %d bytes",
			apioperator.MaxToken)
	}

	return made, ps.agreements.Invite(ctx, peer, sha256.Sum256([]byte(secret)), until)
}

// Accept implements operator.Peers.
func (ps *peers) Accept(ctx context.Context, token apioperator.Token) error {
	invited, err := token.Peering(ps.cfg.TrustDomain)
	if err != nil {
		return err
	}

	if _, err := trust.ParseBundle(invited.Domain, invited.Bundle); err != nil {
		return directory.Refuse(directory.BadRequest, "the token's bundle is not usable: %w", err).At("/token")
	}

	if token.Until <= time.Now().Unix() {
		return directory.Refuse(directory.BadRequest, "the invitation ended at %s; ask for another",
			time.Unix(token.Until, 0).UTC().Format(time.RFC3339)).At("/token")
	}

	us, err := ps.ourselves()
	if err != nil {
		return err
	}

	return ps.agreements.Accept(ctx, invited, func(ctx context.Context) error {
		return ps.offer(ctx, invited, token.Secret, us)
	})
}

// offer presents the secret to one node after the other until one accepts it. It trusts
// the token's bundle. It presents no certificate, because that domain knows none of this
// one's authorities yet.
func (ps *peers) offer(ctx context.Context, invited directory.Peering, secret string, us directory.Peering) error {
	client, done, err := stranger(ps.net, invited, nil)
	if err != nil {
		return err
	}
	defer done()

	for _, address := range invited.Addresses {
		timed, cancel := context.WithTimeout(ctx, offerTime)
		err = apiclient.NewDirect(address, client).Redeem(timed, secret, apioperator.WirePeering(us))
		cancel()

		if err == nil {
			return nil // one that refuses may only be behind the one that invited
		}
	}

	var refused *apiclient.Error

	switch {
	case !errors.As(err, &refused):
		return err
	case refused.Status < http.StatusInternalServerError:
		return &peering.RefusedError{Err: theirs(refused)}
	}

	return theirs(refused)
}

// theirs returns the error for an answer of another domain's node. It quotes the text,
// because the other node chose its bytes and an operator reads them.
func theirs(e *apiclient.Error) error {
	return fmt.Errorf("it answers %d, %.200q", e.Status, e.Error())
}

// stranger returns a client for nodes of a domain that is no peer, by the bundle of an
// agreement.
func stranger(network Network, with directory.Peering, as *trust.Source) (*http.Client, func(), error) {
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

// Redeem implements operator.Peers.
func (ps *peers) Redeem(ctx context.Context, secret string, offered directory.Peering) error {
	if _, err := trust.ParseBundle(offered.Domain, offered.Bundle); err != nil {
		return directory.Refuse(directory.BadRequest, "the bundle of %s is not usable: %w", offered.Domain.Name(),
			err).At("/bundle")
	}

	return ps.store.Redeem(ctx, sha256.Sum256([]byte(secret)), offered)
}

// Change implements operator.Peers.
func (ps *peers) Change(ctx context.Context, peer spiffeid.TrustDomain, verb wire.PeerVerb) error {
	switch verb {
	case wire.PeerRemove:
		return ps.agreements.Remove(ctx, peer)
	case wire.PeerRelease:
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
	return ps.agreements.Set(ctx, peer, func(p *directory.Peering) {
		if to.Export != nil {
			p.Export = *to.Export
		}

		if to.Import != nil {
			p.Import = *to.Import
		}

		if to.Addresses != nil {
			p.Addresses = to.Addresses
		}

		if to.Gossip != nil {
			p.Gossip = to.Gossip
		}

		if to.Endpoint != nil {
			p.Endpoint = *to.Endpoint
		}
	})
}

// fingerprintsOf is empty if a peering has no usable bundle.
func fingerprintsOf(p directory.Peering) []string {
	prints, err := trust.Fingerprints(p.Domain, p.Bundle)
	if err != nil {
		return nil
	}

	return prints
}
