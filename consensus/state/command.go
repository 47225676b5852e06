package state

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/fxamacker/cbor/v2"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
)

// MaxBatchBytes bounds the commands of a log entry, but for its last one.
const MaxBatchBytes = 512 << 10

// A Batch is one log entry: commands that share a time. golden files hold the
// encoding of every command; numbers are never reused.
type Batch struct {
	Version  uint      `cbor:"1,keyasint"`
	Time     int64     `cbor:"2,keyasint"` // Unix milliseconds, stamped by the leader
	Commands []Command `cbor:"3,keyasint"`
}

// A Command is one change that was asked for: exactly one member is set, and
// Spend beside it, or alone, where the caller's proof is good once; and Origin beside it, if a
// member asked for it.
type Command struct {
	Register *Register  `cbor:"1,keyasint,omitempty"`
	Update   *Update    `cbor:"2,keyasint,omitempty"`
	Refresh  *Refresh   `cbor:"3,keyasint,omitempty"`
	Remove   *Remove    `cbor:"4,keyasint,omitempty"`
	Expire   *Sweep     `cbor:"5,keyasint,omitempty"`
	Announce *Sweep     `cbor:"6,keyasint,omitempty"`
	Attest   *Attest    `cbor:"7,keyasint,omitempty"`
	Issue    *Issue     `cbor:"8,keyasint,omitempty"`
	Peer     *Peer      `cbor:"9,keyasint,omitempty"`
	Epoch    *Epoch     `cbor:"10,keyasint,omitempty"`
	Regrant  *Regrant   `cbor:"11,keyasint,omitempty"`
	Rules    *Rules     `cbor:"12,keyasint,omitempty"`
	Member   *Member    `cbor:"13,keyasint,omitempty"`
	Admit    *Admission `cbor:"14,keyasint,omitempty"`
	Renew    *Renew     `cbor:"15,keyasint,omitempty"`
	Spend    *Spend     `cbor:"16,keyasint,omitempty"`
	Redeem   *Redeem    `cbor:"17,keyasint,omitempty"`
	Policy   *Policy    `cbor:"18,keyasint,omitempty"`
	Claim    *Claim     `cbor:"19,keyasint,omitempty"`
	Settle   *Settle    `cbor:"20,keyasint,omitempty"`
	Transfer *Transfer  `cbor:"21,keyasint,omitempty"`
	Rebundle *Rebundle  `cbor:"24,keyasint,omitempty"`
	Revoke   *Revoke    `cbor:"25,keyasint,omitempty"`
	Amend    *Amend     `cbor:"26,keyasint,omitempty"`
	Decide   *Decide    `cbor:"27,keyasint,omitempty"`
	Feature  *Numbers   `cbor:"28,keyasint,omitempty"`
	Order    *Order     `cbor:"40,keyasint,omitempty"`
	Origin   *Origin    `cbor:"41,keyasint,omitempty"` // beside another one

	Offer      *Offer      `cbor:"29,keyasint,omitempty"`
	Accept     *Accept     `cbor:"30,keyasint,omitempty"`
	CloseOffer *CloseOffer `cbor:"31,keyasint,omitempty"`
	Cosign     *Cosign     `cbor:"32,keyasint,omitempty"`
	Witnessed  *Witnessed  `cbor:"33,keyasint,omitempty"`
	Erase      *Erase      `cbor:"34,keyasint,omitempty"`
	Pin        *Pin        `cbor:"35,keyasint,omitempty"`

	commandNext
}

// members returns the number of members that are set, without Spend and Origin.
func (c *Command) members() (count int) {
	for _, set := range [...]bool{
		c.Register != nil, c.Update != nil, c.Refresh != nil, c.Remove != nil, c.Expire != nil, c.Announce != nil,
		c.Attest != nil, c.Issue != nil, c.Peer != nil, c.Epoch != nil, c.Regrant != nil, c.Rules != nil,
		c.Member != nil, c.Admit != nil, c.Renew != nil, c.Redeem != nil, c.Policy != nil, c.Claim != nil,
		c.Settle != nil, c.Transfer != nil, c.Rebundle != nil, c.Revoke != nil, c.Amend != nil, c.Decide != nil,
		c.Feature != nil, c.Order != nil, c.Offer != nil, c.Accept != nil, c.CloseOffer != nil, c.Cosign != nil,
		c.Witnessed != nil, c.Erase != nil, c.Pin != nil, c.set(),
	} {
		if set {
			count++
		}
	}

	return count
}

// Weight is how many changes a command is at most.
func (c *Command) Weight() int {
	if n, isList := c.items(); isList {
		return n
	}

	return 1
}

// items returns the number of changes of a command that is a list of them.
func (c *Command) items() (n int, isList bool) {
	switch {
	case c.Renew != nil:
		return c.Renew.Renewals.Count(), true
	case c.Expire != nil:
		return len(c.Expire.RIDs), true
	case c.Announce != nil:
		return len(c.Announce.RIDs), true
	case c.Regrant != nil:
		return len(c.Regrant.Items), true
	}

	return 0, false
}

// OnlyRegistrations reports whether nothing changes but registrations, kept answers and
// used proofs.
func (b *Batch) OnlyRegistrations() bool {
	return !slices.ContainsFunc(b.Commands, func(command Command) bool {
		// A traced command is in the feed of commands, too.
		if _, traced := command.Change(); traced && command.Origin != nil {
			return true
		}

		switch {
		case command.Register != nil, command.Update != nil, command.Refresh != nil, command.Renew != nil,
			command.Remove != nil, command.Transfer != nil, command.Offer != nil, command.Accept != nil,
			command.CloseOffer != nil,
			command.Expire != nil, command.Announce != nil, command.Regrant != nil, command.Claim != nil,
			command.Settle != nil:
			return false
		}

		return command != Command{Spend: command.Spend, Origin: command.Origin}
	})
}

// Register registers a name or replaces a registration of the same owner.
type Register struct {
	Format        int                  `cbor:"1,keyasint"` // of the statement
	RID           directory.RID        `cbor:"2,keyasint"` // unless the name is held already
	Salt          signed.Salt          `cbor:"3,keyasint"`
	Caller        directory.Identity   `cbor:"4,keyasint"`
	Commissioning bool                 `cbor:"5,keyasint,omitempty"`
	Agent         string               `cbor:"6,keyasint"`
	Kind          directory.Kind       `cbor:"7,keyasint"`
	Document      []byte               `cbor:"8,keyasint"` // may be at rest, so that no member need compress it
	Lifetime      uint32               `cbor:"9,keyasint"` // seconds, granted
	Visibility    directory.Visibility `cbor:"10,keyasint"`
	IfMatch       []uint64             `cbor:"11,keyasint"` // null for any
	Granted       Granted              `cbor:"12,keyasint"`
	Present       bool                 `cbor:"13,keyasint,omitempty"` // If-Match: *
	Absent        bool                 `cbor:"14,keyasint,omitempty"` // If-None-Match: *
	// when the document ends by its own word, Unix seconds; 0 for never
	Until int64              `cbor:"15,keyasint,omitempty"`
	Made  *Made              `cbor:"16,keyasint,omitempty"`
	For   directory.Identity `cbor:"17,keyasint,omitzero"` // on whose behalf; zero for the caller's own
	// the source that the document names
	ImportedFrom string `cbor:"18,keyasint,omitempty"`
}

// Granted is policy's decision, and the owner and basis for which it was made: apply
// accepts no decision for another owner, or from before a policy or peering changed.
type Granted struct {
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

// Update puts another document in the place of the one that the statement of
// revision Statement is about.
type Update struct {
	Format        int                `cbor:"1,keyasint"`
	RID           directory.RID      `cbor:"2,keyasint"`
	Salt          signed.Salt        `cbor:"3,keyasint"`
	Caller        directory.Identity `cbor:"4,keyasint"`
	Commissioning bool               `cbor:"5,keyasint,omitempty"`
	Statement     uint64             `cbor:"6,keyasint"`
	Document      []byte             `cbor:"7,keyasint"` // as register's
	Lifetime      uint32             `cbor:"8,keyasint"` // 0 keeps the granted one
	IfMatch       []uint64           `cbor:"9,keyasint"`
	Granted       Granted            `cbor:"10,keyasint"`
	Until         int64              `cbor:"11,keyasint,omitempty"` // as register's
	Made          *Made              `cbor:"12,keyasint,omitempty"`
	Unchanged     bool               `cbor:"13,keyasint,omitempty"` // the document is the one that was restored
}

// Refresh sets a new deadline and nothing else.
type Refresh struct {
	RID           directory.RID      `cbor:"1,keyasint"`
	Caller        directory.Identity `cbor:"2,keyasint"`
	Commissioning bool               `cbor:"3,keyasint,omitempty"`
	Lifetime      uint32             `cbor:"4,keyasint"` // 0 keeps the granted one
	IfMatch       []uint64           `cbor:"5,keyasint"`
}

// Renew sets new deadlines of many registrations and nothing else.
type Renew struct {
	Caller        directory.Identity `cbor:"1,keyasint"`
	Commissioning bool               `cbor:"2,keyasint,omitempty"`
	Renewals      Renewals           `cbor:"3,keyasint"`
}

// Renewals are registrations and their lifetimes, as compact as can be: a log
// entry of them is decoded by every member.
type Renewals struct {
	RIDs      []byte   `cbor:"1,keyasint"`           // binary, one behind the other
	Lifetimes []uint32 `cbor:"2,keyasint,omitempty"` // one for each; empty if unchanged
}

type Remove struct {
	Format        int                `cbor:"1,keyasint"`
	RID           directory.RID      `cbor:"2,keyasint"`
	Caller        directory.Identity `cbor:"3,keyasint"`
	Commissioning bool               `cbor:"4,keyasint,omitempty"`
	IfMatch       []uint64           `cbor:"5,keyasint"`
}

// Sweep names registrations that the leader found due; apply looks again.
type Sweep struct {
	Format int             `cbor:"1,keyasint"`
	RIDs   []directory.RID `cbor:"2,keyasint"`
}

// Attest adds or replaces a node's signing key and its newest attestations.
type Attest struct {
	Node         spiffeid.ID `cbor:"1,keyasint"`
	Public       []byte      `cbor:"2,keyasint"`
	Attestations []string    `cbor:"3,keyasint"`
	Cosign       []byte      `cbor:"4,keyasint,omitempty"` // the key by which the node cosigns
}

// Revoke takes a signing key back, for good.
type Revoke struct {
	Key string `cbor:"1,keyasint"` // its RFC 7638 thumbprint
}

// Issue issues the key document again before it ends.
type Issue struct {
	After uint64 `cbor:"1,keyasint"` // seq of the one that it replaces
}

type Peer struct {
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

// Amend replaces a peering, if it still is as the operator has seen it.
type Amend struct {
	Was  Peer `cbor:"1,keyasint"` // without a state where there was none
	Peer Peer `cbor:"2,keyasint"`
	// Farewell is the request of the peer's operator by which the peer has ended the peering.
	Farewell *OperatorRequest `cbor:"3,keyasint,omitempty"`
}

// Rebundle is the bundle of a peer's bundle endpoint. It is taken over if the peering
// still has the bundle with which it was compared.
type Rebundle struct {
	Domain spiffeid.TrustDomain `cbor:"1,keyasint"`
	Held   directory.Hash       `cbor:"2,keyasint"` // SHA-256 of that
	Bundle []byte               `cbor:"3,keyasint"`
}

// Redeem makes a pending peering active by its invitation's secret. All members have the hash of
// the secret, so the hash alone redeems nothing.
type Redeem struct {
	Secret directory.Hash `cbor:"1,keyasint"` // its hash
	Peer   Peer           `cbor:"2,keyasint"`
	Shown  string         `cbor:"3,keyasint,omitempty"` // the secret
}

// Policy is the domain's policy, for all members. The log does not interpret its text.
type Policy struct {
	Text []byte `cbor:"1,keyasint"` // empty for the built-in policy
	// Replaces are the revisions of which the policy in force must have one; null for
	// any.
	Replaces *[]uint64 `cbor:"2,keyasint,omitempty"`
}

// Epoch begins the domain's history: the first command of every log, and of every
// history that was restored.
type Epoch struct {
	Epoch  uint64 `cbor:"1,keyasint"` // Unix seconds
	Reason string `cbor:"2,keyasint"`
}

// Regrant puts policy's new answers in the place of the old ones.
type Regrant struct {
	Items []RegrantItem `cbor:"1,keyasint"`
}

type RegrantItem struct {
	RID       directory.RID `cbor:"1,keyasint"`
	Statement uint64        `cbor:"2,keyasint"` // which contents policy was asked about
	Granted   Granted       `cbor:"3,keyasint"`
	// the m of each grant, as in made; apply makes it where it isn't there
	Shown []byte `cbor:"4,keyasint,omitempty"`
}

// EncodeBatch encodes a log entry of commands that are encoded already.
func EncodeBatch(version uint, now int64, commands []cbor.RawMessage) ([]byte, error) {
	return Marshal(struct {
		Version  uint              `cbor:"1,keyasint"`
		Time     int64             `cbor:"2,keyasint"`
		Commands []cbor.RawMessage `cbor:"3,keyasint"`
	}{version, now, commands})
}

// DecodeBatch decodes a log entry. It refuses unknown members and versions, because a
// newer release may have written them: to skip them would be to disagree with the other
// members.
func DecodeBatch(data []byte) (*Batch, error) {
	var batch Batch

	err := Unmarshal(data, &batch)
	if err == nil && readsLog(batch.Version) {
		return &batch, nil
	}

	// The version alone tells an entry of a newer release from a damaged one.
	var v struct {
		Version uint `cbor:"1,keyasint"`
	}
	if err := cbor.Unmarshal(data, &v); err != nil {
		return nil, fmt.Errorf("a log entry is damaged: %w", err)
	}

	if !readsLog(v.Version) {
		return nil, NewerLog(v.Version, NewestLogVersion)
	}

	return nil, fmt.Errorf("a log entry of version %d has a command or member that this release does not read: %w: %w",
		v.Version, ErrNewer, err)
}

func GrantsOf(gs []directory.Grant) []grant {
	out := make([]grant, len(gs))
	for i, g := range gs {
		out[i] = grant(g)
	}

	return out
}

// wholeMesh is the grant of most registrations. It is kept once for all.
var wholeMesh = []directory.Grant{{Audience: directory.Mesh, All: true}}

func (g Granted) List() []directory.Grant {
	out := make([]directory.Grant, len(g.Grants))
	for i, w := range g.Grants {
		out[i] = directory.Grant(w)
	}

	if EqualGrants(out, wholeMesh) {
		return wholeMesh
	}

	return out
}

// Claim makes a request the first with its key, or finds the first one's answer. Its
// members are directory.Claim's.
type Claim struct {
	Key    directory.Hash `cbor:"1,keyasint"`
	Caller directory.Hash `cbor:"2,keyasint"`
	Body   directory.Hash `cbor:"3,keyasint"`
	Holder directory.Hash `cbor:"4,keyasint"`
	Lease  uint32         `cbor:"5,keyasint"`
	Window uint32         `cbor:"6,keyasint"`
}

func (c *Claim) Check() error {
	if c.Window == 0 || c.Window > maxWindow || c.Lease == 0 || c.Lease > 2*maxWindow {
		return directory.Refuse(directory.BadRequest, "an Idempotency-Key is kept for 1 to %d seconds", maxWindow)
	}

	return nil
}

// Settle reports the outcome of a claim. Its members are directory.Settlement's.
type Settle struct {
	Key     directory.Hash `cbor:"1,keyasint"`
	Holder  directory.Hash `cbor:"2,keyasint"`
	Release bool           `cbor:"3,keyasint,omitempty"`
	Answer  *Answer        `cbor:"4,keyasint,omitempty"`
}

func (c *Settle) Check() error {
	if c.Answer != nil && (len(c.Answer.Body) > MaxAnswer || c.Answer.size()-len(c.Answer.Body) > maxAnswerHeader) {
		return directory.Refuse(directory.TooLarge, "an answer to an Idempotency-Key is kept up to %d bytes", MaxAnswer)
	}

	return nil
}

// Answer is a directory.StoredAnswer.
type Answer struct {
	Status      int               `cbor:"1,keyasint,omitempty"`
	ContentType string            `cbor:"2,keyasint,omitempty"`
	Body        []byte            `cbor:"3,keyasint,omitempty"`
	Problem     directory.Problem `cbor:"4,keyasint,omitempty"`
	Detail      string            `cbor:"5,keyasint,omitempty"`
	Pointer     string            `cbor:"6,keyasint,omitempty"`
}

func (a *Answer) size() int {
	if a == nil {
		return 0
	}

	return len(a.Body) + len(a.ContentType) + len(a.Detail) + len(a.Pointer)
}

// A Spend is a proof that is good for one command, and until when it could be shown
// again (Unix seconds of committed time).
type Spend struct {
	Proof directory.Hash `cbor:"1,keyasint"`
	Until int64          `cbor:"2,keyasint"`
}

func (p Spend) Compare(spend Spend) int {
	if c := cmp.Compare(p.Until, spend.Until); c != 0 {
		return c
	}

	return bytes.Compare(p.Proof[:], spend.Proof[:])
}

// Transfer makes a registration another identity's by an operator's will and changes nothing
// else of it. Only this and Accept change an owner (TRUST-008).
type Transfer struct {
	Format    int                `cbor:"1,keyasint"`
	RID       directory.RID      `cbor:"2,keyasint"`
	Salt      signed.Salt        `cbor:"3,keyasint"`
	Caller    directory.Identity `cbor:"4,keyasint"`
	Statement uint64             `cbor:"6,keyasint"` // which contents policy was asked about
	IfMatch   []uint64           `cbor:"7,keyasint"`
	Granted   Granted            `cbor:"8,keyasint"` // its owner is the new one
	Made      *Made              `cbor:"9,keyasint,omitempty"`
	Agent     string             `cbor:"10,keyasint,omitempty"` // the registration's name
}

// Offer has a registration's owner offer it to another identity, as its contents are at the
// statement of revision Statement. It changes nothing of the registration.
type Offer struct {
	RID       directory.RID      `cbor:"1,keyasint"`
	Caller    directory.Identity `cbor:"2,keyasint"`
	To        directory.Identity `cbor:"3,keyasint"`
	Statement uint64             `cbor:"4,keyasint"`
	Lifetime  uint32             `cbor:"5,keyasint"` // seconds
	IfMatch   []uint64           `cbor:"6,keyasint"`
}

// Accept makes the caller, to whom a registration is offered, its owner and the registrant of
// its contents.
type Accept struct {
	Format    int                `cbor:"1,keyasint"`
	RID       directory.RID      `cbor:"2,keyasint"`
	Salt      signed.Salt        `cbor:"3,keyasint"`
	Caller    directory.Identity `cbor:"4,keyasint"`
	Statement uint64             `cbor:"5,keyasint"` // of the contents about which policy was asked
	IfMatch   []uint64           `cbor:"6,keyasint"`
	Granted   Granted            `cbor:"7,keyasint"` // its owner is the caller
	Made      *Made              `cbor:"8,keyasint,omitempty"`
}

// CloseOffer ends an offer: its owner withdraws it, or the identity that it is made to
// declines.
type CloseOffer struct {
	RID     directory.RID      `cbor:"1,keyasint"`
	Caller  directory.Identity `cbor:"2,keyasint"`
	IfMatch []uint64           `cbor:"3,keyasint"`
}

// A Member is the address of a member's directory and the versions that its release reads, or
// the removal of a member: its signing key is then no longer valid for the domain. Raft's
// configuration determines the members.
type Member struct {
	ID    spiffeid.ID `cbor:"1,keyasint"`
	API   string      `cbor:"2,keyasint,omitempty"`
	Gone  bool        `cbor:"3,keyasint,omitempty"`
	Reads Versions    `cbor:"4,keyasint"`
	// Listeners are the addresses and ports, as ADDRESS:PORT in ascending order, at which the
	// member listens: the domain's gateways never connect to them.
	Listeners []string `cbor:"5,keyasint,omitempty"`
}

// SameWord reports whether two members declare the same.
func (m Member) SameWord(other Member) bool {
	return m.API == other.API && m.Reads.Equal(other.Reads) && slices.Equal(m.Listeners, other.Listeners)
}

// An Admission is an operator's permission for a node to become a member, once; or for the
// nodes that match a pattern, while the domain has fewer than Max members that do.
type Admission struct {
	ID      spiffeid.ID `cbor:"1,keyasint"`           // zero with a Pattern
	Until   int64       `cbor:"2,keyasint"`           // Unix seconds of committed time; 0 withdraws it
	Pattern string      `cbor:"3,keyasint,omitempty"` // an ID that may end in *
	Max     uint32      `cbor:"4,keyasint,omitempty"` // 0 withdraws it
}

// A Verdict records that all grants are as a leader with that basis (consensus.Config.Basis)
// decides them under the policy and peerings of that revision. So a new leader need not decide
// them again. It is never modified.
type Verdict struct {
	Policy uint64         `cbor:"1,keyasint"` // PolicyState.Basis
	Basis  directory.Hash `cbor:"2,keyasint"`
}

// Decide records that all grants are decided, or that they are not, when a leader with
// another basis begins.
type Decide struct {
	Verdict *Verdict `cbor:"1,keyasint"` // null withdraws the last one
}

func (p *Renewals) Count() int { return len(p.RIDs) / directory.RIDBinary }

// At returns one of them.
func (p *Renewals) At(i int) directory.Renewal {
	r := directory.Renewal{RID: directory.RIDOf([directory.RIDBinary]byte(p.RIDs[i*directory.RIDBinary:]))}
	if p.Lifetimes != nil {
		r.Lifetime = p.Lifetimes[i]
	}

	return r
}

// Check refuses renewals that no member of this release sends.
func (p *Renewals) Check() error {
	n := p.Count()
	if n == 0 || n > directory.MaxRenewals || len(p.RIDs)%directory.RIDBinary != 0 ||
		p.Lifetimes != nil && len(p.Lifetimes) != n {
		return directory.Refuse(directory.BadRequest, "1 to %d registrations are refreshed at once",
			directory.MaxRenewals)
	}

	return nil
}

func PackRenewals(items []directory.Renewal) Renewals {
	var renewals Renewals
	for i, item := range items {
		renewals.RIDs = item.RID.AppendBinary(renewals.RIDs)
		if item.Lifetime != 0 && renewals.Lifetimes == nil {
			renewals.Lifetimes = make([]uint32, len(items))
		}

		if item.Lifetime != 0 {
			renewals.Lifetimes[i] = item.Lifetime
		}
	}

	return renewals
}

// Rules are an operator's limits on names and their owners. A leader whose configuration
// has other rules than the domain puts its own into the log, so that all members apply
// the same rules to every registration, and no request can race another.
type Rules struct {
	// Hold is for how many seconds a name that was removed or has expired is for
	// its former owner alone (jimenez 7.1, AD-034); 0 frees it at once.
	Hold uint32 `cbor:"1,keyasint,omitempty"`
	// PerOwner is the number of registrations that one identity may own; 0 is any number.
	// Commissioning tools have no limit for themselves.
	PerOwner uint32 `cbor:"2,keyasint,omitempty"`
	// Owners are those of whom another number holds; of several the first that matches.
	Owners []OwnerRule `cbor:"3,keyasint,omitempty"`
	// BytesPerOwner bounds the documents of one identity, and OwnersBytes says of whom
	// another bound holds, as Owners does.
	BytesPerOwner uint64      `cbor:"4,keyasint,omitempty"`
	OwnersBytes   []OwnerRule `cbor:"5,keyasint,omitempty"`
	// Registrations and Bytes bound the registrations of the whole domain.
	Registrations uint64 `cbor:"6,keyasint,omitempty"`
	Bytes         uint64 `cbor:"7,keyasint,omitempty"`
}

// An OwnerRule is how much each of some identities may own; 0 is any amount.
type OwnerRule struct {
	Who  directory.IdentityPattern `cbor:"1,keyasint"`
	Most uint64                    `cbor:"2,keyasint"`
}

func (r *Rules) Equal(rules *Rules) bool {
	return r.Hold == rules.Hold && r.PerOwner == rules.PerOwner && r.BytesPerOwner == rules.BytesPerOwner &&
		r.Registrations == rules.Registrations && r.Bytes == rules.Bytes &&
		slices.Equal(r.Owners, rules.Owners) && slices.Equal(r.OwnersBytes, rules.OwnersBytes)
}

// Numbers are the versions that a domain writes: of its log, of its snapshots and of the
// messages between its members, and the format of each signed structure. They are
// replicated state, which a Feature command changes.
type Numbers struct {
	Log      uint                      `cbor:"1,keyasint"`
	Snapshot uint                      `cbor:"2,keyasint"`
	Wire     uint                      `cbor:"3,keyasint"`
	Formats  map[signed.Structure]uint `cbor:"4,keyasint,omitempty"` // absent is 1
}

// Format returns the format in which a structure is written.
func (n Numbers) Format(structure signed.Structure) uint {
	return max(n.Formats[structure], 1)
}

// Equal reports whether n and other say the same.
func (n Numbers) Equal(other Numbers) bool {
	return n.Log == other.Log && n.Snapshot == other.Snapshot && n.Wire == other.Wire &&
		maps.Equal(n.Normal().Formats, other.Normal().Formats)
}

// Normal returns n without the structures that are written in format 1: equal
// numbers have one encoding.
func (n Numbers) Normal() Numbers {
	formats := map[signed.Structure]uint{}
	for structure, format := range n.Formats {
		if format > 1 {
			formats[structure] = format
		}
	}

	if n.Formats = formats; len(formats) == 0 {
		n.Formats = nil
	}

	return n
}

// Raises reports whether n has a higher format of a structure than before.
func (n Numbers) Raises(before Numbers) bool {
	for structure := range n.Formats {
		if n.Format(structure) > before.Format(structure) {
			return true
		}
	}

	return false
}

// FirstNumbers returns the versions and formats with which a domain begins.
func FirstNumbers() Numbers {
	return Numbers{Log: FirstVersion, Snapshot: FirstVersion, Wire: FirstVersion}
}

// FirstVersion is the first version of the log, of snapshots and of the messages between members.
// A domain begins with it, and every release reads every version from it on.
const FirstVersion = 1

func EqualGrants(a, b []directory.Grant) bool {
	return slices.EqualFunc(a, b, func(x, y directory.Grant) bool {
		return x.Audience == y.Audience && x.All == y.All && slices.Equal(x.Reg, y.Reg) && slices.Equal(x.Doc, y.Doc)
	})
}

// Owner returns the owner of a new registration: the identity on whose behalf it is made,
// or the caller.
func (c *Register) Owner() directory.Identity {
	if c.For.IsZero() {
		return c.Caller
	}

	return c.For
}
