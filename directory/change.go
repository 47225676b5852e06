package directory

import (
	"strconv"
	"strings"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// A Caller is who asks for a change: who was verified, and what policy lets it
// do beyond what an owner may.
type Caller struct {
	Identity      Identity
	Commissioning bool // may change registrations that others own
	RequestID     string
	// Proof names the proof that the caller showed, where it is good for one change
	// alone, and ProofUntil (Unix seconds) is until when that must be remembered. The
	// change is refused as Replayed where any change of the domain came by the same.
	// Zero is a credential that may be shown again.
	Proof      Hash
	ProofUntil int64
	// PolicyVersion is the version of the policy by which the change was permitted; nil where
	// policy was not asked. The change is refused as Overtaken where the domain has
	// another policy by then.
	PolicyVersion *uint64
}

// A RegisterRequest asks to register a name, or to replace what its owner
// registered before (jimenez 4.1, 4.2).
type RegisterRequest struct {
	Caller Caller
	// Owner is who is to own it, where that is not the caller: of a commissioning tool
	// that registers on somebody's behalf (jimenez 2). Zero is the caller, or whoever
	// owns what is replaced.
	Owner      Identity
	Agent      string // from ParseName; "" where it shall be its rid
	Document   Document
	Projection *Projection // by Project; nil leaves it to the registry
	Lifetime   uint32      // seconds, as asked
	Visibility Visibility  // at most what policy allows
	// KeepVisibility has what is replaced keep its visibility: Visibility is of what
	// is new alone.
	KeepVisibility bool
	IfMatch        []uint64 // revisions, one of which must be the current one; nil for any
	// Present and Absent demand that the name is registered, or that it is not
	// (If-Match: * and If-None-Match: *).
	Present, Absent bool
}

// A RefreshRequest asks for a new deadline and, where Patch is not nil, for other
// top-level members (jimenez 4.4).
type RefreshRequest struct {
	Caller   Caller
	RID      RID
	Lifetime uint32 // seconds; 0 keeps the one that was granted
	Patch    []byte // a JSON object, or nil
	// Statement is, with a patch, the revision of the statement that it was merged with
	// when policy was asked; the change is refused as Overtaken where there is another.
	// 0 is any.
	Statement uint64
	IfMatch   []uint64
}

// MaxRenewals bounds how many registrations one RefreshBatch is about.
const MaxRenewals = 1000

// A RefreshBatch asks for new deadlines of many registrations in one change of
// the log. Each is judged by itself, as if it were refreshed alone.
type RefreshBatch struct {
	Caller Caller
	Items  []Renewal // at most MaxRenewals
}

// A Renewal is one registration of a RefreshBatch.
type Renewal struct {
	RID      RID
	Lifetime uint32 // seconds; 0 keeps the one that was granted
}

// A RenewalResult is what became of a Renewal.
type RenewalResult struct {
	Granted uint32 // seconds
	Err     error  // an *Error, or nil
}

// A TransferRequest asks that a registration become another identity's.
type TransferRequest struct {
	Caller Caller
	RID    RID
	To     Identity
	Any    bool // the caller may give away what others own
	// Statement is the revision of the statement that policy was asked about; the
	// change is refused as Overtaken where there is another.
	Statement uint64
	IfMatch   []uint64
}

// A RemoveRequest asks to end a registration (jimenez 4.5).
type RemoveRequest struct {
	Caller  Caller
	RID     RID
	IfMatch []uint64
}

// An Outcome is what a committed change did.
type Outcome struct {
	RID      RID
	Position Position // of the change
	Created  bool     // a name was registered that nobody held
	Granted  uint32   // seconds
	// Each is of a RefreshBatch alone: what became of its items, in their order.
	Each []RenewalResult
	// StoredAnswer is of a Claim alone: the first answer to its key; nil to the first.
	StoredAnswer *StoredAnswer
}

// A Position is how far one origin's history has come: the text form
// EPOCH.REVISION follows the domain in Roster-Index.
type Position struct {
	Epoch, Revision uint64
}

func (p Position) String() string {
	return strconv.FormatUint(p.Epoch, 10) + "." + strconv.FormatUint(p.Revision, 10)
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
	epoch, rev, _ := strings.Cut(at, ".")

	td, err := spiffeid.TrustDomainFromString(name)
	if err != nil {
		return bad()
	}

	e, err1 := strconv.ParseUint(epoch, 10, 64)

	r, err2 := strconv.ParseUint(rev, 10, 64)
	if err1 != nil || err2 != nil {
		return bad()
	}

	return td, Position{e, r}, nil
}

// FormatIndex is the reverse of ParseIndex.
func FormatIndex(td spiffeid.TrustDomain, p Position) string {
	return td.Name() + "=" + p.String()
}
