package state

import (
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/strictjson"
)

// TracedVersion is the version of the log from which on commands carry their origin, and
// operators' commands are leaves of the ledger. In a domain that writes an earlier one, some
// member could not apply them.
const TracedVersion = 2

// An Origin is by whom a command was ordered, and the member that brought it to the leader:
// of commands that only an operator orders, or a node by itself.
type Origin struct {
	From spiffeid.ID `cbor:"1,keyasint"`
	// Operator is nil for a node's own command.
	Operator *OperatorRequest `cbor:"2,keyasint,omitempty"`
}

// An OperatorRequest is an operator's request with its proof, as a member received it. Its
// members are those of directory.OperatorRequest.
type OperatorRequest struct {
	By         directory.Identity `cbor:"1,keyasint"`
	Method     string             `cbor:"2,keyasint"`
	Target     string             `cbor:"3,keyasint"`
	Body       []byte             `cbor:"4,keyasint,omitempty"`
	BodyHash   directory.Hash     `cbor:"5,keyasint"`
	Proof      string             `cbor:"6,keyasint,omitempty"`
	ProofID    directory.Hash     `cbor:"7,keyasint,omitzero"`
	ProofUntil int64              `cbor:"8,keyasint,omitempty"`
}

// OriginOf returns the origin of an operator's request that a member brought.
func OriginOf(from spiffeid.ID, r *directory.OperatorRequest) *Origin {
	origin := &Origin{From: from}
	if r != nil {
		origin.Operator = &OperatorRequest{
			By: r.By, Method: r.Method, Target: r.Target, Body: r.Body, BodyHash: r.BodyHash,
			Proof: r.Proof, ProofID: r.ProofID, ProofUntil: r.ProofUntil,
		}
	}

	return origin
}

// Request returns the operator's request; nil for a node's own command.
func (o *Origin) Request() *directory.OperatorRequest {
	if o == nil || o.Operator == nil {
		return nil
	}

	r := o.Operator

	return &directory.OperatorRequest{
		By: r.By, From: o.From, Method: r.Method, Target: r.Target, Body: r.Body, BodyHash: r.BodyHash,
		Proof: r.Proof, ProofID: r.ProofID, ProofUntil: r.ProofUntil,
	}
}

// proof returns the use of the operator's proof; nil without one.
func (o *Origin) proof() *Spend {
	if o == nil || o.Operator == nil || o.Operator.Proof == "" {
		return nil
	}

	return &Spend{Proof: o.Operator.ProofID, Until: o.Operator.ProofUntil}
}

// An Order is an operator's command whose effect is none of the log's: a change of the Raft
// configuration, or of one node, or of many registrations by commands of their own. It
// precedes the effect.
type Order struct {
	Action string `cbor:"1,keyasint"`
	Target string `cbor:"2,keyasint,omitempty"`
}

// Change returns what a command changes that only an operator orders, or a node by itself
// where an operator could; ok is false for all other commands.
func (c *Command) Change() (change directory.OperatorChange, ok bool) {
	switch {
	case c.Policy != nil:
		change.Action = directory.ActionPolicy
		change.Policy = &directory.PolicyChange{Text: c.Policy.Text, Replaces: c.Policy.Replaces}
	case c.Peer != nil:
		change = peeringChange(nil, c.Peer)
	case c.Amend != nil:
		was := directory.Peering(c.Amend.Was)
		change = peeringChange(&was, &c.Amend.Peer)
	case c.Revoke != nil:
		change.Action, change.Target = directory.ActionRevokeKey, c.Revoke.Key
	case c.Admit != nil:
		change = c.Admit.change()
	case c.Transfer != nil && c.Transfer.Any:
		change.Action, change.Target = directory.ActionTransfer, c.Transfer.RID.String()
		change.Owner = c.Transfer.Granted.Owner
	case c.Order != nil:
		change.Action, change.Target = c.Order.Action, c.Order.Target
	case c.Epoch != nil:
		change.Action = directory.ActionRestore
	case c.Redeem != nil:
		change.Action, change.Target, change.Node = directory.ActionRedeem, c.Redeem.Peer.Domain.Name(), true
	case c.Rebundle != nil:
		change.Action, change.Target, change.Node = directory.ActionBundle, c.Rebundle.Domain.Name(), true
	case c.Member != nil && c.Member.Gone:
		change.Action, change.Target, change.Node = directory.ActionForget, c.Member.ID.String(), true
	case c.Member != nil:
		change.Action, change.Target, change.Node = directory.ActionJoin, c.Member.ID.String(), true
	case c.Feature != nil:
		change.Action, change.Node = directory.ActionFeature, true
	default:
		return change, false
	}

	// An operator may order what a node may do by itself.
	if change.Peering != nil && change.Node && c.Origin.Request() != nil {
		change.Action, change.Node = directory.ActionPeering, false
	}

	return change, true
}

func (a *Admission) change() directory.OperatorChange {
	action := directory.ActionAdmit
	if a.Until == 0 && a.Max == 0 {
		action = directory.ActionWithdraw
	}

	target := a.ID.String()
	if a.Pattern != "" {
		target = a.Pattern
	}

	return directory.OperatorChange{
		Action: action, Target: target,
		Admission: &directory.AdmissionChange{Standing: a.Pattern != "", Max: a.Max, Until: a.Until},
	}
}

// peeringChange returns the change of a peering. The word of the peer, evidence against it and
// its answer to an invitation entitle a node to change its state by itself, and nothing else of
// the peering.
func peeringChange(was *directory.Peering, peer *Peer) directory.OperatorChange {
	next := directory.Peering(*peer)
	change := directory.OperatorChange{
		Action: directory.ActionPeering, Target: next.Domain.Name(),
		Peering: &directory.PeeringChange{Was: was, Next: next},
	}

	if was == nil {
		return change
	}

	if action := nodeAction(*was, next); action != "" {
		change.Action, change.Node = action, true
	}

	return change
}

// nodeAction returns the action by which a node turns a peering into another by itself; empty
// if only an operator does that.
func nodeAction(was, next directory.Peering) string {
	live := was.State == directory.PeeringActive || was.State == directory.PeeringFrozen

	stated := was
	stated.State = next.State

	answered := stated // what the other domain says of itself when it takes the invitation
	answered.Addresses, answered.Gossip, answered.Endpoint = next.Addresses, next.Gossip, next.Endpoint

	switch {
	case live && next.Equal(was.Ended(true)):
		return directory.ActionFarewell
	case was.State == directory.PeeringActive && next.State == directory.PeeringFrozen && next.Equal(stated):
		return directory.ActionFreeze
	case was.State != directory.PeeringPending || !was.Secret.IsZero():
		return "" // it was not this domain that accepted
	case next.State == directory.PeeringActive && next.Equal(answered),
		next.State == directory.PeeringTerminated && next.Equal(stated):
		return directory.ActionConfirm
	}

	return ""
}

// trace records an applied command for the members' audit logs and as a leaf of the ledger, if
// the domain traces commands by now. A node's own command that changed nothing leaves no trace,
// and one that is another leaf needs none of its own.
func (s *State) trace(command *Command, before mark) {
	change, ok := command.Change()
	if !ok || s.members.written.Log < TracedVersion {
		return
	}

	origin := command.Origin
	if command.Epoch != nil {
		origin = s.history.restoredBy
		s.history.restoredBy = nil
		s.spent.spend(origin.proof())
	}

	switch request := origin.Request(); {
	case request == nil && change.Node && s.history.revision == before.revision:
		return
	case command.Epoch != nil && before.epoch == 0: // a new domain
		return
	}

	applied := directory.OperatorCommand{
		OperatorChange: change, Request: origin.Request(), At: time.UnixMilli(s.history.now),
		Policy: before.policy.Text, PolicyVersion: before.policy.Revision,
		Number: s.history.commands + 1, Position: s.history.Position(),
	}
	if origin != nil {
		applied.From = origin.From
	}

	s.history.commands++
	s.traced = append(s.traced, applied)

	if change.Node && s.history.ledger.size > before.leaves {
		return
	}

	leaf := commandLeaf{domain: s.history.domain, OperatorCommand: &applied}
	s.history.ledger.append(leafCommand, leaf.payload())
}

// A mark is the part of the state before a command that its trace needs.
type mark struct {
	epoch, revision, leaves uint64
	policy                  policyText
}

func (s *State) mark() mark {
	return mark{s.history.epoch, s.history.revision, s.history.ledger.size, s.policy.current}
}

// A commandLeaf is the contents of a leaf of an operator's command.
type commandLeaf struct {
	domain spiffeid.TrustDomain
	*directory.OperatorCommand
}

// payload is {v, iss, epoch, rev, at, action, target, by, from, bh, proof}. Of a node's own
// command by is node, and bh and proof are absent.
func (leaf *commandLeaf) payload() []byte {
	data := strictjson.AppendUint([]byte{'{'}, "v", 1)
	data = strictjson.AppendText(data, "iss", leaf.domain.IDString())
	data = strictjson.AppendUint(data, "epoch", leaf.Position.Epoch)
	data = strictjson.AppendUint(data, "rev", leaf.Position.Revision)
	data = strictjson.AppendUint(data, "at", uint64(leaf.At.Unix()))
	data = strictjson.AppendText(data, "action", leaf.Action)
	data = strictjson.AppendText(data, "target", leaf.Target)

	from := ""
	if !leaf.From.IsZero() {
		from = leaf.From.String()
	}

	if leaf.Request == nil {
		by := "" // no operator's request came with it
		if leaf.Node {
			by = directory.ByNode
		}

		data = strictjson.AppendText(data, "by", by)

		return append(strictjson.AppendText(data, "from", from), '}')
	}

	data = strictjson.AppendText(data, "by", leaf.Request.By.String())
	data = strictjson.AppendText(data, "from", from)

	data = strictjson.AppendText(data, "bh", leaf.Request.BodyHash.String())
	if leaf.Request.Proof != "" {
		data = strictjson.AppendText(data, "proof", directory.HashOf([]byte(leaf.Request.Proof)).String())
	}

	return append(data, '}')
}
