package node

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	apiclient "github.com/roster-mesh/roster/api/client"
	apioperator "github.com/roster-mesh/roster/api/operator"
	"github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/problem"
	"github.com/roster-mesh/roster/federation/peering"
	"github.com/roster-mesh/roster/trust"
)

// Bounds of the wait for nodes of another domain to answer an offer.
const (
	offerTime  = 10 * time.Second // of one node
	offerPause = 2 * time.Second  // after which the next node is asked, too
)

// ownAddress is the base URL at which other domains reach this node.
func (ps *peers) ownAddress() string {
	for _, member := range ps.store.RaftPeers() {
		if member.ID == ps.node && member.API != "" {
			return member.API
		}
	}

	return ps.cfg.PublicURL
}

// invitingAddresses returns the addresses for an invitation: this node's, and those of other nodes of
// the domain.
func (ps *peers) invitingAddresses(us *directory.Peering) []string {
	addresses := []string{ps.ownAddress()}

	for _, other := range us.Addresses {
		if len(addresses) < apioperator.MaxTokenAddresses && !slices.Contains(addresses, other) {
			addresses = append(addresses, other)
		}
	}

	return addresses
}

// Accept implements operator.Peers. The peering is pending until the other domain has taken
// the secret, and active once it has.
func (ps *peers) Accept(ctx context.Context, token apioperator.Token, expected []string) (wire.Accepted, error) {
	domain, err := token.CheckDomain(ps.cfg.TrustDomain)
	if err != nil {
		return wire.Accepted{}, err
	}

	// Another node may have accepted the same token, and this one may not have applied that yet.
	if err := ps.store.Linearize(ctx); err != nil {
		return wire.Accepted{}, err
	}

	// A repetition, by the bundle that the first time fetched, changes nothing here.
	now, _ := ps.agreements.With(domain)
	if now.State == directory.PeeringActive && sha256.Sum256(now.Bundle) == token.BundleHash {
		inviting, err := token.Peering(ps.cfg.TrustDomain, now.Bundle)
		if err != nil {
			return wire.Accepted{}, err
		}

		return ps.acceptFromPeer(ctx, now, inviting, expected, &token)
	}

	// A repetition, above, succeeds after the end of the invitation, too. A first acceptance does not.
	if err := checkEnd(&token, time.Now()); err != nil {
		return wire.Accepted{}, err
	}

	inviting, err := ps.invitingDomain(ctx, &token)
	if err != nil {
		return wire.Accepted{}, err
	}

	accepted, err := acceptedAs(inviting, expected, false)
	if err != nil {
		return accepted, err
	}

	if now.State == directory.PeeringActive || now.State == directory.PeeringFrozen {
		held := fingerprintsOf(now)
		if !slices.Equal(held, accepted.Fingerprints) {
			return wire.Accepted{}, otherAuthority(now, held, accepted.Fingerprints)
		}

		// The token of a frozen peer goes on to Accept below, which refuses it.
		if now.State == directory.PeeringActive {
			return ps.acceptFromPeer(ctx, now, inviting, expected, &token)
		}
	}

	us, err := ps.ourselves()
	if err != nil {
		return accepted, err
	}

	// Accept commits the pending peering before it presents the secret: if the answer is lost, an operator accepts the
	// token again.
	return accepted, ps.agreements.Accept(ctx, inviting, func(ctx context.Context) (directory.Peering, error) {
		described, _, err := ps.offer(ctx, inviting, token.Secret, us)
		return described, err
	})
}

// acceptFromPeer accepts a token of a domain that is a peer already. It presents the secret while the invitation
// lasts: the peer may have ended the peering, and have invited this domain anew, before its farewell came here.
// Then the agreement begins anew, without the exports of the one that the peer ended. A secret that was used
// before is a repetition, which changes nothing.
func (ps *peers) acceptFromPeer(ctx context.Context, now, inviting directory.Peering, expected []string,
	token *apioperator.Token) (wire.Accepted, error) {
	accepted, err := acceptedAs(now, expected, true)
	if err != nil || checkEnd(token, time.Now()) != nil {
		return accepted, err
	}

	us, err := ps.ourselves()
	if err != nil {
		return accepted, err
	}

	var refused *peering.RefusedError

	// The secret is shown before anything is committed here, unlike at a first acceptance: the peer alone knows whether
	// it was used, and a repetition must change nothing. If the commit below fails, the former agreement stays.
	described, used, err := ps.offer(ctx, inviting, token.Secret, us)
	switch {
	case errors.As(err, &refused):
		return accepted, directory.Refuse(directory.Conflict,
			"%s is a peer already, and refuses this invitation: %w; nothing was changed", now.Domain.Name(), err)
	case err != nil:
		return accepted, directory.Refuse(problem.Upstream,
			"%s is a peer already, but none of its nodes confirmed this invitation; accept it again once one "+
				"is reachable: %w", now.Domain.Name(), err)
	case used:
		return accepted, nil
	}

	// The peer took the secret for the first time: it has ended the former agreement, and this is another one.
	accepted.Already = false

	return accepted, ps.agreements.Renew(ctx, inviting, described)
}

// otherAuthority refuses a token of a peer with other authorities than the held ones: an invitation doesn't replace a
// bundle that an operator has compared.
func otherAuthority(peer directory.Peering, held, invited []string) error {
	return directory.Refuse(directory.Conflict,
		"%s is a peer already (%s) by another authority: its fingerprint is %s here, and %s in the token; "+
			"nothing was changed",
		peer.Domain.Name(), peer.State, strings.Join(held, " "), strings.Join(invited, " ")).At("/token")
}

// checkEnd refuses a token that has ended.
func checkEnd(token *apioperator.Token, now time.Time) error {
	if now.Unix() < token.Until {
		return nil
	}

	return directory.Refuse(directory.BadRequest, "the invitation ended at %s; ask for another",
		time.Unix(token.Until, 0).UTC().Format(time.RFC3339)).At("/token")
}

// acceptedAs returns the answer about a domain, unless its bundle has other fingerprints than
// the expected ones. None are expected if the list is empty.
func acceptedAs(with directory.Peering, expected []string, already bool) (wire.Accepted, error) {
	found := fingerprintsOf(with)

	expected = slices.Sorted(slices.Values(expected))
	if len(expected) > 0 && !slices.Equal(found, slices.Compact(expected)) {
		return wire.Accepted{}, directory.Refuse(directory.Conflict,
			"the bundle of %s has the fingerprints %q, not the expected ones; nothing was changed",
			with.Domain.Name(), found).At("/fingerprints")
	}

	return wire.Accepted{Domain: with.Domain.Name(), Fingerprints: found, Already: already}, nil
}

// invitingDomain is the domain that made a token, by the bundle whose hash the token has.
func (ps *peers) invitingDomain(ctx context.Context, token *apioperator.Token) (directory.Peering, error) {
	bundle, err := ps.invitedBundle(ctx, token)
	if err != nil {
		return directory.Peering{}, directory.Refuse(problem.Upstream,
			"the bundle of %s can't be fetched from the token's addresses, so nothing was changed: %w",
			token.Domain, err)
	}

	inviting, err := token.Peering(ps.cfg.TrustDomain, bundle)
	if err != nil {
		return inviting, err
	}

	if _, err := trust.ParseBundle(inviting.Domain, inviting.Bundle); err != nil {
		return inviting, directory.Refuse(directory.BadRequest, "the bundle of the token's domain is not usable: %w",
			err).At("/token")
	}

	return inviting, nil
}

// invitedBundle fetches the bundle of a token's domain from one of the token's addresses. All are
// asked at once, because a node that is down may not answer at all.
func (ps *peers) invitedBundle(ctx context.Context, token *apioperator.Token) ([]byte, error) {
	// Deferred calls run in reverse: the other requests are cancelled before their ends are awaited.
	var all sync.WaitGroup
	defer all.Wait()

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	type answer struct {
		bundle []byte
		err    error
	}

	// Each answer has room, so no goroutine blocks once one has succeeded.
	answers := make(chan answer, len(token.Addresses))

	for _, address := range token.Addresses {
		all.Go(func() {
			source := address + "/bundles/" + url.PathEscape(token.Domain)
			bundle, err := trust.FetchByHash(ctx, source, token.BundleHash, ps.net.fetch)
			answers <- answer{bundle, err}
		})
	}

	var failed error

	for range token.Addresses {
		answer := <-answers

		switch {
		case answer.err == nil:
			return answer.bundle, nil
		case failed == nil:
			failed = answer.err
		default:
			failed = fmt.Errorf("%w; %w", failed, answer.err)
		}
	}

	return nil, failed
}

// offer presents the secret to the inviting domain's nodes until one accepts it. It returns the inviting domain with
// the addresses that it answers, and whether the secret was used before. It trusts the token's bundle. It presents no
// certificate, because that domain doesn't know this one's authorities yet.
func (ps *peers) offer(ctx context.Context, inviting directory.Peering, secret string,
	us directory.Peering) (described directory.Peering, used bool, err error) {
	client, done, err := stranger(ps.net, inviting, nil)
	if err != nil {
		return inviting, false, err
	}
	defer done()

	said, err := firstAnswer(ctx, inviting.Addresses, func(ctx context.Context,
		address string) (wire.Redemption, error) {
		return apiclient.NewDirect(address, client).Redeem(ctx, secret, apioperator.WirePeering(us))
	})

	var refused *apiclient.Error

	switch {
	case err == nil:
		return ps.described(inviting, said.Peering), said.Used, nil
	case !errors.As(err, &refused):
		return inviting, false, err
	case refused.Status < http.StatusInternalServerError:
		// The node has decided. A status from 500 on is a state of the node: the peering stays pending, and can be
		// accepted again.
		return inviting, false, &peering.RefusedError{Err: theirs(refused)}
	}

	return inviting, false, theirs(refused)
}

// firstAnswer asks one address after the other, the next one when one has failed or has been silent for
// offerPause, and returns the first answer. Without any it returns a refusal if there is one, else why an
// address can't be reached. A node that refuses may only be behind the one that invited.
func firstAnswer(ctx context.Context, addresses []string,
	ask func(ctx context.Context, address string) (wire.Redemption, error)) (wire.Redemption, error) {
	type answer struct {
		said wire.Redemption
		err  error
	}

	var (
		all     sync.WaitGroup
		failed  error
		refused *apiclient.Error
	)
	defer all.Wait()

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	answers := make(chan answer, len(addresses))
	next := time.NewTimer(0)

	defer next.Stop()

	for asked, answered := 0, 0; answered < len(addresses); {
		select {
		case <-next.C:
			address := addresses[asked]
			if asked++; asked < len(addresses) {
				next.Reset(offerPause)
			}

			all.Go(func() {
				timed, cancel := context.WithTimeout(ctx, offerTime)
				defer cancel()

				said, err := ask(timed, address)
				answers <- answer{said, err}
			})
		case got := <-answers:
			if got.err == nil {
				return got.said, nil
			}

			// A refusal explains more than an address that can't be reached. Of several, the first one is kept.
			if failed == nil || !errors.As(failed, &refused) {
				failed = got.err
			}

			// The next address need not wait for offerPause after a failure.
			if answered++; asked < len(addresses) {
				next.Reset(0)
			}
		}
	}

	return wire.Redemption{}, failed
}

// theirs returns the error for an answer of another domain's node. It quotes the text,
// because the other node chose its bytes and an operator reads them.
func theirs(e *apiclient.Error) error {
	return fmt.Errorf("it answers %d, %.200q", e.Status, e.Error())
}

// described is the inviting domain with the addresses and the bundle endpoint that its node
// answered, as far as they are usable. The bundle stays that of the token.
func (ps *peers) described(inviting directory.Peering, said wire.Peering) directory.Peering {
	// The answer can't replace the domain and the bundle that the operator has compared.
	said.Domain = inviting.Domain.Name()
	said.State = string(directory.PeeringActive)
	said.Bundle = inviting.Bundle

	answered, err := apioperator.ParsePeering(&said, ps.cfg.TrustDomain)
	if err != nil {
		return inviting // of an earlier release, or of one whose settings an operator must mend
	}

	inviting.Addresses = answered.Addresses
	inviting.Gossip = answered.Gossip

	// An operator alone sets an endpoint that the token's bundle does not authenticate.
	if answered.Endpoint.Profile != directory.ProfileWeb {
		inviting.Endpoint = answered.Endpoint
	}

	return inviting
}

// Redeem implements operator.Peers.
func (ps *peers) Redeem(ctx context.Context, secret string, offered directory.Peering) (own directory.Peering,
	used bool, err error) {
	if _, err := trust.ParseBundle(offered.Domain, offered.Bundle); err != nil {
		return own, false, directory.Refuse(directory.BadRequest, "the bundle of %s is not usable: %w",
			offered.Domain.Name(), err).At("/bundle")
	}

	own, err = ps.ourselves()
	if err != nil {
		return own, false, err
	}

	// A node that is behind would take a repetition for the first use.
	if err := ps.store.Linearize(ctx); err != nil {
		return own, false, err
	}

	before, _ := ps.agreements.With(offered.Domain)

	// With an active peer, a redemption succeeds only by the secret and the bundle with which it became active.
	return own, before.State == directory.PeeringActive, ps.store.Redeem(ctx, secret, offered)
}
