package message

import (
	"github.com/fxamacker/cbor/v2"
	"github.com/hashicorp/raft"
	"github.com/roster-mesh/roster/consensus/state"
	"github.com/roster-mesh/roster/consensus/transport"
	"github.com/roster-mesh/roster/directory"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// A wireMessage is what members send each other besides Raft's own messages:
// requests and answers, each with a method onWire. They grow by members: a reader
// ignores those that it doesn't know, and a sender relies on one only from the wire
// version on that has it (federation.md, "Formats over time"). What goes into the
// log is read by decodeBatch alone, which ignores nothing.
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
func (*Aside) onWire()           {}
func (*ContactsRequest) onWire() {}
func (*ContactsAnswer) onWire()  {}
func (*JoinRequest) onWire()     {}
func (*JoinAnswer) onWire()      {}

// lenient reads messages: as decoding does, but members that it doesn't know are
// passed over.
var lenient, _ = cbor.DecOptions{
	DupMapKey:       cbor.DupMapKeyEnforcedAPF,
	IndefLength:     cbor.IndefLengthForbidden,
	TagsMd:          cbor.TagsForbidden,
	TextUnmarshaler: cbor.TextUnmarshalerTextString,
}.DecMode()

func Unmarshal(data []byte, into Message) error { return lenient.Unmarshal(data, into) }

// maxBody bounds a message, in bytes.
const MaxBody = 1 << 20

// typeCBOR is the media type of messages.
const TypeCBOR = "application/cbor"

// An asideWord is a question to the leader, and its answer.
type Aside struct {
	Text []byte `cbor:"1,keyasint"`
}

// Who follows hears the leader alone. A contactsWord asks that for how long it has not
// heard the others.
type (
	ContactsRequest struct{}
	ContactsAnswer  struct {
		Silent map[spiffeid.ID]int64 `cbor:"1,keyasint"` // milliseconds
	}
)

// A presenceWord is what a follower tells its leader now and then, and a
// presenceAnswer is how far the leader is. So the follower knows whether it has
// caught up, which Raft does not tell it, and each knows whether the follower's clock
// is right.
type PresenceRequest struct {
	Time int64 `cbor:"1,keyasint"` // Unix milliseconds, by its clock
}

type PresenceAnswer struct {
	Epoch    uint64 `cbor:"1,keyasint"`
	Revision uint64 `cbor:"2,keyasint"`
	// Time is when the leader answered (Unix milliseconds), if its own clock is known to be
	// right.
	Time int64 `cbor:"3,keyasint,omitempty"`

	state.PresenceNext
}

// vouchWord asks a member whether it knows of another.
type VouchRequest struct {
	ID spiffeid.ID `cbor:"1,keyasint"`
}

type VouchAnswer struct {
	Member bool `cbor:"1,keyasint"`
}

// A joinWord says what a node wants to be.
type JoinRequest struct {
	Address  string             `cbor:"1,keyasint"` // of its cluster listener
	API      string             `cbor:"2,keyasint,omitempty"`
	Reader   bool               `cbor:"3,keyasint,omitempty"` // without a vote
	Epoch    uint64             `cbor:"4,keyasint,omitempty"` // how far it is
	Revision uint64             `cbor:"5,keyasint,omitempty"`
	Expect   int                `cbor:"6,keyasint,omitempty"` // with how many it would begin a domain
	Found    []transport.Member `cbor:"7,keyasint,omitempty"` // whom it has found for that, itself too, by id
	Reads    state.Versions     `cbor:"8,keyasint"`           // what its release reads
}

// A joinAnswer says that the door is the leader's and what came of it; or who
// leads; or that there is no domain here either.
type JoinAnswer struct {
	Done    bool              `cbor:"1,keyasint,omitempty"` // the leader has seen to it, as far as it can yet
	Leader  *transport.Member `cbor:"2,keyasint,omitempty"`
	Empty   *JoinRequest      `cbor:"3,keyasint,omitempty"`
	Problem directory.Problem `cbor:"4,keyasint,omitempty"`
	Detail  string            `cbor:"5,keyasint,omitempty"`
}

// A readWord asks the leader how far a linearizable read must see; it answers
// with a presenceAnswer.
type ReadRequest struct{}

// A termWord asks a member which term it is in.
type TermRequest struct {
	Term uint64 `cbor:"1,keyasint"` // the leader's
}

type TermAnswer struct {
	Term uint64 `cbor:"1,keyasint"`
}

// told is how far a leader's log is committed, and on its disk.
type CommitNotice struct {
	Term  uint64 `cbor:"1,keyasint"` // the leader's
	Index uint64 `cbor:"2,keyasint"`
	Of    uint64 `cbor:"3,keyasint"` // the term of the entry there
}

// request is t as that leader says it to Raft.
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
}

func (*RestoreAnswer) onWire() {}

// Restored is what a restore did.
type Restored struct {
	Backup        directory.Position `cbor:"1,keyasint"` // that was restored
	Before        directory.Position `cbor:"2,keyasint"` // where the domain was
	Now           directory.Position `cbor:"3,keyasint"` // where it is: in a new epoch
	Registrations int                `cbor:"4,keyasint"`
}
