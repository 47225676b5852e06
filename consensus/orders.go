package consensus

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/roster-mesh/roster/consensus/message"
	"github.com/roster-mesh/roster/consensus/state"
	"github.com/roster-mesh/roster/directory"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// An orderDesk checks, as the leader, who ordered a command that only an operator orders, and
// gives the command its origin.
type orderDesk struct {
	*member

	proposer *proposer
}

// sign gives a command its origin, if it is one that an operator orders or a node by itself
// where an operator could, and refuses it if the origin does not hold.
func (o *orderDesk) sign(ctx context.Context, req *message.Request, command *state.Command) error {
	change, traced := command.Change()
	if !traced {
		return nil
	}

	command.Origin = req.Origin(o.cfg.Node)
	from := command.Origin.From
	now := o.cfg.Clock.Now()

	o.replica.view(func(s *state.State) {
		command.Origin.Judged, command.Origin.Policy = now.UnixMilli(), policyVersion(s)
	})

	// A node's own change needs no proof, and must not use one up.
	if change.Node {
		command.Origin.Operator = nil
	}

	if err := o.mayBring(change, from); err != nil {
		return err
	}

	if err := checkCommand(o.cfg, o.replica, command, now.UnixMilli(), nil); err != nil {
		return err
	}

	// A restore comes to the members as a snapshot, whose proofs each of them judges.
	if command.Epoch == nil && !change.Node {
		return o.accepted(ctx, command)
	}

	return nil
}

// ofRestore returns the origin of a restore that a member brings.
func (o *orderDesk) ofRestore(ctx context.Context, req *message.Request) (*state.Origin, error) {
	command := &state.Command{Epoch: &state.Epoch{}}
	err := o.sign(ctx, req, command)

	return command.Origin, err
}

// mayBring refuses an operator's command that a member without a vote brings.
func (o *orderDesk) mayBring(change directory.OperatorChange, from spiffeid.ID) error {
	if member, is := o.group.server(from); is && !member.voter && !change.Node {
		return refuseWithoutVote(from)
	}

	return nil
}

// precede puts an operator's order into the log, before an effect that is not in the log.
func (o *orderDesk) precede(ctx context.Context, req *message.Request, action, target string) (directory.Outcome,
	error) {
	return o.propose(ctx, req, &state.Command{Order: &state.Order{Action: action, Target: target}})
}

// propose signs a command that needs no other preparation and puts it into the log.
func (o *orderDesk) propose(ctx context.Context, req *message.Request, command *state.Command) (out directory.Outcome,
	err error) {
	for range maxPrepared {
		if err := o.sign(ctx, req, command); err != nil {
			return directory.Outcome{}, err
		}

		// A restored history takes no commands before its epoch, and another leader may have to begin that.
		// Until then these effects leave no order in the log: rule S8's one exception.
		if command.Order != nil && o.replica.isSealed() {
			return directory.Outcome{Position: o.replica.Position()}, nil
		}

		if out, err = o.proposer.propose(ctx, command); !errors.Is(err, state.ErrMoved) {
			return out, err
		}
	}

	return out, tooManyUpdates()
}

// Bounds of a CommandFeed: commands, and bytes of their requests. Operators' commands that its
// reader has not checked yet have bounds of their own, so that a leader cannot push one out by
// nodes' own commands before it is checked.
const (
	maxFed            = 256
	maxFedBytes       = 8 << 20
	maxUnchecked      = 4096
	maxUncheckedBytes = 64 << 20
)

// A CommandFeed has the operators' commands, and the nodes' own where an operator could have
// made them, that this member has applied of late. Their numbers have no gaps, so a reader that
// remembers the last one knows whether it has missed any: the feed is bounded, and a snapshot
// may take the place of log entries.
type CommandFeed struct {
	logged uint64 // index of the last entry in the log when the member started; set before Raft runs

	mu      sync.Mutex // guards the fields below
	recent  []directory.OperatorCommand
	size    int
	newest  uint64 // number of the last command of the domain, as applied here
	checked uint64 // up to which its reader has asked for the commands
	inState uint64 // up to which the commands came in a snapshot, at most
	proven  map[spiffeid.TrustDomain]directory.Hash
	// renumbered says that a snapshot came since the reader asked: commands behind it may have numbers
	// that others had before.
	renumbered bool
}

// News are the commands of a CommandFeed behind a number.
type News struct {
	Commands []directory.OperatorCommand
	// After is the number behind which Commands begin: the caller's, or a lower one after a restore.
	After uint64
	// Newest is the number of the domain's newest command as applied here. It may be higher than
	// all of Commands.
	Newest uint64
	// InState is the number up to which commands may be absent because a snapshot has their effect.
	// Those absent with higher numbers were applied here, and the feed had no room for them.
	InState uint64
}

// After returns the commands with higher numbers than that, up to which the caller has checked them. If
// a snapshot has lowered the numbers below that, it returns all commands behind the snapshot.
func (f *CommandFeed) After(number uint64) News {
	f.mu.Lock()
	defer f.mu.Unlock()

	if f.renumbered || number > f.newest {
		number = min(number, f.inState)
	}

	f.renumbered = false
	f.checked = max(f.checked, number)
	news := News{After: number, Newest: f.newest, InState: f.inState}

	for _, command := range f.recent {
		if command.Number > number {
			news.Commands = append(news.Commands, command)
		}
	}

	return news
}

// restored notes that a snapshot has the effect of the domain's commands up to a number, which is
// lower than before if a backup was restored.
func (f *CommandFeed) restored(number uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()

	f.newest, f.inState, f.checked = number, number, min(f.checked, number)
	f.renumbered = true

	f.recent = slices.DeleteFunc(f.recent, func(command directory.OperatorCommand) bool {
		if command.Number > number {
			f.size -= sizeOf(command)
		}

		return command.Number > number
	})
}

// Proven reports whether a peer's bundle may be in force as it is in the state: a command in the log has put it there,
// a restored backup, or a snapshot whose bundles another voter has in force. A bundle that one member alone brought in
// a snapshot has to be confirmed at its endpoint.
func (f *CommandFeed) Proven(peer spiffeid.TrustDomain, bundle []byte) bool {
	f.mu.Lock()
	defer f.mu.Unlock()

	return f.proven[peer] == directory.HashOf(bundle)
}

// prove has Proven report a bundle of a peer.
func (f *CommandFeed) prove(peer spiffeid.TrustDomain, bundle []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()

	f.note(peer, bundle)
}

// note is prove. The caller holds the lock.
func (f *CommandFeed) note(peer spiffeid.TrustDomain, bundle []byte) {
	if f.proven == nil {
		f.proven = map[spiffeid.TrustDomain]directory.Hash{}
	}

	f.proven[peer] = directory.HashOf(bundle)
}

// add adds the commands of a log entry. newest is the domain's count after it.
func (f *CommandFeed) add(applied []directory.OperatorCommand, index, newest uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()

	f.newest = newest

	for _, command := range applied {
		if command.Bundle != nil {
			f.note(command.Bundle.Was.Domain, command.Bundle.Next)
		} else if command.Peering != nil {
			f.note(command.Peering.Next.Domain, command.Peering.Next.Bundle)
		}

		command.Index, command.Again = index, index <= f.logged
		f.recent = append(f.recent, command)
		f.size += sizeOf(command)
	}

	f.trim()
}

// trim removes the oldest commands over the bounds. The caller holds the lock.
func (f *CommandFeed) trim() {
	kept := f.recent[:0]

	for i, command := range f.recent {
		count := len(kept) + len(f.recent) - i
		spare := command.Node || command.Number <= f.checked

		if spare && (count > maxFed || f.size > maxFedBytes) || count > maxUnchecked || f.size > maxUncheckedBytes {
			f.size -= sizeOf(command)
		} else {
			kept = append(kept, command)
		}
	}

	clear(f.recent[len(kept):])
	f.recent = kept
}

func sizeOf(command directory.OperatorCommand) int {
	size := len(command.Policy)
	if command.Peering != nil && command.Peering.Farewell != nil {
		size += len(command.Peering.Farewell.Body) + len(command.Peering.Farewell.Proof)
	}

	if command.Bundle != nil {
		size += len(command.Bundle.Next) + len(command.Bundle.Was.Bundle)
	}

	if command.Request != nil {
		size += len(command.Request.Body) + len(command.Request.Proof)
	}

	return size
}
