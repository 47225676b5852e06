package node

import (
	"context"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	apioperator "github.com/roster-mesh/roster/api/operator"
	"github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/consensus"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/index"
	"github.com/roster-mesh/roster/federation"
	"github.com/roster-mesh/roster/federation/peering"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/node/metrics"
	"github.com/roster-mesh/roster/trust"
	"github.com/roster-mesh/roster/trust/policy"
)

// policyFile is the name of the domain's policy in errors.
const policyFile = "policy.cedar"

// operator implements the routes that show and change the domain's state.
type operator struct {
	selfReport

	store     *consensus.Store
	view      *index.View
	mesh      *federation.Mesh
	policy    *policy.Policy
	endpoints *peering.BundleKeeper
	// agreements are those with peers.
	agreements *peering.Agreements
	rotate     func(context.Context) error // this node's signing key
}

// Raft implements the operator's view of the Raft members.
func (o operator) Raft() wire.RaftStatus {
	var status wire.RaftStatus
	if leader, ok := o.store.Leader(); ok {
		status.Leader = leader.String()
	}

	for _, peer := range o.store.Contacts() {
		status.Peers = append(status.Peers, wire.RaftPeer{
			ID:          peer.ID.String(),
			Address:     peer.Address,
			API:         peer.API,
			Voter:       peer.Voter,
			LastContact: peer.LastContact,
			State:       string(peer.State),
			Duplicate:   peer.Duplicate,
			Reads:       readsOf(peer.Reads),
		})
	}

	status.Quotas = metrics.QuotaStatus(o.store)
	status.Written = writtenOf(o.store.Written())

	ids, until := o.store.Admitted()
	for i, id := range ids {
		status.Admitted = append(status.Admitted, wire.Admission{ID: id.String(), Until: until[i].UTC()})
	}

	patterns, most := o.store.StandingAdmissions()
	for i, pattern := range patterns {
		status.Admitted = append(status.Admitted, wire.Admission{ID: pattern, Max: most[i]})
	}

	return status
}

// Members returns the members of the gossip pool.
func (o operator) Members() []wire.Member {
	members := []wire.Member{}
	for _, status := range o.mesh.Members() {
		members = append(members, wire.Member{
			ID:      status.ID.String(),
			Domain:  status.ID.TrustDomain().Name(),
			Address: status.Address,
			State:   status.State,
		})
	}

	return members
}

// Peers returns the domain's agreement with each peer, and the state of this node's
// import from it.
func (o operator) Peers() []wire.Peer {
	received := map[spiffeid.TrustDomain]federation.PeerStatus{}
	for _, p := range o.mesh.Peers() {
		received[p.Domain] = p
	}

	peers := []wire.Peer{}

	for _, peering := range o.agreements.Shown() {
		peer := o.agreement(peering)
		if status, ok := received[peering.Domain]; ok {
			addReceived(&peer, peering, status)
		}

		for _, f := range o.mesh.Evidence(peering.Domain) {
			peer.Evidence = append(peer.Evidence, wire.PeerEvidence{ID: f.ID, Found: f.Found.UTC()})
		}

		peers = append(peers, peer)
	}

	return peers
}

// agreement shows a peering, and the state of the peer's bundle endpoint.
func (o operator) agreement(peering directory.Peering) wire.Peer {
	peer := wire.Peer{
		Domain:       peering.Domain.Name(),
		State:        string(peering.State),
		Agreed:       string(peering.State),
		Addresses:    peering.Addresses,
		Gossip:       peering.Gossip,
		Exported:     peering.State == directory.PeeringActive && peering.Mesh,
		Fingerprints: fingerprintsOf(peering),
		Export:       apioperator.WireRules(peering.Export),
		Import:       apioperator.WireRules(peering.Import),
	}

	for _, structure := range o.store.HeldBack(peering.Domain) {
		peer.HoldsBack = append(peer.HoldsBack, string(structure))
	}

	switch {
	case peering.State == directory.PeeringPending:
		peer.Until, peer.LastError = awaited(peering, time.Now())
	case peering.State == directory.PeeringTerminated && peering.ByPeer:
		peer.EndedBy = "peer"
	case peering.State == directory.PeeringTerminated:
		peer.EndedBy = "us"
	}

	peer.BundleEndpoint = peering.Endpoint.URL
	if peer.BundleEndpoint != "" {
		var err error
		if peer.BundleChecked, err = o.endpoints.Endpoint(peering.Domain); err != nil {
			peer.BundleError = err.Error()
		}
	}

	return peer
}

// addReceived adds the state of this node's import from a peer.
func addReceived(peer *wire.Peer, p directory.Peering, status federation.PeerStatus) {
	// The state of the import refines an active agreement alone. Every other state is the agreement's.
	if p.State == directory.PeeringActive {
		peer.State = status.State
	}

	peer.Theirs = theirView(status)

	epoch := status.Position.Epoch
	peer.Watermark = directory.Position{Epoch: epoch, Revision: status.Watermark}.String()
	peer.Tip = directory.Position{Epoch: epoch, Revision: status.Tip}.String()
	peer.LagRevisions = status.LagRevisions
	peer.LagSeconds = status.LagSeconds
	peer.HeadAge = status.HeadAge.Seconds()
	peer.LedgerAge = status.LedgerAge.Seconds()
	peer.LedgerError = status.LedgerError
	peer.LedgerDiffers = status.LedgerDiffers
	peer.LastHeard = status.LastHeard
	peer.Up = status.Up
	peer.LastAnswer = status.LastAnswer.UTC()
	peer.UnreachableSince = status.SilentSince.UTC()
	peer.StatedAddresses = status.Stated

	peer.Unconfirmed = status.Unconfirmed

	for _, node := range status.Doubtful {
		peer.ContradictedNodes = append(peer.ContradictedNodes, wire.ContradictedNode{
			Node: node.Node.String(), Key: node.Key, Verdict: node.Verdict(), Reason: node.What,
			Since: node.Since.UTC(), RefusedSince: node.Distrusted.UTC(),
		})
	}

	peer.LastPage = status.LastPage.UTC()

	if !status.LastPage.IsZero() {
		age := status.PageAge.Seconds()
		peer.PageAge = &age
	}

	peer.Records = status.Records
	peer.RecordsLimit = status.RecordsLimit
	peer.Bytes = status.Bytes
	peer.BytesLimit = status.BytesLimit
	peer.OverQuota = status.OverQuota
	peer.Hidden = status.Hidden
	peer.Shed = status.Shed
	peer.Missing = status.Pending
	peer.NotExported = status.NotExported
	peer.Unsupported = status.Unsupported
	peer.Unopened = status.Unopened

	peer.BytesIn = status.BytesIn
	peer.BytesOut = status.BytesOut
	peer.GossipIn = status.GossipIn
	peer.GossipOut = status.GossipOut
	peer.Received = byCode(status.Received)
	peer.Refused = byCode(status.Refused)

	// The end of a peering closes its connections, which is no failure.
	if peer.LastError == "" && p.State != directory.PeeringTerminated {
		peer.LastError = status.LastError
	}
}

// theirView returns how a peer sees this domain; nil if it has not said so.
func theirView(status federation.PeerStatus) *wire.PeerView {
	theirs := status.Theirs
	if theirs.At.IsZero() {
		return nil
	}

	view := &wire.PeerView{
		State:       theirs.State,
		Refuses:     status.Refusal != "",
		Node:        theirs.Node,
		Heard:       theirs.At.UTC(),
		Page:        theirs.Page.UTC(),
		RefusedCode: string(theirs.Code),
		RefusedAt:   theirs.Refused.UTC(),
		Evidence:    theirs.Evidence,
		Error:       theirs.Error,
	}

	if theirs.Position != (directory.Position{}) {
		view.Position = theirs.Position.String()
	}

	return view
}

func byCode(counts map[protocol.Code]uint64) map[string]uint64 {
	out := make(map[string]uint64, len(counts))
	for code, n := range counts {
		out[string(code)] = n
	}

	return out
}

// awaited returns the end of an own invitation to a pending peer, and why the peering
// stays pending if an operator must act.
func awaited(peering directory.Peering, now time.Time) (until time.Time, why string) {
	if peering.Until == 0 {
		return until, "no node of the peer has confirmed the invitation: accept the token again"
	}

	until = time.Unix(peering.Until, 0).UTC()
	if !now.Before(until) {
		why = "the invitation ended before it was accepted: make another, or remove it"
	}

	return until, why
}

// Evidence returns an evidence file.
func (o operator) Evidence(domain spiffeid.TrustDomain, id string) ([]byte, error) {
	return o.mesh.EvidenceFile(domain, id)
}

// Keys returns the domain's key document.
func (o operator) Keys() wire.KeysStatus {
	status := wire.KeysStatus{Keys: []wire.SigningKey{}}

	doc := o.store.KeyDocument()
	if doc == nil {
		return status
	}

	status.Epoch = doc.Epoch
	status.Seq = doc.Seq
	status.Expires = time.Unix(doc.Expires, 0).UTC()
	status.Revoked = doc.Revoked

	for _, k := range doc.Keys {
		id := k.KeyID()
		status.Keys = append(status.Keys, wire.SigningKey{
			ID:      id,
			Node:    k.Node.String(),
			Rotated: !doc.SignsBy(k.Node, id),
		})
	}

	return status
}

// RotateKey replaces this node's signing key.
func (o operator) RotateKey(ctx context.Context) error {
	if err := o.store.Order(ctx, directory.ActionRotateKey, o.id.String()); err != nil {
		return err
	}

	return o.rotate(ctx)
}

// RevokeKey revokes a signing key of the domain.
func (o operator) RevokeKey(ctx context.Context, id string) error { return o.store.Revoke(ctx, id) }

// EraseHistory erases the contents of a registration that has ended.
func (o operator) EraseHistory(ctx context.Context, rid directory.RID) error {
	return o.store.Erase(ctx, rid)
}

// SetPeering sets a peering by hand. A bundle that can't be used is refused here, before
// the peering fails by it.
func (o operator) SetPeering(ctx context.Context, peering directory.Peering) error {
	if _, err := trust.ParseBundle(peering.Domain, peering.Bundle); err != nil {
		return directory.Refuse(directory.BadRequest, "the bundle of %s is not usable: %w", peering.Domain.Name(), err).
			At("/bundle")
	}

	return o.agreements.Put(ctx, peering)
}

// Policy returns the policy in force.
func (o operator) Policy() wire.PolicyText {
	text, version := o.policy.InForce()
	return wire.PolicyText{Policy: string(text), Version: version}
}

// nextPolicy returns the policy that a text would put in force.
func (o operator) nextPolicy(text string) (*policy.Policy, error) {
	if err := checkPolicy([]byte(text)); err != nil {
		return nil, err
	}

	return o.policy.With(policyFile, []byte(text))
}

// SetPolicy replaces the policy, unless its author could not change it again by it.
func (o operator) SetPolicy(
	ctx context.Context, by directory.Identity, text string, replaces []uint64,
) (directory.Outcome, error) {
	// An empty text stands for the built-in policy, which always permits its operators.
	if text != "" {
		next, err := o.nextPolicy(text)
		if err != nil {
			return directory.Outcome{}, err
		}

		if !next.Operate(by, "policy.write").Allow {
			return directory.Outcome{}, directory.Refuse(directory.Conflict,
				"by this policy, %s could not change it again; nothing was changed: "+
					"permit operate to who does policy.write", by)
		}
	}

	return o.store.SetPolicy(ctx, []byte(text), replaces)
}
