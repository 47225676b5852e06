package directory

import (
	"context"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// An OperatorRequest is an operator's request as a member of the domain received it
// (docs/trust.md, "Operator commands"). It goes with the command that it asks for into the
// domain's log, so that every member can check it.
type OperatorRequest struct {
	By     Identity    // the operator, as the member that received it says
	From   spiffeid.ID // the member that received it; the leader sets it
	Method string
	Target string // path and query
	Body   []byte // as received; nil if only its hash is kept, as of a restore
	// BodyHash is the SHA-256 of the body.
	BodyHash Hash
	// Proof is the compact JWS of Roster-Operator-Proof; empty if the domain demands none.
	Proof string
	// ProofID identifies the proof for its one use, and ProofUntil is when it ends, in Unix
	// seconds. Both follow from Proof.
	ProofID    Hash
	ProofUntil int64
}

// An OperatorChange is the effect of a command that an operator orders, or that a node makes
// by itself where an operator could. At most one pointer is set; the others are the
// parameters of their actions.
type OperatorChange struct {
	Action string // one of the Action constants
	Target string // a domain, node, key or registration; empty for the domain itself

	Policy    *PolicyChange
	Peering   *PeeringChange
	Admission *AdmissionChange
	Bundle    *BundleChange // once it is applied
	Owner     Identity      // of a transfer: the new owner
	Agent     string        // of a transfer: the registration's name, by which a request may name it
	// Node is true if the change is one that a node makes by itself; an operator's proof is
	// then not needed. The state decides it by the shape of the command.
	Node bool
}

// A PolicyChange replaces the policy. Replaces is nil for any predecessor.
type PolicyChange struct {
	Text     []byte
	Replaces *[]uint64
}

// A PeeringChange replaces a peering. Was is nil if the command does not name the one that it
// replaces.
type PeeringChange struct {
	Was  *Peering
	Next Peering
	// Farewell is the request of the peer's operator that entitles a node to end the peering; nil without one.
	Farewell *OperatorRequest
}

// A BundleChange replaces the bundle of a peer: Was is the peering before it.
type BundleChange struct {
	Was  Peering
	Next []byte
}

// An AdmissionChange admits a node, or the nodes that match a pattern while the domain has
// fewer than Max of them. Until is in Unix seconds; 0 withdraws the admission.
type AdmissionChange struct {
	Standing bool
	Max      uint32
	Until    int64
}

// The actions of operators' commands, in the ledger and the audit log.
const (
	ActionPolicy       = "policy.write"
	ActionPeering      = "peer.write"
	ActionRevokeKey    = "keys.revoke"
	ActionRotateKey    = "keys.rotate"
	ActionAdmit        = "raft.admit"
	ActionWithdraw     = "raft.admit.withdraw"
	ActionRemoveMember = "raft.remove"
	ActionTransferLead = "raft.transfer"
	ActionLeave        = "raft.leave"
	ActionConfirmClock = "raft.clock" // its target is the step: see ParseClockStep
	ActionEndOwned     = "registration.end"
	ActionTransfer     = "registration.transfer"
	ActionRestore      = "snapshot.restore"
	ActionErase        = "history.erase"
)

// The actions of nodes by themselves.
const (
	ActionRedeem   = "peer.redeem"    // entitled by an invitation's secret
	ActionBundle   = "peer.bundle"    // by the peering's bundle endpoint
	ActionMove     = "raft.move"      // by the member, which the log names before
	ActionFarewell = "peer.farewell"  // by the peer's word
	ActionFreeze   = "peer.freeze"    // by evidence
	ActionConfirm  = "peer.confirm"   // by the operator's acceptance and the peer's answer
	ActionJoin     = "member.join"    // by an admission
	ActionForget   = "member.forget"  // by the member's removal from the Raft configuration
	ActionFeature  = "versions.raise" // by the versions that all members read

	// These put a fact about the domain into its ledger, and change nothing else.
	ActionPinBundle = "ledger.bundle" // by the authorities of the domain, as the leader has them
	ActionPinAudit  = "ledger.audit"  // by the member's audit log, once a day
)

// An OperatorCommand is an operator's command, or a node's own where an operator could have
// made it, as a member has applied it or is about to propose it.
type OperatorCommand struct {
	OperatorChange

	// Request is nil for a node's own command, and for one whose operator's request is absent.
	Request *OperatorRequest
	// From is the member that brought the command; zero if that is unknown.
	From spiffeid.ID
	// Logged is the payload of its entry in the ledger, once it is applied; nil for a node's own command whose
	// only entry is of another type.
	Logged []byte
	// At is the committed time, and Judged the time at which the leader has judged the command; before it is
	// proposed, both are the leader's.
	At, Judged time.Time
	// Policy is the text of the policy in force before it, and PolicyVersion its version.
	Policy        []byte
	PolicyVersion uint64

	// Number counts the commands of the domain from 1, without gaps; 0 before it is applied.
	Number   uint64
	Position Position
	Index    uint64 // of its entry in the Raft log
	Again    bool   // its entry was in this member's log when the member started
}

type operatorKey struct{}

// WithOperatorRequest returns ctx with an operator's request, which the changes made in ctx
// carry.
func WithOperatorRequest(ctx context.Context, r *OperatorRequest) context.Context {
	return context.WithValue(ctx, operatorKey{}, r)
}

// OperatorRequestOf returns the operator's request that ctx belongs to; nil if there is none.
func OperatorRequestOf(ctx context.Context) *OperatorRequest {
	r, _ := ctx.Value(operatorKey{}).(*OperatorRequest)
	return r
}
