package consensus

import (
	"fmt"
	"slices"

	"github.com/fxamacker/cbor/v2"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
)

// A batch is one log entry: commands that share a time. Golden files hold the
// encoding of every command; numbers are never reused.
type batch struct {
	Version  uint      `cbor:"1,keyasint"`
	Time     int64     `cbor:"2,keyasint"` // Unix milliseconds, stamped by the leader
	Commands []command `cbor:"3,keyasint"`
}

// A command is one change that was asked for: exactly one member is set, and
// Spend beside it, or alone, where the caller's proof is good once.
type command struct {
	Register *register  `cbor:"1,keyasint,omitempty"`
	Update   *update    `cbor:"2,keyasint,omitempty"`
	Refresh  *refresh   `cbor:"3,keyasint,omitempty"`
	Remove   *remove    `cbor:"4,keyasint,omitempty"`
	Expire   *sweep     `cbor:"5,keyasint,omitempty"`
	Announce *sweep     `cbor:"6,keyasint,omitempty"`
	Attest   *attest    `cbor:"7,keyasint,omitempty"`
	Issue    *issue     `cbor:"8,keyasint,omitempty"`
	Peer     *peer      `cbor:"9,keyasint,omitempty"`
	Epoch    *epoch     `cbor:"10,keyasint,omitempty"`
	Regrant  *regrant   `cbor:"11,keyasint,omitempty"`
	Rules    *Rules     `cbor:"12,keyasint,omitempty"`
	Member   *member    `cbor:"13,keyasint,omitempty"`
	Admit    *admission `cbor:"14,keyasint,omitempty"`
	Renew    *renew     `cbor:"15,keyasint,omitempty"`
	Spend    *spend     `cbor:"16,keyasint,omitempty"`
	Redeem   *redeem    `cbor:"17,keyasint,omitempty"`
	Policy   *policy    `cbor:"18,keyasint,omitempty"`
	Claim    *claim     `cbor:"19,keyasint,omitempty"`
	Settle   *settle    `cbor:"20,keyasint,omitempty"`
	Transfer *transfer  `cbor:"21,keyasint,omitempty"`
	Rebundle *rebundle  `cbor:"24,keyasint,omitempty"`
	Revoke   *revoke    `cbor:"25,keyasint,omitempty"`
	Amend    *amend     `cbor:"26,keyasint,omitempty"`
	Decide   *decide    `cbor:"27,keyasint,omitempty"`
	Feature  *Numbers   `cbor:"28,keyasint,omitempty"`

	commandNext
}

// weight is how many changes a command is at most.
func (c *command) weight() int {
	switch {
	case c.Renew != nil:
		return c.Renew.Renewals.count()
	case c.Expire != nil:
		return len(c.Expire.RIDs)
	case c.Announce != nil:
		return len(c.Announce.RIDs)
	case c.Regrant != nil:
		return len(c.Regrant.Items)
	}
	return 1
}

// ofRegistrations reports whether nothing is changed but registrations, and what
// answers and proofs of requests are kept.
func (b *batch) ofRegistrations() bool {
	return !slices.ContainsFunc(b.Commands, func(c command) bool {
		switch {
		case c.Register != nil, c.Update != nil, c.Refresh != nil, c.Renew != nil, c.Remove != nil, c.Transfer != nil,
			c.Expire != nil, c.Announce != nil, c.Regrant != nil, c.Claim != nil, c.Settle != nil:
			return false
		}
		return c != command{Spend: c.Spend}
	})
}

// register registers a name or replaces what its owner registered.
type register struct {
	Format        int                  `cbor:"1,keyasint"` // of the statement
	RID           directory.RID        `cbor:"2,keyasint"` // unless the name is held already
	Salt          directory.Salt       `cbor:"3,keyasint"`
	Caller        directory.Identity   `cbor:"4,keyasint"`
	Commissioning bool                 `cbor:"5,keyasint,omitempty"`
	Agent         string               `cbor:"6,keyasint"`
	Kind          directory.Kind       `cbor:"7,keyasint"`
	Document      []byte               `cbor:"8,keyasint"` // may be at rest, so that no member need compress it
	Lifetime      uint32               `cbor:"9,keyasint"` // seconds, granted
	Visibility    directory.Visibility `cbor:"10,keyasint"`
	IfMatch       []uint64             `cbor:"11,keyasint"` // null for any
	Granted       granted              `cbor:"12,keyasint"`
	Present       bool                 `cbor:"13,keyasint,omitempty"` // If-Match: *
	Absent        bool                 `cbor:"14,keyasint,omitempty"` // If-None-Match: *
	Until         int64                `cbor:"15,keyasint,omitempty"` // when the document ends by its own word, Unix seconds; 0 for never
	Made          *made                `cbor:"16,keyasint,omitempty"`
	For           directory.Identity   `cbor:"17,keyasint,omitzero"` // on whose behalf; zero for the caller's own
	pinned        bool                 // by prepareDates; not in the log
}

// granted is policy's answer, and what it was given for: an answer for another
// owner, or from before a peering changed, is asked for again.
type granted struct {
	Owner  directory.Identity `cbor:"1,keyasint"`
	Policy uint64             `cbor:"2,keyasint"` // revision of the newest peering
	Grants []grant            `cbor:"3,keyasint"`
}

type grant struct {
	Audience directory.Audience `cbor:"1,keyasint"`
	All      bool               `cbor:"2,keyasint,omitempty"`
	Reg      []string           `cbor:"3,keyasint,omitempty"`
	Doc      []string           `cbor:"4,keyasint,omitempty"`
}

// update puts another document in the place of the one that the statement of
// revision Statement is about.
type update struct {
	Format        int                `cbor:"1,keyasint"`
	RID           directory.RID      `cbor:"2,keyasint"`
	Salt          directory.Salt     `cbor:"3,keyasint"`
	Caller        directory.Identity `cbor:"4,keyasint"`
	Commissioning bool               `cbor:"5,keyasint,omitempty"`
	Statement     uint64             `cbor:"6,keyasint"`
	Document      []byte             `cbor:"7,keyasint"` // as register's
	Lifetime      uint32             `cbor:"8,keyasint"` // 0 keeps the granted one
	IfMatch       []uint64           `cbor:"9,keyasint"`
	Granted       granted            `cbor:"10,keyasint"`
	Until         int64              `cbor:"11,keyasint,omitempty"` // as register's
	Made          *made              `cbor:"12,keyasint,omitempty"`
	Unchanged     bool               `cbor:"13,keyasint,omitempty"` // the document is the one that was restored
}

// refresh sets a new deadline and nothing else.
type refresh struct {
	RID           directory.RID      `cbor:"1,keyasint"`
	Caller        directory.Identity `cbor:"2,keyasint"`
	Commissioning bool               `cbor:"3,keyasint,omitempty"`
	Lifetime      uint32             `cbor:"4,keyasint"` // 0 keeps the granted one
	IfMatch       []uint64           `cbor:"5,keyasint"`
}

// renew sets new deadlines of many registrations and nothing else.
type renew struct {
	Caller        directory.Identity `cbor:"1,keyasint"`
	Commissioning bool               `cbor:"2,keyasint,omitempty"`
	Renewals      renewals           `cbor:"3,keyasint"`
}

// renewals are registrations and their lifetimes, as compact as can be: a log
// entry of them is decoded by every member.
type renewals struct {
	RIDs      []byte   `cbor:"1,keyasint"`           // binary, one behind the other
	Lifetimes []uint32 `cbor:"2,keyasint,omitempty"` // one for each; none where all keep what was granted
}

type remove struct {
	Format        int                `cbor:"1,keyasint"`
	RID           directory.RID      `cbor:"2,keyasint"`
	Caller        directory.Identity `cbor:"3,keyasint"`
	Commissioning bool               `cbor:"4,keyasint,omitempty"`
	IfMatch       []uint64           `cbor:"5,keyasint"`
}

// sweep names registrations that the leader found due; apply looks again.
type sweep struct {
	Format int             `cbor:"1,keyasint"`
	RIDs   []directory.RID `cbor:"2,keyasint"`
}

// attest adds or replaces a node's signing key and its newest attestations.
type attest struct {
	Node         spiffeid.ID `cbor:"1,keyasint"`
	Public       []byte      `cbor:"2,keyasint"`
	Attestations []string    `cbor:"3,keyasint"`
}

// revoke takes a signing key back, for good.
type revoke struct {
	Key string `cbor:"1,keyasint"` // its RFC 7638 thumbprint
}

// issue issues the key document again before it ends.
type issue struct {
	After uint64 `cbor:"1,keyasint"` // seq of the one that it replaces
}

type peer struct {
	Domain    spiffeid.TrustDomain   `cbor:"1,keyasint"`
	State     directory.PeeringState `cbor:"2,keyasint"`
	Bundle    []byte                 `cbor:"3,keyasint,omitempty"`
	Addresses []string               `cbor:"4,keyasint,omitempty"`
	Gossip    []string               `cbor:"5,keyasint,omitempty"`
	Mesh      bool                   `cbor:"6,keyasint,omitempty"`
	Secret    directory.Hash         `cbor:"7,keyasint,omitzero"`
	Until     int64                  `cbor:"8,keyasint,omitempty"`
	ByPeer    bool                   `cbor:"9,keyasint,omitempty"`

	Endpoint directory.BundleEndpoint `cbor:"20,keyasint,omitzero"`
	Export   directory.PeerRules      `cbor:"21,keyasint,omitzero"`
	Import   directory.PeerRules      `cbor:"22,keyasint,omitzero"`
}

// amend puts a peering in the place of one that is still what it was when it was
// looked at.
type amend struct {
	Was  peer `cbor:"1,keyasint"` // without a state where there was none
	Peer peer `cbor:"2,keyasint"`
}

// rebundle is what a peer's bundle endpoint has, where the peering still has the
// bundle that it was compared with.
type rebundle struct {
	Domain spiffeid.TrustDomain `cbor:"1,keyasint"`
	Held   directory.Hash       `cbor:"2,keyasint"` // SHA-256 of that
	Bundle []byte               `cbor:"3,keyasint"`
}

// redeem makes a pending peering active by its invitation's secret.
type redeem struct {
	Secret directory.Hash `cbor:"1,keyasint"` // its hash
	Peer   peer           `cbor:"2,keyasint"`
}

// policy is the domain's policy, for all members. What its text means is not for the
// log to say.
type policy struct {
	Text []byte `cbor:"1,keyasint"` // empty for what is built in
	// Replaces are the revisions of which the policy in force must have one; null for
	// any.
	Replaces *[]uint64 `cbor:"2,keyasint,omitempty"`
}

// epoch begins the domain's history: the first command of every log, and of every
// history that was restored.
type epoch struct {
	Epoch  uint64 `cbor:"1,keyasint"` // Unix seconds
	Reason string `cbor:"2,keyasint"`
}

// regrant puts policy's new answers in the place of the old ones.
type regrant struct {
	Items []regrantItem `cbor:"1,keyasint"`
}

type regrantItem struct {
	RID       directory.RID `cbor:"1,keyasint"`
	Statement uint64        `cbor:"2,keyasint"` // which contents policy was asked about
	Granted   granted       `cbor:"3,keyasint"`
	Shown     []byte        `cbor:"4,keyasint,omitempty"` // the m of each grant, as in made; apply makes it where it isn't there
}

// The one way in which this package writes and reads CBOR: deterministic
// (RFC 8949, 4.2), our own types as their text, nothing unknown accepted.
var (
	encoding = must(cbor.EncOptions{
		Sort:          cbor.SortCoreDeterministic,
		ShortestFloat: cbor.ShortestFloat16,
		NaNConvert:    cbor.NaNConvert7e00,
		InfConvert:    cbor.InfConvertFloat16,
		IndefLength:   cbor.IndefLengthForbidden,
		TextMarshaler: cbor.TextMarshalerTextString,
	}.EncMode())
	decoding = must(cbor.DecOptions{
		DupMapKey:         cbor.DupMapKeyEnforcedAPF,
		IndefLength:       cbor.IndefLengthForbidden,
		TagsMd:            cbor.TagsForbidden,
		ExtraReturnErrors: cbor.ExtraDecErrorUnknownField,
		TextUnmarshaler:   cbor.TextUnmarshalerTextString,
	}.DecMode())
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err) // the options are constants
	}
	return v
}

func (b *batch) encode() ([]byte, error) { return encoding.Marshal(b) }

// decodeBatch decodes a log entry. It refuses what a newer release may have
// written, since to skip it would be to disagree with the other members.
func decodeBatch(data []byte) (*batch, error) {
	if b, ok := quickBatch(data); ok {
		return b, nil
	}
	var b batch
	err := decoding.Unmarshal(data, &b)
	if err == nil && readsLog(b.Version) {
		return &b, nil
	}
	var v struct {
		Version uint `cbor:"1,keyasint"`
	}
	if err := cbor.Unmarshal(data, &v); err != nil {
		return nil, fmt.Errorf("a log entry is damaged: %w", err)
	}
	if !readsLog(v.Version) {
		return nil, newerLog(v.Version, newestLogVersion)
	}
	return nil, fmt.Errorf("a log entry of version %d has a command or member that this release does not read: %w: %w", v.Version, errNewer, err)
}

func wireGrants(gs []directory.Grant) []grant {
	out := make([]grant, len(gs))
	for i, g := range gs {
		out[i] = grant(g)
	}
	return out
}

// wholeMesh is what most registrations are granted; it is kept once for all.
var wholeMesh = []directory.Grant{{Audience: directory.Mesh, All: true}}

func (g granted) grants() []directory.Grant {
	out := make([]directory.Grant, len(g.Grants))
	for i, w := range g.Grants {
		out[i] = directory.Grant(w)
	}
	if equalGrants(out, wholeMesh) {
		return wholeMesh
	}
	return out
}
