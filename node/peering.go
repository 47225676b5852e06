package node

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"time"

	apioperator "github.com/roster-mesh/roster/api/operator"

	"github.com/cenkalti/backoff/v5"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/problem"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/node/listener"
	"github.com/roster-mesh/roster/trust"
)

// How long another domain is asked.
const (
	offerTime    = 10 * time.Second // for one of its nodes to answer an offer
	farewellTime = 5 * time.Second  // for one of its nodes to answer a farewell
	farewells    = 10 * time.Minute // for any: after that deadlines do it
)

// agreed returns the peering with a domain; ok is false if there is none.
func (ps *peerings) agreed(td spiffeid.TrustDomain) (p directory.Peering, ok bool) {
	all := ps.store.Peerings()

	i := slices.IndexFunc(all, func(p directory.Peering) bool { return p.Domain == td })
	if i < 0 {
		return directory.Peering{}, false
	}

	return all[i], true
}

// amendAtMost bounds the attempts of a change when concurrent changes precede it.
const amendAtMost = 5

const (
	readTime  = 5 * time.Second // bounds the wait for the current peerings, as that of a write for a leader
	readPause = 50 * time.Millisecond
)

// await waits until this node shows all peerings that the domain acknowledged. A read fails
// as soon as no leader is known; a change waits for one.
func (ps *peerings) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()

	for {
		err := ps.store.Linearize(ctx)
		if directory.ProblemOf(err) != directory.Unavailable {
			return err
		}

		select {
		case <-time.After(readPause):
		case <-ctx.Done():
			return err
		}
	}
}

// amend applies f to the current peering with a domain, at any node. It retries after a
// concurrent change, so that no change is lost.
func (ps *peerings) amend(ctx context.Context, td spiffeid.TrustDomain,
	f func(p *directory.Peering, known bool) error) error {
	for try := 1; ; try++ {
		if err := ps.await(ctx); err != nil {
			return err
		}

		was, known := ps.agreed(td)
		was.Domain = td

		peering := was
		if err := f(&peering, known); err != nil || peering.Equal(was) {
			return err
		}

		err := ps.store.AmendPeering(ctx, was, peering)
		if directory.ProblemOf(err) != directory.Conflict || try == amendAtMost {
			return err
		}
	}
}

// exportsTo reports whether the operator lets a peer have something.
func (ps *peerings) exportsTo(td spiffeid.TrustDomain) bool {
	return slices.ContainsFunc(ps.list(), func(p directory.Peering) bool {
		return p.Domain == td && p.State == directory.PeeringActive && p.Mesh
	})
}

// ourselves returns the data of this domain that another domain needs for a peering.
func (ps *peerings) ourselves() (directory.Peering, error) {
	peering := directory.Peering{Domain: ps.domain, Endpoint: ps.bundleEndpoint()}

	var err error
	if peering.Bundle, err = ps.bundles.Publish(peering.Domain); err != nil {
		return peering, err
	}

	for _, m := range ps.store.RaftPeers() {
		if m.API != "" {
			peering.Addresses = append(peering.Addresses, m.API)
		}
	}

	if len(peering.Addresses) == 0 {
		peering.Addresses = []string{ps.cfg.PublicURL}
	}

	for _, m := range ps.mesh().Members() {
		if m.ID.TrustDomain() == peering.Domain {
			peering.Gossip = append(peering.Gossip, m.Address)
		}
	}

	return peering, nil
}

// Invite implements operator.Peers. The domain keeps the secret's hash alone.
func (ps *peerings) Invite(ctx context.Context, peer spiffeid.TrustDomain, life time.Duration) (wire.Invitation,
	error) {
	var made wire.Invitation

	us, err := ps.ourselves()
	if err != nil {
		return made, directory.Refuse(directory.Unavailable, "this node has no bundle of its own domain: %w", err)
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

	pending := directory.Peering{Domain: peer, State: directory.PeeringPending, Secret: sha256.Sum256([]byte(secret)),
		Until: until.Unix()}

	return made, ps.amend(ctx, peer, func(peering *directory.Peering, _ bool) error {
		if err := noPeerYet(peering); err != nil {
			return err
		}

		*peering = pending

		return nil
	})
}

func noPeerYet(p *directory.Peering) error {
	if p.State == directory.PeeringActive || p.State == directory.PeeringFrozen {
		return directory.Refuse(directory.Conflict, "%s is a peer already (%s); remove it first", p.Domain.Name(),
			p.State)
	}

	return nil
}

// Accept implements operator.Peers. The peering is pending until the other domain
// has taken the secret, and active once it has.
func (ps *peerings) Accept(ctx context.Context, token apioperator.Token) error {
	peering, err := token.Peering(ps.domain)
	if err != nil {
		return err
	}

	if _, err := trust.ParseBundle(peering.Domain, peering.Bundle); err != nil {
		return directory.Refuse(directory.BadRequest, "the token's bundle is not usable: %w", err).At("/token")
	}

	if token.Until <= time.Now().Unix() {
		return directory.Refuse(directory.BadRequest, "the invitation ended at %s; ask for another",
			time.Unix(token.Until, 0).UTC().Format(time.RFC3339)).At("/token")
	}

	us, err := ps.ourselves()
	if err != nil {
		return directory.Refuse(directory.Unavailable, "this node has no bundle of its own domain: %w", err)
	}

	err = ps.amend(ctx, peering.Domain, func(now *directory.Peering, _ bool) error {
		if err := noPeerYet(now); err != nil {
			return err
		}

		*now = peering

		return nil
	})
	if err != nil {
		return err
	}

	pending := peering
	if err := ps.offer(ctx, peering, token.Secret, us); err != nil {
		var refused *apiclient.Error
		if errors.As(err, &refused) && refused.Status < 500 {
			peering.State = directory.PeeringTerminated

			return errors.Join(directory.Refuse(directory.Conflict, "%s refuses: %w", peering.Domain.Name(),
				theirs(refused)), ps.store.AmendPeering(ctx, pending, peering))
		}

		if refused != nil {
			err = theirs(refused)
		}

		return directory.Refuse(problem.Upstream,
			"no node of %s said that it took the invitation, so the peering is pending here; accept it again "+
				"once one is reached: %w", peering.Domain.Name(), err)
	}

	peering.State = directory.PeeringActive

	return ps.store.AmendPeering(ctx, pending, peering)
}

// theirs returns the error for an answer of another domain's node. It quotes the text,
// because the other node chose its bytes and an operator reads them.
func theirs(e *apiclient.Error) error {
	return fmt.Errorf("it answers %d, %.200q", e.Status, e.Error())
}

// offer presents the secret to one node after the other until one accepts it. It trusts
// the token's bundle. It presents no certificate, because that domain knows none of this
// one's authorities yet.
func (ps *peerings) offer(ctx context.Context, peering directory.Peering, secret string, us directory.Peering) error {
	client, done, err := ps.stranger(peering, nil)
	if err != nil {
		return err
	}
	defer done()

	for _, address := range peering.Addresses {
		timed, cancel := context.WithTimeout(ctx, offerTime)
		err = apiclient.NewDirect(address, client).Redeem(timed, secret, apioperator.WirePeering(us))
		cancel()

		if err == nil {
			return nil // one that refuses may only be behind the one that invited
		}
	}

	return err
}

// stranger returns a client for nodes of a domain that is no peer, by the bundle
// that p has.
func (ps *peerings) stranger(peering directory.Peering, as *trust.Source) (*http.Client, func(), error) {
	believed := trust.NewBundles()
	if err := believed.Set(peering.Domain, peering.Bundle); err != nil {
		return nil, nil, err
	}

	t := &http.Transport{
		DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
			return ps.net.Dial(ctx, addr)
		},
		TLSClientConfig:     trust.ClientTLS(as, believed, AuthorizeNodesOf(peering.Domain), "h2", "http/1.1"),
		ForceAttemptHTTP2:   true,
		TLSHandshakeTimeout: listener.HeaderTimeout,
	}
	c := &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}

	return c, t.CloseIdleConnections, nil
}

// Invited implements operator.Peers.
func (ps *peerings) Invited(secret string, peer spiffeid.TrustDomain) bool {
	p, ok := ps.agreed(peer)
	return ok && p.Secret == sha256.Sum256([]byte(secret))
}

// Redeem implements operator.Peers.
func (ps *peerings) Redeem(ctx context.Context, secret string, peering directory.Peering) error {
	if _, err := trust.ParseBundle(peering.Domain, peering.Bundle); err != nil {
		return directory.Refuse(directory.BadRequest, "the bundle of %s is not usable: %w", peering.Domain.Name(),
			err).At("/bundle")
	}

	return ps.store.Redeem(ctx, sha256.Sum256([]byte(secret)), peering)
}

// Change implements operator.Peers.
func (ps *peerings) Change(ctx context.Context, peer spiffeid.TrustDomain, verb wire.PeerVerb) error {
	if now, _ := ps.agreed(peer); verb == wire.PeerRelease && now.State == directory.PeeringFrozen {
		if err := ps.mesh().MayRelease(ctx, peer); err != nil {
			return err
		}
	}

	return ps.amend(ctx, peer, func(peering *directory.Peering, known bool) error {
		if !known || peering.State == directory.PeeringTerminated && verb != wire.PeerRemove {
			return noPeer(peer)
		}

		switch verb {
		case wire.PeerRemove:
			peering.State, peering.Mesh, peering.Secret, peering.Until, peering.ByPeer = directory.PeeringTerminated,
				false, directory.Hash{}, 0, peering.ByPeer && peering.State == directory.PeeringTerminated
			peering.Export, peering.Import = directory.PeerRules{}, directory.PeerRules{}
		case wire.PeerRelease:
			if peering.State != directory.PeeringFrozen {
				return directory.Refuse(directory.Conflict, "%s is %s; only a frozen peer is released", peer.Name(),
					peering.State)
			}

			peering.State = directory.PeeringActive
		case wire.PeerExport, wire.PeerUnexport:
			peering.Mesh = verb == wire.PeerExport
		}

		return nil
	})
}

func noPeer(td spiffeid.TrustDomain) error {
	return directory.Refuse(directory.NotFound, "%s is no peer of this domain", td.Name())
}

// Set implements operator.Peers.
func (ps *peerings) Set(ctx context.Context, peer spiffeid.TrustDomain, to apioperator.PeerSettings) error {
	return ps.amend(ctx, peer, func(peering *directory.Peering, known bool) error {
		if !known || peering.State == directory.PeeringTerminated {
			return noPeer(peer)
		}

		if to.Export != nil {
			peering.Export = *to.Export
		}

		if to.Import != nil {
			peering.Import = *to.Import
		}

		if to.Addresses != nil {
			peering.Addresses = to.Addresses
		}

		if to.Gossip != nil {
			peering.Gossip = to.Gossip
		}

		if to.Endpoint != nil {
			peering.Endpoint = *to.Endpoint
		}

		return nil
	})
}

// endedByPeer takes a peer's word that it has ended the peering.
func (ps *peerings) endedByPeer(ctx context.Context, td spiffeid.TrustDomain) error {
	return ps.amend(ctx, td, func(peering *directory.Peering, _ bool) error {
		if peering.State != directory.PeeringActive && peering.State != directory.PeeringFrozen {
			return nil
		}

		peering.State, peering.Mesh, peering.ByPeer, peering.Secret, peering.Until = directory.PeeringTerminated,
			false, true, directory.Hash{}, 0
		ps.log.Warn("peering ended by the peer; its records are removed", "peer", td.Name())

		return nil
	})
}

// sayFarewell notifies a former peer that the peering has ended, so that it drops this
// domain's data at once (MESH-025). A peer that can't be reached drops the data by
// deadlines.
func (ps *peerings) sayFarewell(ctx context.Context, peering directory.Peering) {
	client, done, err := ps.stranger(peering, ps.source)
	if err != nil {
		ps.log.Warn("farewell to a former peer failed", "peer", peering.Domain.Name(), "err", err)
		return
	}
	defer done()
	turn := 0

	_, err = backoff.Retry(ctx, func() (struct{}, error) {
		if now, ok := ps.agreed(peering.Domain); !ok || now.State != directory.PeeringTerminated ||
			len(peering.Addresses) == 0 {
			return struct{}{}, nil // the two are at it again
		}

		turn++

		return struct{}{}, farewell(ctx, client, peering.Addresses[turn%len(peering.Addresses)])
	}, backoff.WithMaxElapsedTime(farewells))
	if err != nil {
		ps.log.Warn("farewell to a former peer failed; it removes this domain's records by their deadlines",
			"peer", peering.Domain.Name(), "err", err)
	}
}

var errNotTaken = errors.New("the farewell was not taken")

func farewell(ctx context.Context, client *http.Client, address string) error {
	ctx, cancel := context.WithTimeout(ctx, farewellTime)
	defer cancel()

	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address+protocol.PathFarewell, bytes.NewReader(nil))
	if err != nil {
		return err
	}

	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()

	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<10))
	if resp.StatusCode >= 500 {
		return errNotTaken
	}

	return nil // or refused: it is no peer there any more
}

// fingerprintsOf is empty if a peering has no usable bundle.
func fingerprintsOf(p directory.Peering) []string {
	prints, err := trust.Fingerprints(p.Domain, p.Bundle)
	if err != nil {
		return nil
	}

	return prints
}
