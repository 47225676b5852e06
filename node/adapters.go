package node

import (
	"context"
	"encoding/json"
	"time"

	apioperator "github.com/roster-mesh/roster/api/operator"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/federation"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/trust"
)

// await waits until this node has reached a position of a domain's history: its
// own by consensus, another's by what it receives.
func (n *Node) await(ctx context.Context, td spiffeid.TrustDomain, at directory.Position) error {
	if td == n.cfg.TrustDomain {
		return n.store.Await(ctx, at)
	}
	return n.mesh.Await(ctx, td, at)
}

// records hands out evidence: what the domain itself signs, and what other
// domains signed.
type records struct{ n *Node }

// Record implements ad.Records. A registration of the own domain that no stream
// holds has a record too, for those who may read it at home.
func (r records) Record(ctx context.Context, origin spiffeid.TrustDomain, rid directory.RID) (string, error) {
	record, err := r.n.mesh.Record(ctx, origin, rid)
	if origin != r.n.cfg.TrustDomain || directory.ProblemOf(err) != directory.NotFound {
		return record, err
	}
	payload, disclosures, ok := r.n.store.Own(rid)
	if !ok {
		return "", err
	}
	jws, err := r.n.keyring.Sign(signed.TypeRecord, payload)
	if err != nil {
		return "", directory.Refuse(directory.Unavailable, "this node can't sign at the moment: %w", err)
	}
	return signed.Record{JWS: jws, Disclosures: disclosures}.String(), nil
}

// Proof implements ad.Records: it puts a record, the page that lists it, the
// key document and the origin's bundle into one proof file (trust.md, "What an
// auditor gets").
func (r records) Proof(ctx context.Context, origin spiffeid.TrustDomain, rid directory.RID) ([]byte, error) {
	record, page, keys, err := r.n.mesh.Proof(ctx, origin, rid)
	if _, _, own := r.n.store.Own(rid); own && directory.ProblemOf(err) == directory.NotFound {
		return nil, directory.Refuse(directory.NotFound, "registration %s is not announced beyond its domain, so no page proves it; it has a record", rid)
	}
	if err != nil {
		return nil, err
	}
	bundle, err := r.n.bundles.JWKS(origin)
	if err != nil {
		return nil, err
	}
	return json.Marshal(trust.Proof{Record: record, Page: page, Keys: keys, Bundle: bundle})
}

// operator shows and takes what an operator's routes do.
type operator struct{ n *Node }

// Raft implements api.Operator.
func (o operator) Raft() wire.RaftStatus {
	var s wire.RaftStatus
	if leader, ok := o.n.store.Leader(); ok {
		s.Leader = leader.String()
	}
	for _, p := range o.n.store.Contacts() {
		s.Peers = append(s.Peers, wire.RaftPeer{ID: p.ID.String(), Address: p.Address, API: p.API, Voter: p.Voter, LastContact: p.LastContact, Unheard: p.Unheard, Reads: readsOf(p.Reads)})
	}
	s.Quotas = o.n.quotas()
	s.Written = writtenOf(o.n.store.Written())
	ids, until := o.n.store.Admitted()
	for i, id := range ids {
		s.Admitted = append(s.Admitted, wire.Admission{ID: id.String(), Until: until[i].UTC()})
	}
	return s
}

// Members implements api.Operator.
func (o operator) Members() []wire.Member {
	ms := []wire.Member{}
	for _, m := range o.n.mesh.Members() {
		ms = append(ms, wire.Member{ID: m.ID.String(), Domain: m.ID.TrustDomain().Name(), Address: m.Address, State: m.State})
	}
	return ms
}

// Peers implements api.Operator: what the domain has agreed with each peer, and
// what this node has seen of it.
func (o operator) Peers() []wire.Peer {
	seen := map[spiffeid.TrustDomain]federation.PeerStatus{}
	for _, p := range o.n.mesh.Peers() {
		seen[p.Domain] = p
	}
	ps := []wire.Peer{}
	for _, p := range o.n.store.Peerings() {
		out := wire.Peer{Domain: p.Domain.Name(), State: string(p.State), Agreed: string(p.State), Addresses: p.Addresses, Gossip: p.Gossip,
			Exported: p.State == directory.PeeringActive && p.Mesh, Fingerprint: fingerprintOf(p), Export: apioperator.WireRules(p.Export), Import: apioperator.WireRules(p.Import)}
		for _, structure := range o.n.store.HeldBack(p.Domain) {
			out.HoldsBack = append(out.HoldsBack, string(structure))
		}
		switch {
		case p.State == directory.PeeringPending:
			out.Until, out.LastError = awaited(p, time.Now())
		case p.State == directory.PeeringTerminated && p.ByPeer:
			out.EndedBy = "peer"
		case p.State == directory.PeeringTerminated:
			out.EndedBy = "us"
		}
		if out.BundleEndpoint = p.Endpoint.URL; out.BundleEndpoint != "" {
			f := o.n.keeper.of(p.Domain)
			out.BundleChecked = f.good
			if f.err != nil {
				out.BundleError = f.err.Error()
			}
		}
		if s, ok := seen[p.Domain]; ok {
			if p.State == directory.PeeringActive {
				out.State = s.State
			}
			out.LagRevisions, out.LagSeconds, out.HeadAge, out.Unlisted = s.LagRevisions, s.LagSeconds, s.HeadAge.Seconds(), s.Unlisted
			out.Watermark = directory.Position{Epoch: s.Position.Epoch, Revision: s.Watermark}.String()
			out.Tip = directory.Position{Epoch: s.Position.Epoch, Revision: s.Tip}.String()
			out.Hidden, out.Records, out.Bytes, out.OverQuota, out.BytesIn, out.BytesOut = s.Hidden, s.Records, s.Bytes, s.OverQuota, s.BytesIn, s.BytesOut
			out.RecordsLimit, out.BytesLimit = s.RecordsLimit, s.BytesLimit
			out.GossipIn, out.GossipOut, out.Missing = s.GossipIn, s.GossipOut, s.Pending
			out.LastHeard = s.LastHeard
			out.Unsupported, out.Unopened = s.Unsupported, s.Unopened
			if out.LastError == "" {
				out.LastError = s.LastError
			}
			out.Received, out.Refused = byCode(s.Received), byCode(s.Refused)
		}
		for _, f := range o.n.mesh.Evidence(p.Domain) {
			out.Evidence = append(out.Evidence, wire.PeerEvidence{ID: f.ID, Found: f.Found.UTC()})
		}
		ps = append(ps, out)
	}
	return ps
}

func byCode(counts map[protocol.Code]uint64) map[string]uint64 {
	out := make(map[string]uint64, len(counts))
	for code, n := range counts {
		out[string(code)] = n
	}
	return out
}

// awaited returns until when a pending peering may be accepted, where it was this domain
// that invited, and what keeps it pending where nobody sees to that.
func awaited(p directory.Peering, now time.Time) (until time.Time, why string) {
	if p.Until == 0 {
		return until, "no node of it has said that it took the invitation: accept the token again"
	}
	until = time.Unix(p.Until, 0).UTC()
	if !now.Before(until) {
		why = "the invitation ended before it was accepted: make another, or remove it"
	}
	return until, why
}

// Evidence implements api.Operator.
func (o operator) Evidence(domain spiffeid.TrustDomain, id string) ([]byte, error) {
	return o.n.mesh.EvidenceFile(domain, id)
}

// Keys implements api.Operator.
func (o operator) Keys() wire.KeysStatus {
	s := wire.KeysStatus{Keys: []wire.SigningKey{}}
	doc := o.n.store.KeyDocument()
	if doc == nil {
		return s
	}
	s.Epoch, s.Seq, s.Expires, s.Revoked = doc.Epoch, doc.Seq, time.Unix(doc.Expires, 0).UTC(), doc.Revoked
	for _, k := range doc.Keys {
		id := k.KeyID()
		s.Keys = append(s.Keys, wire.SigningKey{ID: id, Node: k.Node.String(), Rotated: !doc.SignsBy(k.Node, id)})
	}
	return s
}

// RotateKey implements api.Operator.
func (o operator) RotateKey(ctx context.Context) error { return o.n.rotateKey(ctx) }

// RevokeKey implements api.Operator.
func (o operator) RevokeKey(ctx context.Context, id string) error { return o.n.store.Revoke(ctx, id) }

// SetPeering implements api.Operator. The bundle must be usable, so that a
// peering that cannot work is refused here and not found out later.
func (o operator) SetPeering(ctx context.Context, p directory.Peering) error {
	if _, err := trust.ParseBundle(p.Domain, p.Bundle); err != nil {
		return directory.Refuse(directory.BadRequest, "the bundle of %s is not usable: %w", p.Domain.Name(), err).At("/bundle")
	}
	if old, ok := o.n.agreed(p.Domain); ok && old.State != directory.PeeringTerminated {
		p.Export, p.Import = old.Export, old.Import // set by themselves
	}
	return o.n.store.SetPeering(ctx, p)
}
