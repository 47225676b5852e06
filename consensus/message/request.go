package message

import (
	"errors"
	"fmt"
	"slices"

	"github.com/fxamacker/cbor/v2"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/consensus/state"
	"github.com/roster-mesh/roster/directory"
)

// A Request is a validated change with its caller, as a follower hands it to the
// leader: exactly one member is set.
type Request struct {
	Register *Register       `cbor:"1,keyasint,omitempty"`
	Refresh  *Refresh        `cbor:"2,keyasint,omitempty"`
	Remove   *Remove         `cbor:"3,keyasint,omitempty"`
	Peer     *state.Peer     `cbor:"4,keyasint,omitempty"`
	Attest   *state.Attest   `cbor:"5,keyasint,omitempty"`
	Order    *Order          `cbor:"6,keyasint,omitempty"`
	Renew    *Renew          `cbor:"7,keyasint,omitempty"`
	Redeem   *state.Redeem   `cbor:"8,keyasint,omitempty"`
	Policy   *state.Policy   `cbor:"9,keyasint,omitempty"`
	Claim    *state.Claim    `cbor:"10,keyasint,omitempty"`
	Settle   *state.Settle   `cbor:"11,keyasint,omitempty"`
	Spend    *state.Spend    `cbor:"12,keyasint,omitempty"`
	Transfer *Transfer       `cbor:"13,keyasint,omitempty"`
	Rebundle *state.Rebundle `cbor:"14,keyasint,omitempty"`
	Revoke   *state.Revoke   `cbor:"15,keyasint,omitempty"`
	Amend    *state.Amend    `cbor:"16,keyasint,omitempty"`
	Offer    *Offer          `cbor:"17,keyasint,omitempty"`
	Cosign   *Cosign         `cbor:"18,keyasint,omitempty"`
	Erase    *state.Erase    `cbor:"19,keyasint,omitempty"`
	Pin      *state.Pin      `cbor:"20,keyasint,omitempty"`
	// Witnessed is the leader's own.
	Witnessed *state.Witnessed `cbor:"-"`

	// Operator is the operator's request that asks for the change; nil if none does.
	Operator *state.OperatorRequest `cbor:"40,keyasint,omitempty"`

	// Trace is the span of the request in W3C Trace Context's form, empty if it is not recorded.
	// Members of a release without it ignore it.
	Trace string `cbor:"41,keyasint,omitempty"`

	// Mark is state.Origin's.
	Mark []byte `cbor:"42,keyasint,omitempty"`

	// From is the member that sent the request; zero for one of this member.
	From spiffeid.ID `cbor:"-"`
}

// DecodeRequest decodes a request of a member.
func DecodeRequest(raw []byte) (*Request, error) {
	r := &Request{}
	return r, Unmarshal(raw, r)
}

// Origin returns the origin of a request's command, for the member that leads.
func (r *Request) Origin(leader spiffeid.ID) *state.Origin {
	origin := &state.Origin{From: r.From, Operator: r.Operator, Mark: r.Mark}
	if origin.From.IsZero() {
		origin.From = leader
	}

	return origin
}

// TakesOrders reports whether a request may be an operator's order.
func (r *Request) TakesOrders() bool {
	return r.Peer != nil || r.Amend != nil || r.Policy != nil || r.Revoke != nil || r.Order != nil || r.Erase != nil ||
		r.Transfer != nil
}

// Weight is the number of changes that a request counts for. A claim may bring an answer back,
// so a message takes only as many claims as fit into the answers' message.
func (r *Request) Weight() int {
	switch {
	case r.Renew != nil:
		return r.Renew.Renewals.Count()
	case r.Claim != nil:
		return MaxChanges * state.MaxAnswer / (MaxBody - state.MaxAnswer*4)
	}

	return 1
}

type Caller struct {
	Identity      directory.Identity `cbor:"1,keyasint"`
	Commissioning bool               `cbor:"2,keyasint,omitempty"`
	RequestID     string             `cbor:"3,keyasint,omitempty"`
	Proof         directory.Hash     `cbor:"4,keyasint,omitzero"`
	ProofUntil    int64              `cbor:"5,keyasint,omitempty"`
	PolicyVersion *uint64            `cbor:"6,keyasint,omitempty"`
}

// Caller returns the caller of a change of registrations; the zero value for other
// requests.
func (r *Request) Caller() Caller {
	if caller := r.caller(); caller != nil {
		return *caller
	}

	return Caller{}
}

// SetCommissioning sets whether the caller of a change of registrations may change those of others.
func (r *Request) SetCommissioning(commissioning bool) {
	if caller := r.caller(); caller != nil {
		caller.Commissioning = commissioning
	}
}

func (r *Request) caller() *Caller {
	switch {
	case r.Register != nil:
		return &r.Register.Caller
	case r.Refresh != nil:
		return &r.Refresh.Caller
	case r.Remove != nil:
		return &r.Remove.Caller
	case r.Renew != nil:
		return &r.Renew.Caller
	case r.Transfer != nil:
		return &r.Transfer.Caller
	case r.Offer != nil:
		return &r.Offer.Caller
	}

	return nil
}

// Proof returns the caller's proof that may be used once, or nil.
func (r *Request) Proof() *state.Spend {
	if r.Spend != nil {
		return r.Spend
	}

	caller := r.Caller()
	if caller.Proof.IsZero() {
		return nil
	}

	return &state.Spend{Proof: caller.Proof, Until: caller.ProofUntil}
}

func CallerOf(c directory.Caller) Caller { return Caller(c) }

type Register struct {
	Caller     Caller               `cbor:"1,keyasint"`
	Agent      string               `cbor:"2,keyasint"`
	Kind       directory.Kind       `cbor:"3,keyasint"`
	Document   []byte               `cbor:"4,keyasint"` // may be at rest
	Lifetime   uint32               `cbor:"5,keyasint"`
	Visibility directory.Visibility `cbor:"6,keyasint"`
	IfMatch    []uint64             `cbor:"7,keyasint"`
	Present    bool                 `cbor:"8,keyasint,omitempty"`
	Absent     bool                 `cbor:"9,keyasint,omitempty"`
	Keep       bool                 `cbor:"10,keyasint,omitempty"` // the old visibility
	For        directory.Identity   `cbor:"12,keyasint,omitzero"`  // on whose behalf
	// Packed is the projection, if this member has made it; the leader makes it anew for others.
	Packed *state.Packed `cbor:"-"`
}

type Refresh struct {
	Caller   Caller        `cbor:"1,keyasint"`
	RID      directory.RID `cbor:"2,keyasint"`
	Lifetime uint32        `cbor:"3,keyasint"`
	Patch    []byte        `cbor:"4,keyasint"` // null for none
	IfMatch  []uint64      `cbor:"5,keyasint"`
	// Statement is the statement for which policy permitted Patch; 0 for any.
	Statement uint64 `cbor:"6,keyasint,omitempty"`
}

type Renew struct {
	Caller   Caller         `cbor:"1,keyasint"`
	Renewals state.Renewals `cbor:"2,keyasint"`
}

type Remove struct {
	Caller  Caller        `cbor:"1,keyasint"`
	RID     directory.RID `cbor:"2,keyasint"`
	IfMatch []uint64      `cbor:"3,keyasint"`
}

// A Transfer is an operator's: it moves a registration without the new owner's consent.
type Transfer struct {
	Caller    Caller             `cbor:"1,keyasint"`
	RID       directory.RID      `cbor:"2,keyasint"`
	To        directory.Identity `cbor:"3,keyasint"`
	Statement uint64             `cbor:"5,keyasint"`
	IfMatch   []uint64           `cbor:"6,keyasint"`
}

// An Offer is a step of a transfer with the new owner's consent.
type Offer struct {
	Caller    Caller                 `cbor:"1,keyasint"`
	RID       directory.RID          `cbor:"2,keyasint"`
	Step      directory.TransferStep `cbor:"3,keyasint"`
	To        directory.Identity     `cbor:"4,keyasint,omitzero"`
	Lifetime  uint32                 `cbor:"5,keyasint,omitempty"`
	Statement uint64                 `cbor:"6,keyasint"`
	IfMatch   []uint64               `cbor:"7,keyasint"`
}

// Cosign is a checkpoint of another log, and the proof that it continues the last one.
type Cosign struct {
	Checkpoint state.Cosign     `cbor:"1,keyasint"`
	Proof      []directory.Hash `cbor:"2,keyasint"`
}

// An Order is an operator's command whose effect is not a command of the log.
type Order struct {
	Verb Verb        `cbor:"1,keyasint"`
	ID   spiffeid.ID `cbor:"2,keyasint"` // zero where any will do
	// Of a standing admission: the IDs that it admits, and how many members may have them.
	Pattern string `cbor:"3,keyasint,omitempty"`
	Max     uint32 `cbor:"4,keyasint,omitempty"`
	// Of NoteOrder, and of a member that leaves: the action and its target. Of ConfirmClock: the target.
	Action string `cbor:"5,keyasint,omitempty"`
	Target string `cbor:"6,keyasint,omitempty"`
}

type Verb string

const (
	TransferLeadership Verb = "transfer"
	RemoveMember       Verb = "remove"
	AdmitNode          Verb = "admit"
	WithdrawAdmission  Verb = "withdraw"
	// ConfirmClock confirms the step of the leader's clock; Target is the step as the operator knows it.
	ConfirmClock Verb = "clock"
	// NoteOrder puts an order into the log that the member which brings it carries out.
	NoteOrder Verb = "note"
)

// A Reply is the leader's answer to a write: an outcome, or a refusal.
type Reply struct {
	RID      directory.RID     `cbor:"1,keyasint"`
	Epoch    uint64            `cbor:"2,keyasint"`
	Revision uint64            `cbor:"3,keyasint"`
	Created  bool              `cbor:"4,keyasint"`
	Granted  uint32            `cbor:"5,keyasint"`
	Problem  directory.Problem `cbor:"6,keyasint,omitempty"`
	Detail   string            `cbor:"7,keyasint,omitempty"`
	Pointer  string            `cbor:"8,keyasint,omitempty"`
	// NotLeader says that nothing was done, since this member does not lead.
	NotLeader bool `cbor:"9,keyasint,omitempty"`
	// Of a RefreshMany: the lifetimes granted, 0 if refused, and the reasons.
	Each    []uint32    `cbor:"10,keyasint,omitempty"`
	Refused []Unrenewed `cbor:"11,keyasint,omitempty"`
	// Of a claim: the first answer to its key.
	Kept *state.Answer `cbor:"12,keyasint,omitempty"`
	// Of an offer of ownership: when it ends, Unix seconds.
	OfferUntil int64 `cbor:"13,keyasint,omitempty"`
	// Of a checkpoint that was taken: when, Unix seconds.
	CosignedAt int64 `cbor:"14,keyasint,omitempty"`
}

// ReplyOf returns the reply for an outcome or error.
func ReplyOf(out directory.Outcome, err error) *Reply {
	if err == nil {
		r := &Reply{RID: out.RID, Epoch: out.Position.Epoch, Revision: out.Position.Revision, Created: out.Created,
			Granted: out.Granted, OfferUntil: out.OfferUntil, CosignedAt: out.CosignedAt}
		r.Each, r.Refused = packRenewed(out.Each)
		r.Kept = (*state.Answer)(out.StoredAnswer)

		return r
	}

	r := &Reply{Problem: directory.ProblemOf(err), Detail: "the leader failed"}

	if e, ok := errors.AsType[*directory.Error](err); ok {
		r.Detail, r.Pointer = e.Detail, e.Pointer
	}

	return r
}

func (r *Reply) Result() (directory.Outcome, error) {
	if r.Problem != "" {
		return directory.Outcome{}, &directory.Error{Problem: r.Problem, Detail: r.Detail, Pointer: r.Pointer}
	}

	at := directory.Position{Epoch: r.Epoch, Revision: r.Revision}
	each, err := unpackRenewed(r.Each, r.Refused)

	return directory.Outcome{RID: r.RID, Position: at, Created: r.Created, Granted: r.Granted, Each: each,
		StoredAnswer: (*directory.StoredAnswer)(r.Kept), OfferUntil: r.OfferUntil,
		CosignedAt: r.CosignedAt}, err
}

func packRenewed(each []directory.RenewalResult) (granted []uint32, refused []Unrenewed) {
	for i, r := range each {
		granted = append(granted, r.Granted)
		if r.Err != nil {
			why := ReplyOf(directory.Outcome{}, r.Err)
			refused = append(refused, Unrenewed{uint32(i), why.Problem, why.Detail})
		}
	}

	return granted, refused
}

func unpackRenewed(granted []uint32, refused []Unrenewed) ([]directory.RenewalResult, error) {
	if len(granted) == 0 {
		return nil, nil
	}

	each := make([]directory.RenewalResult, len(granted))
	for i, g := range granted {
		each[i].Granted = g
	}

	for _, r := range refused {
		if int(r.Item) >= len(each) {
			return nil, Unknown(fmt.Errorf("the leader refused item %d of %d", r.Item, len(each)))
		}

		each[r.Item].Err = &directory.Error{Problem: r.Problem, Detail: r.Detail}
	}

	return each, nil
}

// Unrenewed is an item of a RefreshMany that was refused.
type Unrenewed struct {
	Item    uint32            `cbor:"1,keyasint"`
	Problem directory.Problem `cbor:"2,keyasint"`
	Detail  string            `cbor:"3,keyasint"`
}

// MaxChanges is the number of changes after which a log entry takes no more lists, and a
// message to the leader nothing more. One list has at most that number.
const MaxChanges = directory.MaxRenewals

// A message is a batch of requests to the leader, or the answers in their order.
type (
	Writes struct {
		Requests []cbor.RawMessage `cbor:"1,keyasint"`
	}
	Answers struct {
		Replies []Reply `cbor:"1,keyasint"`
		// NotLeader says that nothing was done, since the member does not lead.
		NotLeader bool `cbor:"2,keyasint,omitempty"`
		// Told is how far the leader's log is committed by now.
		Commit *CommitNotice `cbor:"3,keyasint,omitempty"`
	}
)

// Brief reports whether a request is prepared without waiting for anything.
func (r *Request) Brief() bool { return r.Register != nil || r.Refresh != nil || r.Remove != nil }

// Answer is ReplyOf, or says that this member does not lead.
func Answer(out directory.Outcome, err error) *Reply {
	if errors.Is(err, ErrNotLeader) {
		return &Reply{NotLeader: true}
	}

	return ReplyOf(out, err)
}

// Moved reports whether a command has to be prepared again, because the state for which
// it was prepared has changed: the answer of apply says so.
func (r *Request) Moved(c *state.Command, answer error) bool {
	return errors.Is(answer, state.ErrMoved) || r.pinnedBy(c) &&
		directory.ProblemOf(answer) == directory.PreconditionFailed
}

// pinnedBy reports whether the leader has added a precondition to the registration that
// was requested (see prepareDates).
func (r *Request) pinnedBy(command *state.Command) bool {
	if r.Register == nil || command.Register == nil {
		return false
	}

	return r.Register.Absent != command.Register.Absent || !slices.Equal(r.Register.IfMatch, command.Register.IfMatch)
}

// ErrNotLeader says that this member does not lead, and has done nothing.
var ErrNotLeader = errors.New("this member does not lead")

// Unknown returns directory.OutcomeUnknown with its cause.
func Unknown(cause error) error {
	e := directory.Refuse(directory.OutcomeUnknown, "the outcome is unknown; it is safe to repeat the request")
	e.Err = cause

	return e
}

// Last returns the position of the last change.
func (a *Answers) Last() (last directory.Position) {
	for _, r := range a.Replies {
		if at := (directory.Position{Epoch: r.Epoch, Revision: r.Revision}); last.Before(at) {
			last = at
		}
	}

	return last
}
