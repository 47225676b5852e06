package state

import (
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
)

// An Origin is the member that brought a command to the leader, and by whom it was ordered if only
// an operator orders it, or a node by itself.
type Origin struct {
	From spiffeid.ID `cbor:"1,keyasint"`
	// Operator is nil for a command that no operator ordered.
	Operator *OperatorRequest `cbor:"2,keyasint,omitempty"`
	// Mark is the mark by which the process of From knows its request; apply doesn't look at it.
	Mark []byte `cbor:"3,keyasint,omitempty"`
	// Judged is the time, in Unix milliseconds, at which the leader has judged an operator's command, and Policy
	// the version of the policy by which it has: every member judges it by the same.
	Judged int64  `cbor:"4,keyasint,omitempty"`
	Policy uint64 `cbor:"5,keyasint,omitempty"`
}

// JudgedFor is how long after it was judged an operator's command may come into the log, much longer than
// a write lasts, and RestoredFor how long after it was judged a restore may begin an epoch.
const (
	JudgedFor   = 2 * time.Minute
	RestoredFor = time.Hour
)

// JudgedAt returns the time at which a command of a committed time is judged: that of the leader if the
// command came within a time, otherwise the committed time, at which no old proof is in force.
func (o *Origin) JudgedAt(committed int64, within time.Duration) time.Time {
	at := time.UnixMilli(committed)
	if o == nil {
		return at
	}

	if judged := time.UnixMilli(o.Judged); at.Sub(judged).Abs() <= within {
		return judged
	}

	return at
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

// member returns the member that brought the command; zero if none did.
func (o *Origin) member() spiffeid.ID {
	if o == nil {
		return spiffeid.ID{}
	}

	return o.From
}

// Request returns the operator's request; nil for a node's own command.
func (o *Origin) Request() *directory.OperatorRequest {
	if o == nil || o.Operator == nil {
		return nil
	}

	request := o.Operator.request()
	request.From = o.From

	return request
}

func (r *OperatorRequest) request() *directory.OperatorRequest {
	if r == nil {
		return nil
	}

	return &directory.OperatorRequest{
		By: r.By, Method: r.Method, Target: r.Target, Body: r.Body, BodyHash: r.BodyHash,
		Proof: r.Proof, ProofID: r.ProofID, ProofUntil: r.ProofUntil,
	}
}

// proof returns the use of the operator's proof, until no command with it could be applied any more; nil
// without one.
func (o *Origin) proof() *Spend {
	if o == nil || o.Operator == nil || o.Operator.Proof == "" {
		return nil
	}

	return &Spend{Proof: o.Operator.ProofID, Until: o.Operator.ProofUntil + int64(JudgedFor/time.Second)}
}

// An Order is an operator's command whose effect is not in the log itself: a change of the Raft
// configuration, or of one node, or of many registrations by commands of their own. It
// precedes the effect.
type Order struct {
	Action string `cbor:"1,keyasint"`
	Target string `cbor:"2,keyasint,omitempty"`
}

// Change returns the change of a command that only an operator orders, or a node by itself
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
		change.Peering.Farewell = c.Amend.Farewell.request()
	case c.Revoke != nil:
		change.Action, change.Target = directory.ActionRevokeKey, c.Revoke.Key
	case c.Erase != nil:
		change.Action, change.Target = directory.ActionErase, c.Erase.RID.String()
	case c.Admit != nil:
		change = c.Admit.change()
	case c.Transfer != nil:
		change.Action, change.Target = directory.ActionTransfer, c.Transfer.RID.String()
		change.Owner, change.Agent = c.Transfer.Granted.Owner, c.Transfer.Agent
	case c.Order != nil:
		change.Action, change.Target = c.Order.Action, c.Order.Target
		change.Node = change.Action == directory.ActionMove
	case c.Epoch != nil:
		change.Action = directory.ActionRestore
	case c.Redeem != nil:
		change.Action, change.Target, change.Node = directory.ActionRedeem, c.Redeem.Peer.Domain.Name(), true
	case c.Rebundle != nil:
		change.Action, change.Target, change.Node = directory.ActionBundle, c.Rebundle.Domain.Name(), true
	case c.Pin != nil && c.Pin.Node.IsZero():
		change.Action, change.Node = directory.ActionPinBundle, true
	case c.Pin != nil:
		change.Action, change.Target, change.Node = directory.ActionPinAudit, c.Pin.Node.String(), true
	case c.Member != nil && c.Member.Gone:
		change.Action, change.Target, change.Node = directory.ActionForget, c.Member.ID.String(), true
	case c.Member != nil:
		change.Action, change.Target, change.Node = directory.ActionJoin, c.Member.ID.String(), true
	case c.Feature != nil:
		change.Action, change.Node = directory.ActionFeature, true
	default:
		return change, false
	}

	// An operator may also order this change, which a node may make by itself.
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

	// The other domain says this of itself when it takes the invitation.
	answered := stated
	answered.Addresses, answered.Gossip = next.Addresses, next.Gossip

	// An operator alone gives a peering a bundle endpoint that the peer's own bundle does not authenticate.
	if next.Endpoint.Profile != directory.ProfileWeb {
		answered.Endpoint = next.Endpoint
	}

	switch {
	case live && next.Equal(was.Ended(true)):
		return directory.ActionFarewell
	case was.State == directory.PeeringActive && next.State == directory.PeeringFrozen && next.Equal(stated):
		return directory.ActionFreeze
	case was.State != directory.PeeringPending || !was.Secret.IsZero():
		// It was not this domain that accepted.
		return ""
	case next.State == directory.PeeringActive && next.Equal(answered),
		next.State == directory.PeeringTerminated && next.Equal(stated):
		return directory.ActionConfirm
	}

	return ""
}
