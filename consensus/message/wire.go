package message

import (
	"errors"

	"github.com/fxamacker/cbor/v2"
	"github.com/hashicorp/raft"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/consensus/history"
	"github.com/roster-mesh/roster/consensus/state"
	"github.com/roster-mesh/roster/consensus/transport"
	"github.com/roster-mesh/roster/directory"
)

// A Message is a request or answer between members, besides Raft's own messages.
type Message interface{ onWire() }

func (*Request) onWire()         {}
func (*Writes) onWire()          {}
func (*Answers) onWire()         {}
func (*PresenceRequest) onWire() {}
func (*PresenceAnswer) onWire()  {}
func (*ReadRequest) onWire()     {}
func (*TermRequest) onWire()     {}
func (*TermAnswer) onWire()      {}
func (*VouchRequest) onWire()    {}
func (*VouchAnswer) onWire()     {}
func (*DecisionRequest) onWire() {}
func (*DecisionAnswer) onWire()  {}
func (*CommandRequest) onWire()  {}
func (*CommandAnswer) onWire()   {}
func (*EntriesRequest) onWire()  {}
func (*EntriesAnswer) onWire()   {}
func (*RootRequest) onWire()     {}
func (*RootAnswer) onWire()      {}

func (*StatementsRequest) onWire() {}
func (*StatementsAnswer) onWire()  {}

func (*Aside) onWire()           {}
func (*ContactsRequest) onWire() {}
func (*ContactsAnswer) onWire()  {}
func (*JoinRequest) onWire()     {}
func (*JoinAnswer) onWire()      {}

// lenient decodes as package state does, but ignores unknown members.
var lenient, _ = cbor.DecOptions{
	DupMapKey:       cbor.DupMapKeyEnforcedAPF,
	IndefLength:     cbor.IndefLengthForbidden,
	TagsMd:          cbor.TagsForbidden,
	TextUnmarshaler: cbor.TextUnmarshalerTextString,
}.DecMode()

// Unmarshal decodes a message and ignores unknown members.
func Unmarshal(data []byte, into Message) error { return lenient.Unmarshal(data, into) }

// MaxBody bounds a message, in bytes: a change of a peering has the bundle before and after it.
const MaxBody = 2 << 20

// TypeCBOR is the media type of messages.
const TypeCBOR = "application/cbor"

// Aside is a question to the leader, or its answer.
type Aside struct {
	Text []byte `cbor:"1,keyasint"`
}

// A follower has contact with the leader alone. A ContactsRequest asks the leader for the time
// since its last contact with each other member.
type (
	ContactsRequest struct{}
	ContactsAnswer  struct {
		Silent map[spiffeid.ID]int64  `cbor:"1,keyasint"`           // milliseconds
		States map[spiffeid.ID]string `cbor:"2,keyasint,omitempty"` // the leader's judgements
		// Duplicates are addresses of second processes with the identities of members.
		Duplicates map[spiffeid.ID]string `cbor:"3,keyasint,omitempty"`
	}
)

// A PresenceRequest carries a follower's time to the leader. The leader's PresenceAnswer has
// its position. So the follower knows whether it has caught up, and each knows whether the
// follower's clock is right.
type PresenceRequest struct {
	Time int64 `cbor:"1,keyasint"`           // Unix milliseconds, by its clock
	Kept int64 `cbor:"2,keyasint,omitempty"` // the domain's time, as it keeps it; 0 if it doesn't yet
}

type PresenceAnswer struct {
	Epoch    uint64 `cbor:"1,keyasint"`
	Revision uint64 `cbor:"2,keyasint"`
	// Time is when the leader answered (Unix milliseconds), if its own clock is known to be
	// right.
	Time int64 `cbor:"3,keyasint,omitempty"`
	// Kept is the domain's time then: another than Time after a step of clocks that nothing has
	// confirmed. 0 as Time.
	Kept int64 `cbor:"4,keyasint,omitempty"`

	state.PresenceNext
}

// A VouchRequest asks a voter whether a node is a voter.
type VouchRequest struct {
	ID spiffeid.ID `cbor:"1,keyasint"`
}

type VouchAnswer struct {
	Member bool `cbor:"1,keyasint"`
}

// A DecisionRequest asks a member for the decisions of operators, as far as it has applied them.
type DecisionRequest struct {
	Entry uint64 `cbor:"1,keyasint,omitempty"` // and whether it has applied this entry of the log
}

// A DecisionAnswer answers it.
type DecisionAnswer struct {
	Decision state.Decision `cbor:"1,keyasint"`
	Entry    directory.Hash `cbor:"2,keyasint,omitzero"` // SHA-256 of the entry, if it is applied and not dropped yet
	Bundles  directory.Hash `cbor:"3,keyasint,omitzero"` // of peers, in force on the voter: directory.BundlesHash
}

// A CommandRequest asks a voter whether it would acknowledge an operator's command.
type CommandRequest struct {
	Command state.Command `cbor:"1,keyasint"`
}

// A CommandAnswer answers it.
type CommandAnswer struct {
	Refusal string `cbor:"1,keyasint,omitempty"` // empty if it would
}

// A StatementsRequest asks another member for a page of the history of registrations.
type StatementsRequest struct {
	Behind []byte `cbor:"1,keyasint,omitempty"` // the key of the last record of the page before
}

// A StatementsAnswer has the page; none behind the last one.
type StatementsAnswer struct {
	Records []history.Record `cbor:"1,keyasint,omitempty"`
	Last    []byte           `cbor:"2,keyasint,omitempty"`
	Lacks   bool             `cbor:"3,keyasint,omitempty"` // the history of that member is incomplete
}

// A RootRequest asks another member for the root of an epoch's ledger at a size.
type RootRequest struct {
	Epoch uint64 `cbor:"1,keyasint"`
	Size  uint64 `cbor:"2,keyasint"`
}

// A RootAnswer has it, at the size of the member's own ledger if that is smaller; 0 if it has none.
type RootAnswer struct {
	Size uint64         `cbor:"1,keyasint,omitempty"`
	Root directory.Hash `cbor:"2,keyasint"`
}

// An EntriesRequest asks another member for entries of an epoch's ledger.
type EntriesRequest struct {
	Epoch uint64 `cbor:"1,keyasint"`
	From  uint64 `cbor:"2,keyasint"`
	// Start asks for the payload of the first entry instead.
	Start bool `cbor:"3,keyasint,omitempty"`
}

// An EntriesAnswer has those that the member has, from the first one on, as bundles have them.
type EntriesAnswer struct {
	Entries []byte `cbor:"1,keyasint,omitempty"`
	Start   []byte `cbor:"2,keyasint,omitempty"` // empty if the member doesn't have it, or doesn't know the question
}

// A JoinRequest describes the member that a node wants to be.
type JoinRequest struct {
	Address  string             `cbor:"1,keyasint"` // of its cluster listener
	API      string             `cbor:"2,keyasint,omitempty"`
	Reader   bool               `cbor:"3,keyasint,omitempty"` // without a vote
	Epoch    uint64             `cbor:"4,keyasint,omitempty"` // how far it is
	Revision uint64             `cbor:"5,keyasint,omitempty"`
	Expect   int                `cbor:"6,keyasint,omitempty"` // with how many it would begin a domain
	Found    []transport.Member `cbor:"7,keyasint,omitempty"` // whom it has found for that, itself too, by id
	Reads    state.Versions     `cbor:"8,keyasint"`           // the versions that its release reads
	// Listeners are state.Member's. A release that doesn't know them ignores them.
	Listeners []string `cbor:"9,keyasint,omitempty"`
	// Empty says that the node begins with an empty disk and waits to be let in. A release that doesn't
	// know it lets the node in without an admission if it is a member.
	Empty bool `cbor:"10,keyasint,omitempty"`
	// Process is a random number of the process, for which a second one of the same identity has another.
	Process uint64 `cbor:"11,keyasint,omitempty"`
	// Host is where the receiver has the request from; it is not part of the message.
	Host string `cbor:"-"`
	// History is the history that the node is in, or while it is Empty, the one that it would begin.
	// Fresh says that it came into that one since it was started.
	History []byte `cbor:"12,keyasint,omitempty"`
	Fresh   bool   `cbor:"13,keyasint,omitempty"`
}

// A JoinAnswer says that the leader has handled the request, or which member leads, or
// that this node is in no domain either.
type JoinAnswer struct {
	Done    bool              `cbor:"1,keyasint,omitempty"` // the leader has seen to it, as far as it can yet
	Leader  *transport.Member `cbor:"2,keyasint,omitempty"`
	Empty   *JoinRequest      `cbor:"3,keyasint,omitempty"`
	Problem directory.Problem `cbor:"4,keyasint,omitempty"`
	Detail  string            `cbor:"5,keyasint,omitempty"`
	// Duplicate says that another process has this identity and its seat.
	Duplicate bool `cbor:"6,keyasint,omitempty"`
	// History is that of the node that answers, and Voter whether it votes there.
	History []byte `cbor:"7,keyasint,omitempty"`
	Voter   bool   `cbor:"8,keyasint,omitempty"`
}

// A ReadRequest asks the leader how far a linearizable read must see; a PresenceAnswer
// answers it.
type ReadRequest struct{}

// A TermRequest asks a member for its term.
type TermRequest struct {
	Term uint64 `cbor:"1,keyasint"` // the leader's
}

type TermAnswer struct {
	Term uint64 `cbor:"1,keyasint"`
	// Unable says that the member can't acknowledge entries: it has failed, or its disk hangs.
	Unable bool `cbor:"2,keyasint,omitempty"`
	// Process is that of a JoinRequest.
	Process uint64 `cbor:"3,keyasint,omitempty"`
}

// A CommitNotice is how far a leader's log is committed, and on its disk.
type CommitNotice struct {
	Term  uint64 `cbor:"1,keyasint"` // the leader's
	Index uint64 `cbor:"2,keyasint"`
	Of    uint64 `cbor:"3,keyasint"` // the term of the entry there
}

// AppendEntries returns the notice as the leader's message to Raft.
func (t *CommitNotice) AppendEntries(leader transport.Member) *raft.AppendEntriesRequest {
	id, address := []byte(leader.ID.String()), []byte(leader.Address)

	return &raft.AppendEntriesRequest{
		RPCHeader:    raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: id, Addr: address},
		Term:         t.Term,
		PrevLogEntry: t.Index, PrevLogTerm: t.Of, LeaderCommitIndex: t.Index,
	}
}

type RestoreAnswer struct {
	Done    Restored          `cbor:"1,keyasint"`
	Problem directory.Problem `cbor:"2,keyasint,omitempty"`
	Detail  string            `cbor:"3,keyasint,omitempty"`
	Faults  []RestoreFault    `cbor:"4,keyasint,omitempty"`
}

func (*RestoreAnswer) onWire() {}

// A RestoreFault is a consequence of a restore that its operator has to accept.
type RestoreFault struct {
	Pointer string `cbor:"1,keyasint"`
	Detail  string `cbor:"2,keyasint"`
}

// Refuse fills the answer with a refusal.
func (a *RestoreAnswer) Refuse(err error) {
	refusal := ReplyOf(directory.Outcome{}, err)
	a.Problem, a.Detail = refusal.Problem, refusal.Detail

	if refused, ok := errors.AsType[*directory.Error](err); ok {
		for _, fault := range refused.Violations {
			a.Faults = append(a.Faults, RestoreFault{fault.Pointer, fault.Detail})
		}
	}
}

// Err returns the refusal of the answer; nil if there is none.
func (a *RestoreAnswer) Err() error {
	if a.Problem == "" {
		return nil
	}

	refused := &directory.Error{Problem: a.Problem, Detail: a.Detail}
	for _, fault := range a.Faults {
		refused.Violations = append(refused.Violations,
			directory.Violation{Pointer: fault.Pointer, Detail: fault.Detail})
	}

	return refused
}

// Restored is the result of a restore.
type Restored struct {
	Backup        directory.Position // that was restored
	Before        directory.Position // where the domain was
	Now           directory.Position // where it is: in a new epoch
	Registrations int
	Lost          int // changes since the backup
	Exported      int // registrations that peers drop until their owners refresh them
}

// wirePosition is a directory.Position as members encode it: a map, not a text.
type wirePosition struct{ Epoch, Revision uint64 }

type wireRestored struct {
	Backup        wirePosition `cbor:"1,keyasint"`
	Before        wirePosition `cbor:"2,keyasint"`
	Now           wirePosition `cbor:"3,keyasint"`
	Registrations int          `cbor:"4,keyasint"`
	Lost          int          `cbor:"5,keyasint,omitempty"`
	Exported      int          `cbor:"6,keyasint,omitempty"`
}

// MarshalCBOR implements cbor.Marshaler.
func (r Restored) MarshalCBOR() ([]byte, error) {
	return state.Marshal(wireRestored{
		wirePosition(r.Backup), wirePosition(r.Before), wirePosition(r.Now), r.Registrations, r.Lost, r.Exported,
	})
}

// UnmarshalCBOR implements cbor.Unmarshaler.
func (r *Restored) UnmarshalCBOR(data []byte) error {
	var w wireRestored

	err := lenient.Unmarshal(data, &w)
	*r = Restored{
		directory.Position(w.Backup), directory.Position(w.Before), directory.Position(w.Now), w.Registrations,
		w.Lost, w.Exported,
	}

	return err
}
