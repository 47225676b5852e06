package node

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	apioperator "github.com/roster-mesh/roster/api/operator"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/operatorproof"
	"github.com/roster-mesh/roster/trust"
)

// farewellLife is how long the proof of a peer's operator is good for its farewell: its nodes say it for ten
// minutes.
const farewellLife = 15 * time.Minute

// judgeFarewell checks the request of a peer's operator that ends the peering with own. A node of the peer brings it,
// and the stolen key of one node must not end a peering. The peer decides which of its identities are operators; its
// nodes never are. Whether the peer's domain has followed the request, only its nodes can say (federation.Mesh.GoesOn).
func judgeFarewell(peer directory.Peering, own spiffeid.TrustDomain, request *directory.OperatorRequest,
	at time.Time) error {
	name := peer.Domain.Name()
	if request == nil || request.Proof == "" {
		return directory.Refuse(directory.Forbidden,
			"a farewell needs the proof of an operator of %s; the peering continues", name)
	}

	proof, err := operatorproof.Parse(request.Proof)
	if err == nil {
		err = proof.VerifySignature()
	}

	if err == nil {
		// It is used for longer than it was good for its own directory.
		err = proof.Covers(operatorproof.Request{
			Domain: name, Method: request.Method, URL: request.Target, Body: sha256.Sum256(request.Body),
		}, proof.Expires.Add(-time.Second))
	}

	// The second bound refuses a proof from the future, which would be good for longer than farewellLife.
	if err == nil && (at.After(proof.Expires.Add(farewellLife)) || proof.Expires.After(at.Add(farewellLife))) {
		err = fmt.Errorf("it ended at %s", proof.Expires.UTC().Format(time.RFC3339))
	}

	var id spiffeid.ID

	if err == nil {
		// Only the authorities of the peering that ends count: the node may have other bundles of other domains.
		bundles := trust.NewBundles()
		if err = bundles.Set(peer.Domain, peer.Bundle); err == nil {
			id, err = trust.NewClientVerifier(bundles).Verify(proof.Chain, at)
		}
	}

	switch {
	case err != nil:
		return directory.Refuse(directory.Forbidden,
			"the proof of the farewell of %s: %w; the peering continues", name, err)
	case id.TrustDomain() != peer.Domain || strings.HasPrefix(id.Path(), reservedPath):
		return directory.Refuse(directory.Forbidden, "%s is no operator of %s; the peering continues", id, name)
	case !apioperator.OrdersFarewell(own, request):
		return directory.Refuse(directory.Forbidden,
			"the operator of %s has not asked to end the peering with %s; the peering continues", name, own.Name())
	}

	return nil
}

// endedByPeer ends the peering with a domain whose node says a farewell. The request of the peer's operator is
// checked here before its nodes are asked, and by every member as it is applied.
func (n *Node) endedByPeer(ctx context.Context, peer spiffeid.TrustDomain, request *directory.OperatorRequest) error {
	peering, known := n.agreements.With(peer)
	if !known {
		return n.agreements.EndedByPeer(ctx, peer, request)
	}

	if err := judgeFarewell(peering, n.cfg.TrustDomain, request, n.view.Clock().Now()); err != nil {
		return err
	}

	if n.mesh.GoesOn(ctx, peer) {
		return directory.Refuse(directory.Unavailable, "nodes of %s still take %s for their peer; the peering goes "+
			"on; retry once they have applied its end", peer.Name(), n.cfg.TrustDomain.Name())
	}

	return n.agreements.EndedByPeer(ctx, peer, request)
}

// removals are the requests by which this domain's operators have ended peerings of late. They go with the
// farewells.
type removals struct {
	mu sync.Mutex
	by map[spiffeid.TrustDomain]*directory.OperatorRequest
}

// note keeps the request of a command that ends a peering.
func (r *removals) note(command *directory.OperatorCommand) {
	change := command.Peering
	if change == nil || command.Request == nil || change.Next.State != directory.PeeringTerminated {
		return
	}

	r.mu.Lock()
	defer r.mu.Unlock()

	if r.by == nil {
		r.by = map[spiffeid.TrustDomain]*directory.OperatorRequest{}
	}

	r.by[change.Next.Domain] = command.Request
}

// of returns the request that has ended the peering with a domain; nil without one.
func (r *removals) of(td spiffeid.TrustDomain) *directory.OperatorRequest {
	r.mu.Lock()
	defer r.mu.Unlock()

	return r.by[td]
}
