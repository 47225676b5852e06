package consensus

import (
	"sync"

	"github.com/roster-mesh/roster/consensus/state"
	"github.com/roster-mesh/roster/directory"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// A Change is a change that a member brought to the leader and that was applied here.
type Change struct {
	Action   string
	Caller   directory.Identity // as the member that brought it has authenticated it
	Agent    string
	RID      directory.RID
	Target   string // of an offer: the new owner; of a key: its node
	Count    uint64 // of a refresh of many: how many
	From     spiffeid.ID
	Position directory.Position
	// Unsent says that the change came in this node's name, and that this process has not sent it.
	Unsent bool
	// Silent says that the change needs no line in other members' audit logs: a use of a proof or of an
	// Idempotency-Key, or a command that has one as an operator's.
	Silent bool
}

// changeOf returns the change of a command that a member brought; ok is false if no member brought it. The
// state is that after the command. A traced one is Silent: audit logs have it from the CommandFeed.
func changeOf(command *state.Command, result *state.Result, registrations *state.Registrations) (change Change,
	ok bool) {
	if command.Origin == nil || command.Epoch != nil || result.Err != nil {
		return Change{}, false
	}

	change = Change{From: command.Origin.From, Position: result.Outcome.Position, RID: result.Outcome.RID}
	traced, isTraced := command.Change()

	switch {
	case isTraced:
		change.Action, change.Target, change.Silent = traced.Action, traced.Target, true

		if command.Transfer != nil {
			change.Caller = command.Transfer.Caller
		}
	case command.Register != nil:
		change.Action, change.Caller, change.Agent = "register", command.Register.Caller, command.Register.Agent
	case command.Update != nil:
		change.Action, change.Caller, change.RID = "refresh", command.Update.Caller, command.Update.RID
	case command.Refresh != nil:
		change.Action, change.Caller, change.RID = "refresh", command.Refresh.Caller, command.Refresh.RID
	case command.Renew != nil:
		change.Action, change.Caller = "refresh", command.Renew.Caller
		change.Count = uint64(command.Renew.Renewals.Count())
	case command.Remove != nil:
		change.Action, change.Caller, change.RID = "remove", command.Remove.Caller, command.Remove.RID
	case command.Offer != nil:
		change.Action, change.Caller, change.RID = "transfer.offer", command.Offer.Caller, command.Offer.RID
		change.Target = command.Offer.To.String()
	case command.Accept != nil:
		change.Action, change.Caller, change.RID = "transfer.accept", command.Accept.Caller, command.Accept.RID
	case command.CloseOffer != nil:
		change.Action, change.Caller, change.RID = "transfer.close", command.CloseOffer.Caller, command.CloseOffer.RID
	case command.Attest != nil:
		change.Action, change.Target = "keys.attest", command.Attest.Node.String()
	case command.Cosign != nil:
		change.Action, change.Target, change.Silent = "witness.cosign", command.Cosign.Origin, true
	default:
		change.Action, change.Silent = "invoke", true
	}

	// Most commands have the rid alone, and the registration has the name. One that was removed has none here.
	if reg := registrations.Get(change.RID); change.Agent == "" && reg != nil {
		change.Agent = reg.Entry().Agent
	}

	return change, true
}

// maxChanges bounds a ChangeFeed.
const maxChanges = 1 << 15

// A ChangeFeed has the changes that members brought and that this member has applied, until its reader
// takes them.
type ChangeFeed struct {
	news chan struct{} // holds one signal

	mu      sync.Mutex // guards the fields below
	waiting []Change
	missed  uint64 // changes for which there was no room
}

func newChangeFeed() *ChangeFeed { return &ChangeFeed{news: make(chan struct{}, 1)} }

// News returns a channel that holds a signal after changes were applied.
func (f *ChangeFeed) News() <-chan struct{} { return f.news }

// Take returns the changes since the last call, and how many more there were for which the feed had no room.
func (f *ChangeFeed) Take() (changes []Change, missed uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()

	changes, missed = f.waiting, f.missed
	f.waiting, f.missed = nil, 0

	return changes, missed
}

// add adds changes, which are not modified afterwards.
func (f *ChangeFeed) add(changes []Change) {
	if len(changes) == 0 {
		return
	}

	f.mu.Lock()
	room := min(len(changes), maxChanges-len(f.waiting))
	f.waiting = append(f.waiting, changes[:room]...)
	f.missed += uint64(len(changes) - room)
	f.mu.Unlock()

	select {
	case f.news <- struct{}{}:
	default:
	}
}
