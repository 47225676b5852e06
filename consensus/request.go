package consensus

import (
	"errors"
	"fmt"
	"slices"

	"github.com/fxamacker/cbor/v2"
	"github.com/roster-mesh/roster/consensus/state"
	"github.com/roster-mesh/roster/directory"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// A request is a validated change with its caller, as a follower hands it to the
// leader: exactly one member is set.
type request struct {
	Register *registerRequest `cbor:"1,keyasint,omitempty"`
	Refresh  *refreshRequest  `cbor:"2,keyasint,omitempty"`
	Remove   *removeRequest   `cbor:"3,keyasint,omitempty"`
	Peer     *state.Peer      `cbor:"4,keyasint,omitempty"`
	Attest   *state.Attest    `cbor:"5,keyasint,omitempty"`
	Order    *order           `cbor:"6,keyasint,omitempty"`
	Renew    *renewRequest    `cbor:"7,keyasint,omitempty"`
	Redeem   *state.Redeem    `cbor:"8,keyasint,omitempty"`
	Policy   *state.Policy    `cbor:"9,keyasint,omitempty"`
	Claim    *state.Claim     `cbor:"10,keyasint,omitempty"`
	Settle   *state.Settle    `cbor:"11,keyasint,omitempty"`
	Spend    *state.Spend     `cbor:"12,keyasint,omitempty"`
	Transfer *transferRequest `cbor:"13,keyasint,omitempty"`
	Rebundle *state.Rebundle  `cbor:"14,keyasint,omitempty"`
	Revoke   *state.Revoke    `cbor:"15,keyasint,omitempty"`
	Amend    *state.Amend     `cbor:"16,keyasint,omitempty"`
}

func decodeRequest(raw []byte) (*request, error) {
	r := &request{}
	return r, readMessage(raw, r)
}

// weight is how many changes a request is. A claim may bring an answer back: as many
// of them share a message as fit into the one that returns.
func (r *request) weight() int {
	switch {
	case r.Renew != nil:
		return r.Renew.Renewals.Count()
	case r.Claim != nil:
		return maxChanges * state.MaxAnswer / (maxBody - state.MaxAnswer*4)
	}
	return 1
}

type caller struct {
	Identity      directory.Identity `cbor:"1,keyasint"`
	Commissioning bool               `cbor:"2,keyasint,omitempty"`
	RequestID     string             `cbor:"3,keyasint,omitempty"`
	Proof         directory.Hash     `cbor:"4,keyasint,omitzero"`
	ProofUntil    int64              `cbor:"5,keyasint,omitempty"`
	Judged        *uint64            `cbor:"6,keyasint,omitempty"`
}

// by is who asks for a change of registrations; nobody of other requests.
func (r *request) by() caller {
	switch {
	case r.Register != nil:
		return r.Register.Caller
	case r.Refresh != nil:
		return r.Refresh.Caller
	case r.Remove != nil:
		return r.Remove.Caller
	case r.Renew != nil:
		return r.Renew.Caller
	case r.Transfer != nil:
		return r.Transfer.Caller
	}
	return caller{}
}

// spend is what the request's caller showed that is good once; nil where it may be
// shown again.
func (r *request) spend() *state.Spend {
	if r.Spend != nil {
		return r.Spend
	}
	c := r.by()
	if c.Proof.IsZero() {
		return nil
	}
	return &state.Spend{Proof: c.Proof, Until: c.ProofUntil}
}

func callerOf(c directory.Caller) caller { return caller(c) }

type registerRequest struct {
	Caller     caller               `cbor:"1,keyasint"`
	Agent      string               `cbor:"2,keyasint"`
	Kind       directory.Kind       `cbor:"3,keyasint"`
	Document   []byte               `cbor:"4,keyasint"` // may be at rest
	Lifetime   uint32               `cbor:"5,keyasint"`
	Visibility directory.Visibility `cbor:"6,keyasint"`
	IfMatch    []uint64             `cbor:"7,keyasint"`
	Present    bool                 `cbor:"8,keyasint,omitempty"`
	Absent     bool                 `cbor:"9,keyasint,omitempty"`
	Keep       bool                 `cbor:"10,keyasint,omitempty"` // the visibility of what is replaced
	Packed     *state.Packed        `cbor:"11,keyasint,omitempty"` // nil where the leader is to make it
	For        directory.Identity   `cbor:"12,keyasint,omitzero"`  // on whose behalf
}

type refreshRequest struct {
	Caller   caller        `cbor:"1,keyasint"`
	RID      directory.RID `cbor:"2,keyasint"`
	Lifetime uint32        `cbor:"3,keyasint"`
	Patch    []byte        `cbor:"4,keyasint"` // null for none
	IfMatch  []uint64      `cbor:"5,keyasint"`
	// Statement is what policy was asked about with Patch; 0 for any.
	Statement uint64 `cbor:"6,keyasint,omitempty"`
}

type renewRequest struct {
	Caller   caller         `cbor:"1,keyasint"`
	Renewals state.Renewals `cbor:"2,keyasint"`
}

type removeRequest struct {
	Caller  caller        `cbor:"1,keyasint"`
	RID     directory.RID `cbor:"2,keyasint"`
	IfMatch []uint64      `cbor:"3,keyasint"`
}

type transferRequest struct {
	Caller    caller             `cbor:"1,keyasint"`
	RID       directory.RID      `cbor:"2,keyasint"`
	To        directory.Identity `cbor:"3,keyasint"`
	Any       bool               `cbor:"4,keyasint,omitempty"`
	Statement uint64             `cbor:"5,keyasint"`
	IfMatch   []uint64           `cbor:"6,keyasint"`
}

// An order is what an operator wants of the domain's members, as a follower hands
// it to the leader.
type order struct {
	Verb verb        `cbor:"1,keyasint"`
	ID   spiffeid.ID `cbor:"2,keyasint"` // zero where any will do
}

type verb string

const (
	verbTransfer verb = "transfer"
	verbRemove   verb = "remove"
	verbAdmit    verb = "admit"
	verbWithdraw verb = "withdraw"
)

// A reply is what the leader answers: an outcome, or a refusal.
type reply struct {
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
	// Of a RefreshMany: what was granted to each, 0 where it was refused, and why.
	Each    []uint32    `cbor:"10,keyasint,omitempty"`
	Refused []unrenewed `cbor:"11,keyasint,omitempty"`
	// Of a claim: the first answer to its key.
	Kept *state.Answer `cbor:"12,keyasint,omitempty"`
}

func replyOf(out directory.Outcome, err error) *reply {
	if err == nil {
		r := &reply{RID: out.RID, Epoch: out.Position.Epoch, Revision: out.Position.Revision, Created: out.Created, Granted: out.Granted}
		r.Each, r.Refused = packRenewed(out.Each)
		r.Kept = (*state.Answer)(out.Kept)
		return r
	}
	r := &reply{Problem: directory.ProblemOf(err), Detail: "the leader failed"}
	var e *directory.Error
	if errors.As(err, &e) {
		r.Detail, r.Pointer = e.Detail, e.Pointer
	}
	return r
}

func (r *reply) result() (directory.Outcome, error) {
	if r.Problem != "" {
		return directory.Outcome{}, &directory.Error{Problem: r.Problem, Detail: r.Detail, Pointer: r.Pointer}
	}
	at := directory.Position{Epoch: r.Epoch, Revision: r.Revision}
	each, err := unpackRenewed(r.Each, r.Refused)
	return directory.Outcome{RID: r.RID, Position: at, Created: r.Created, Granted: r.Granted, Each: each, Kept: (*directory.KeptAnswer)(r.Kept)}, err
}

func packRenewed(each []directory.Renewed) (granted []uint32, refused []unrenewed) {
	for i, r := range each {
		granted = append(granted, r.Granted)
		if r.Err != nil {
			why := replyOf(directory.Outcome{}, r.Err)
			refused = append(refused, unrenewed{uint32(i), why.Problem, why.Detail})
		}
	}
	return granted, refused
}

func unpackRenewed(granted []uint32, refused []unrenewed) ([]directory.Renewed, error) {
	if len(granted) == 0 {
		return nil, nil
	}
	each := make([]directory.Renewed, len(granted))
	for i, g := range granted {
		each[i].Granted = g
	}
	for _, r := range refused {
		if int(r.Item) >= len(each) {
			return nil, unknown(fmt.Errorf("the leader refused item %d of %d", r.Item, len(each)))
		}
		each[r.Item].Err = &directory.Error{Problem: r.Problem, Detail: r.Detail}
	}
	return each, nil
}

// unrenewed is an item of a RefreshMany that was refused.
type unrenewed struct {
	Item    uint32            `cbor:"1,keyasint"`
	Problem directory.Problem `cbor:"2,keyasint"`
	Detail  string            `cbor:"3,keyasint"`
}

// maxChanges is with how many changes a log entry takes no more lists, and a message to
// the leader nothing more: who waits for the next one waits until all of this are
// applied. One list is as much.
const maxChanges = directory.MaxRenewals

// A message is what goes to the leader at once, and the answers in its order.
type (
	message struct {
		Requests []cbor.RawMessage `cbor:"1,keyasint"`
	}
	answers struct {
		Replies []reply `cbor:"1,keyasint"`
		// NotLeader says that nothing was done, since the member does not lead.
		NotLeader bool `cbor:"2,keyasint,omitempty"`
		// Told is how far the leader's log is committed by now.
		Told *told `cbor:"3,keyasint,omitempty"`
	}
)

// brief reports whether a request is prepared without waiting for anything.
func (r *request) brief() bool { return r.Register != nil || r.Refresh != nil || r.Remove != nil }

// replied is replyOf, or that this member does not lead.
func replied(out directory.Outcome, err error) *reply {
	if errors.Is(err, errNotLeader) {
		return &reply{NotLeader: true}
	}
	return replyOf(out, err)
}

// moved reports whether a command has to be prepared again, because the state for which
// it was prepared has changed: the answer of apply says so.
func (r *request) moved(c *state.Command, answer error) bool {
	return errors.Is(answer, state.ErrMoved) || r.pinnedBy(c) && directory.ProblemOf(answer) == directory.PreconditionFailed
}

// pinnedBy reports whether the leader has added a precondition to the registration that
// was requested (see prepareDates).
func (r *request) pinnedBy(c *state.Command) bool {
	if r.Register == nil || c.Register == nil {
		return false
	}

	return r.Register.Absent != c.Register.Absent || !slices.Equal(r.Register.IfMatch, c.Register.IfMatch)
}
