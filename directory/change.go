package directory

import (
	"strconv"
	"strings"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// A Caller is the verified identity that requests a change, and its permissions beyond those
// of an owner.
type Caller struct {
	Identity      Identity
	Commissioning bool // may change registrations that others own
	RequestID     string
	// Proof identifies a credential that is valid for one change alone; it must be
	// remembered until ProofUntil (Unix seconds). The change is refused as Replayed if
	// another change of the domain used it. Zero is a credential that may be used again.
	Proof      Hash
	ProofUntil int64
	// PolicyVersion is the version of the policy that permitted the change; nil if policy
	// was not asked. The change is refused as Overtaken if the domain has another policy by
	// then.
	PolicyVersion *uint64
}

// A RegisterRequest registers a name, or replaces the owner's earlier registration of it
// (jimenez 4.1, 4.2).
type RegisterRequest struct {
	Caller Caller
	// Owner is the future owner if that is not the caller: a commissioning tool registers on
	// behalf of others (jimenez 2). Zero is the present owner, or else the caller.
	Owner      Identity
	Agent      string // from ParseName; "" to use the rid
	Document   Document
	Projection *Projection // by Project; nil leaves it to the registry
	Lifetime   uint32      // seconds, as asked
	Visibility Visibility  // within policy's limits
	// KeepVisibility keeps the visibility of a registration that is replaced; Visibility
	// then applies to new registrations alone.
	KeepVisibility bool
	IfMatch        []uint64 // revisions, one of which must be the current one; nil for any
	// Present and Absent demand that the name is registered, or that it is not
	// (If-Match: * and If-None-Match: *).
	Present, Absent bool
}

// A RefreshRequest sets a new deadline and, if Patch is not nil, replaces top-level members
// (jimenez 4.4).
type RefreshRequest struct {
	Caller   Caller
	RID      RID
	Lifetime uint32 // seconds; 0 keeps the one that was granted
	Patch    []byte // a JSON object, or nil
	// Statement is, with a patch, the revision of the statement that it was merged with when
	// policy was asked. The change is refused as Overtaken if there is another by then. 0 is
	// any.
	Statement uint64
	IfMatch   []uint64
}

// MaxRenewals bounds the registrations of one RefreshBatch.
const MaxRenewals = 1000

// A RefreshBatch sets new deadlines of many registrations by one entry of the log. Each is
// judged by itself, as if it were refreshed alone.
type RefreshBatch struct {
	Caller Caller
	Items  []Renewal // at most MaxRenewals
}

// A Renewal is one registration of a RefreshBatch.
type Renewal struct {
	RID      RID
	Lifetime uint32 // seconds; 0 keeps the one that was granted
}

// A RenewalResult is the result of a Renewal.
type RenewalResult struct {
	Granted uint32 // seconds
	Err     error  // an *Error, or nil
}

// A TransferStep is a step by which a registration changes its owner, or doesn't.
type TransferStep string

// The owner offers a registration and withdraws its offer. The identity to which it is offered
// accepts or declines. An operator moves a registration without the consent of either.
const (
	TransferOffer    TransferStep = "offer"
	TransferWithdraw TransferStep = "withdraw"
	TransferAccept   TransferStep = "accept"
	TransferDecline  TransferStep = "decline"
	TransferForce    TransferStep = "force"
)

// The time for which an offer is open, in seconds.
const (
	DefaultOfferLifetime = 86_400
	MaxOfferLifetime     = 604_800
)

// A TransferRequest is a step of a transfer of ownership.
type TransferRequest struct {
	Caller   Caller
	RID      RID
	Step     TransferStep
	To       Identity // of an offer or a forced transfer: the new owner
	Lifetime uint32   // of an offer, in seconds
	// Statement is the revision of the statement that is offered, or about which policy was
	// asked; the change is refused as Overtaken if there is another. Withdrawing and declining
	// need none.
	Statement uint64
	IfMatch   []uint64
}

// An Offer is an open offer of a registration to another identity.
type Offer struct {
	RID       RID
	Agent     string
	Owner, To Identity
	Statement uint64 // revision of the statement that is offered
	ExpiresAt int64  // Unix milliseconds
	Changed   bool   // the registration has other contents by now, so the offer can't be accepted
}

// A RemoveRequest ends a registration (jimenez 4.5).
type RemoveRequest struct {
	Caller  Caller
	RID     RID
	IfMatch []uint64
}

// An Outcome is the result of a committed change.
type Outcome struct {
	RID      RID
	Position Position // of the change
	Created  bool     // the name was free
	Granted  uint32   // seconds
	// OfferUntil is when an offer of ownership ends: Unix seconds.
	OfferUntil int64
	// CosignedAt is the committed time at which a checkpoint was taken: Unix seconds.
	CosignedAt int64
	// Each has the results of a RefreshBatch, in the order of its items.
	Each []RenewalResult
	// StoredAnswer is the first answer to the key of a Claim; nil for the first request.
	StoredAnswer *StoredAnswer
}

// A Position is the progress of one origin's history. Its text form EPOCH.REVISION follows
// the domain in Roster-Index.
type Position struct {
	Epoch, Revision uint64
}

func (p Position) String() string {
	return strconv.FormatUint(p.Epoch, 10) + "." + strconv.FormatUint(p.Revision, 10)
}

// MarshalText gives the text form.
func (p Position) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText parses the text form.
func (p *Position) UnmarshalText(data []byte) error {
	epoch, revision, _ := strings.Cut(string(data), ".")

	e, err1 := strconv.ParseUint(epoch, 10, 64)

	r, err2 := strconv.ParseUint(revision, 10, 64)
	if err1 != nil || err2 != nil {
		return Refuse(BadQuery, "%q is not EPOCH.REVISION", data)
	}

	*p = Position{e, r}

	return nil
}

// Before reports whether p comes earlier than q.
func (p Position) Before(q Position) bool {
	return p.Epoch < q.Epoch || p.Epoch == q.Epoch && p.Revision < q.Revision
}

// ParseIndex parses DOMAIN=EPOCH.REVISION.
func ParseIndex(s string) (spiffeid.TrustDomain, Position, error) {
	bad := func() (spiffeid.TrustDomain, Position, error) {
		return spiffeid.TrustDomain{}, Position{}, Refuse(BadQuery, "%q is not DOMAIN=EPOCH.REVISION", s)
	}
	name, at, _ := strings.Cut(s, "=")

	td, err := spiffeid.TrustDomainFromString(name)
	if err != nil {
		return bad()
	}

	var position Position
	if position.UnmarshalText([]byte(at)) != nil {
		return bad()
	}

	return td, position, nil
}

// FormatIndex is the reverse of ParseIndex.
func FormatIndex(td spiffeid.TrustDomain, p Position) string {
	return td.Name() + "=" + p.String()
}
