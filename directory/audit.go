package directory

import "time"

// An AuditEvent is the audit log's record of one change or refusal (docs/trust.md): the
// caller, the action and its target, never the contents.
type AuditEvent struct {
	RequestID string   `json:"request_id,omitzero"`
	Action    string   `json:"action"` // such as register, refresh, peer.write
	Owner     Identity `json:"owner,omitzero"`
	Actor     Identity `json:"actor,omitzero"` // zero for an anonymous caller
	Authn     string   `json:"authn,omitzero"` // how the actor authenticated
	Agent     string   `json:"agent,omitzero"`
	RID       RID      `json:"rid,omitzero"`
	RIDs      []RID    `json:"rids,omitzero"` // of a change of many, at its intent
	// of an operator's change: a domain, a node; of a transfer: the new owner
	Target   string   `json:"target,omitzero"`
	Revision string   `json:"revision,omitzero"` // EPOCH.REVISION of the change
	Outcome  string   `json:"outcome,omitzero"`  // ok, or the problem
	Policies []string `json:"policies,omitzero"` // that decided
	// Lifetime is the lifetime granted, and Credential the total or remaining validity of
	// the actor's certificate or token: both in seconds.
	Lifetime   uint32 `json:"lt,omitzero"`
	Credential int64  `json:"credential_s,omitzero"`
	Count      uint64 `json:"count,omitzero"` // of a change of many, or of events without their own lines
	// Routine is whether this is a refresh: those of one caller beyond a bound are counted.
	Routine bool `json:"-"`

	// The fields below are of commands of operators and nodes, where they are applied
	// (SEC-012).

	// Position is the epoch and, in place of a revision, the number of the command: commands of
	// a domain are numbered from 1 without gaps.
	Position Position `json:"position,omitzero"`
	// Proof is the operator's proof as received: a compact JWS. It binds one request and
	// has expired when it is read. In the place of one that has no room is ProofHash alone, as in the ledger.
	Proof     string `json:"proof,omitzero"`
	ProofHash Hash   `json:"proof_hash,omitzero"`
	// BroughtBy is the member that brought the command, or the change of a registration, to the leader.
	BroughtBy Identity `json:"brought_by,omitzero"`
	// Change is the position of a change of registrations that another member brought, where it is
	// applied.
	Change Position `json:"change,omitzero"`
	// By is ByNode if a node acted by itself; Entitlement is its reason, such as
	// rotation, invitation or standing-admission.
	By          string `json:"by,omitzero"`
	Entitlement string `json:"entitlement,omitzero"`
	// AttestedBy is the member that vouches for the operator, if proofs are not required.
	AttestedBy Identity `json:"attested_by,omitzero"`
	// Payload is the payload of the command's entry in the ledger. In the place of one that has no room in the
	// audit log is PayloadHash alone, which is that of the entry.
	Payload     string `json:"payload,omitzero"`
	PayloadHash Hash   `json:"payload_hash,omitzero"`
	// Difference is the change that the command made to a text; nil if its target says all.
	Difference *AuditDifference `json:"difference,omitzero"`
}

// An AuditDifference is the difference between two texts: the one that an operator's command replaced,
// and its replacement.
type AuditDifference struct {
	// Was and Is are the SHA-256 of the texts. Was is zero if there was none, or the command does not
	// name the one that it replaced.
	Was Hash `json:"was,omitzero"`
	Is  Hash `json:"is"`
	// WasVersion and Version are those of a policy; nil for other texts.
	WasVersion *uint64 `json:"was_version,omitempty"`
	Version    *uint64 `json:"version,omitempty"`
	// Added and Removed count lines.
	Added   uint64 `json:"added"`
	Removed uint64 `json:"removed"`
	// Lines is a unified diff, without the lines that have no room: the counts and hashes are of all.
	Lines []string `json:"lines,omitempty"`
}

// OutcomeOK is AuditEvent.Outcome of a change that was made.
const OutcomeOK = "ok"

// Outcomes of commands and changes that were applied and are suspect: without a valid proof of the
// operator, so many at once that they were not checked, and in the name of a member that did not send
// them.
const (
	OutcomeUnproven  = "operator-proof-invalid"
	OutcomeUnchecked = "unchecked"
	OutcomeUnsent    = "unsent"
)

// OutcomeMisconduct is AuditEvent.Outcome of a message that a node has refused of another member, because
// a correct member sends no such message.
const OutcomeMisconduct = "misconduct"

// ByNode is AuditEvent.By of an action that a node took by itself.
const ByNode = "node"

// A Decision is policy's answer to one question, with the names of the policies
// that decided it.
type Decision struct {
	Allow    bool
	Policies []string
	// Redaction says which members are visible, if the answer is yes and the question is
	// about reading or exporting a registration.
	Redaction Redaction
}

// An AuditQuery selects lines of a node's audit log.
type AuditQuery struct {
	// Who is the actor, the owner or the member that brought a command: an identity, or
	// the end of its path.
	Who string
	// What is an action such as peer.write, or the part of it before a dot; or an agent, a
	// rid or a target.
	What  string
	Since time.Time // no earlier lines; zero is any
	// After is the number of the line before the first that may be selected.
	After uint64
	Limit int // lines at most
}

// An AuditPage is a run of a node's audit log. All its lines from First to Last were read:
// Lines are those that the query selects.
type AuditPage struct {
	Lines       [][]byte // as they were written, without newlines
	First, Last uint64   // 0 if there is no line
	// Prev is the hash of the line before First, and Head that of Last.
	Prev, Head Hash
	More       bool     // there are lines after Last
	Faults     []string // places at which the lines don't follow each other
}
