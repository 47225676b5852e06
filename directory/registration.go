package directory

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/oklog/ulid/v2"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"golang.org/x/text/unicode/norm"
)

// A RID is a registration's id: a ULID that the leader chose. Its resource is /ad/r/{rid}.
// RIDs are comparable and sort by time; the zero value is no registration.
type RID struct{ u ulid.ULID }

// NewRID makes a RID from a time in milliseconds and ten random bytes.
func NewRID(ms int64, entropy [10]byte) RID {
	var r RID
	_ = r.u.SetTime(uint64(ms)) // fails only past the year 10889
	copy(r.u[6:], entropy[:])

	return r
}

// ParseRID parses the canonical text form: 26 characters of Crockford's base 32
// in upper case.
func ParseRID(s string) (RID, error) {
	u, err := ulid.ParseStrict(s)
	if err != nil || u.String() != s {
		return RID{}, fmt.Errorf("%q is not a registration id", s)
	}

	return RID{u}, nil
}

func (r RID) String() string { return r.u.String() }

// IsZero reports whether r names no registration.
func (r RID) IsZero() bool { return r == RID{} }

// Compare orders RIDs by time, then by their random part.
func (r RID) Compare(o RID) int { return r.u.Compare(o.u) }

// AppendBinary appends the binary form, RIDBinary bytes.
func (r RID) AppendBinary(b []byte) []byte { return append(b, r.u[:]...) }

// RIDBinary is the length of the binary form of a RID.
const RIDBinary = len(ulid.ULID{})

// MaxRID sorts after all other RIDs.
var MaxRID = RID{ulid.ULID{255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255}}

// RIDOf returns the RID of a binary form.
func RIDOf(b [RIDBinary]byte) RID { return RID{b} }

// MarshalText gives the canonical text form.
func (r RID) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText parses the canonical text form.
func (r *RID) UnmarshalText(b []byte) error {
	p, err := ParseRID(string(b))
	*r = p

	return err
}

// MaxName bounds an agent name in bytes (AD-009).
const MaxName = 255

// ParseName returns the NFC form of an agent name or given id, or a BadName
// error. Names share one name space on all surfaces and never have the form of
// a RID, in upper or lower case, or contain an asterisk (jimenez 4.1, 5.1).
func ParseName(s string) (string, error) {
	switch {
	case s == "":
		return "", Refuse(BadName, "the agent name is missing: give it as agent=NAME")
	case !utf8.ValidString(s):
		return "", Refuse(BadName, "the agent name is not valid UTF-8")
	case strings.ContainsFunc(s, isControl):
		return "", Refuse(BadName, "the agent name %q has a control character", s)
	case strings.Contains(s, "*"):
		return "", Refuse(BadName, "the agent name %q has a *, which lookups use for prefixes", s)
	}

	s = norm.NFC.String(s)

	// NFC may lengthen a name, and the bound is on the stored form.
	if len(s) > MaxName {
		return "", Refuse(BadName, "the agent name has %d bytes; at most %d are allowed", len(s), MaxName)
	}

	if _, err := ulid.ParseStrict(s); err == nil {
		return "", Refuse(BadName, "the agent name %q has the form of a registration id", s)
	}

	return s, nil
}

// Visibility says which other domains may receive a registration: none, the whole mesh, or
// the named peers. The zero value is none.
type Visibility struct {
	Mesh  bool
	Peers []spiffeid.TrustDomain // sorted; only if Mesh is false
}

// ParseVisibility parses domain, mesh, or peers:beta.test,gamma.test.
func ParseVisibility(s string) (Visibility, error) {
	switch {
	case s == "domain":
		return Visibility{}, nil
	case s == "mesh":
		return Visibility{Mesh: true}, nil
	case strings.HasPrefix(s, "peers:"):
		var visibility Visibility
		for name := range strings.SplitSeq(strings.TrimPrefix(s, "peers:"), ",") {
			td, err := spiffeid.TrustDomainFromString(name)

			// A domain called mesh would share the name of the mesh's audience.
			if err != nil || name != td.Name() || name == Mesh.name {
				return Visibility{}, Refuse(BadRequest, "visibility names %.100q, which is not a domain", name)
			}

			visibility.Peers = append(visibility.Peers, td)
		}

		sortDomains(&visibility.Peers)

		return visibility, nil
	}

	return Visibility{}, Refuse(BadRequest, "visibility must be domain, mesh, or peers:DOMAIN,…, got %.100q", s)
}

func (v Visibility) String() string {
	switch {
	case v.Mesh:
		return "mesh"
	case len(v.Peers) == 0:
		return "domain"
	}

	names := make([]string, len(v.Peers))
	for i, td := range v.Peers {
		names[i] = td.Name()
	}

	return "peers:" + strings.Join(names, ",")
}

// MarshalText gives the form that ParseVisibility reads.
func (v Visibility) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// UnmarshalText is ParseVisibility.
func (v *Visibility) UnmarshalText(b []byte) error {
	p, err := ParseVisibility(string(b))
	*v = p

	return err
}

// An Entry is one registration as a node holds and serves it, of its own domain or another.
// Entries in an Index are immutable: a change replaces the entry.
type Entry struct {
	Origin       spiffeid.TrustDomain
	RID          RID
	Agent        string
	Owner        Identity    // zero if the origin withholds it
	Provenance   *Provenance // nil if the owner registered the contents, or is withheld; never modified
	Document     Document
	Packed       Packed     // the packed projection: Projection unpacks it
	Visibility   Visibility // of the own domain's registrations only
	Lifetime     uint32     // seconds, as granted
	Redacted     bool       // the origin withholds members from us
	Confusable   bool       // for one reader alone: it looks like an earlier one that the reader sees
	Unconfirmed  bool       // of the own domain: restored from a backup, and not refreshed since
	RegisteredAt int64      // Unix milliseconds, as the next two
	UpdatedAt    int64
	ExpiresAt    int64
	Created      uint64    // revision of the first registration: the order of the own domain's lookups
	Revision     uint64    // of the last change, which ETag and If-Match use
	Statement    uint64    // revision of the statement: provenance.revision
	Received     *Received // nil for the own domain's registrations
}

// AliveAt reports whether e is served at the time now, in Unix milliseconds.
func (e *Entry) AliveAt(now int64) bool { return now < e.ExpiresAt }

// VerifiedOwner returns the owner's SPIFFE ID if the origin could authenticate it: one of
// the origin's own trust domain. Another owner is only claimed, and no connection is judged
// by it.
func (e *Entry) VerifiedOwner() (spiffeid.ID, bool) {
	id, ok := e.Owner.SPIFFE()
	if !ok || !id.MemberOf(e.Origin) {
		return spiffeid.ID{}, false
	}

	return id, true
}

// Received says how a registration of another domain reached this node.
type Received struct {
	At        int64                // Unix milliseconds
	From      spiffeid.TrustDomain // the domain whose node handed over the record
	Key       string               // kid of the key that signed the page that lists it
	CheckedAt int64                // when that page was verified; Unix milliseconds
	H, M      Hash                 // the record's name
	Private   bool                 // it was announced to the own domain alone
	Leaf      uint64               // index of its statement in its origin's ledger, by its own word
}

// LogName returns the name of the ledger of a domain's epoch: the origin of its checkpoints.
func LogName(domain spiffeid.TrustDomain, epoch uint64) string {
	return fmt.Sprintf("%s/roster/%d", domain.Name(), epoch)
}

// An Inclusion is where a registration's statement is in the ledger of its origin.
type Inclusion struct {
	Log   string // the name of the log
	Index uint64
	At    int64 // when it was appended; Unix seconds
	// Witnesses have cosigned a checkpoint that covers it; nil unless they are the required quorum.
	Witnesses *Witnesses
	// Unconfirmed is whether only one node of its origin, of several, has announced the registration for a while.
	Unconfirmed bool
}

// Witnesses are those that have cosigned a checkpoint. They are never modified.
type Witnesses []Witnessed

// A Witnessed is the cosignature of a witness.
type Witnessed struct {
	Name string // of its key
	At   int64  // Unix seconds
}

// Equal reports whether both are nil, or the same.
func (w *Witnesses) Equal(other *Witnesses) bool {
	if w == nil || other == nil {
		return w == other
	}

	return slices.Equal(*w, *other)
}

// sortDomains sorts domains by name, each once.
func sortDomains(ds *[]spiffeid.TrustDomain) {
	slices.SortFunc(*ds, func(a, b spiffeid.TrustDomain) int { return strings.Compare(a.Name(), b.Name()) })
	*ds = slices.Compact(*ds)
}
