package consensus

import (
	"context"
	"fmt"

	"github.com/hashicorp/raft"
	"github.com/roster-mesh/roster/consensus/message"
	"github.com/roster-mesh/roster/consensus/state"
	"github.com/roster-mesh/roster/directory"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// checkCommand refuses an operator's command that no operator has proven, and a farewell that the peer's
// operator has not. It is judged at the time at which the leader has judged it, which is near its committed
// time, and by the policy that its origin names: apply refuses it under another one. pending are the
// policies of entries on their way into the state; nil if there are none.
func checkCommand(cfg *Config, replica *Replica, command *state.Command, committed int64, pending pending) error {
	order, traced := directory.OperatorCommand{}, false
	order.OperatorChange, traced = command.Change()

	replica.view(func(s *state.State) {
		order.Policy, order.PolicyVersion = s.Policy().Policy()
		committed = max(committed, s.History().Now())
	})

	origin, version := command.Origin, order.PolicyVersion
	order.Request, order.Judged = origin.Request(), origin.JudgedAt(committed, state.JudgedFor)

	switch {
	case !traced:
		return nil
	case order.Action == directory.ActionFarewell && cfg.CheckFarewell != nil:
		return cfg.CheckFarewell(order.Peering, order.Judged)
	case order.Node, cfg.CheckOperator == nil:
		return nil
	}

	order.At = order.Judged
	if origin != nil {
		order.From = origin.From
	}

	switch {
	case order.Request == nil || origin.Policy == version:
		return cfg.CheckOperator(order)
	case origin.Policy < version || pending == nil:
		// Apply answers ErrMoved, because another policy is in force.
		return nil
	}

	// A command that names a later policy is judged by one that is in the log and not applied yet.
	err := fmt.Errorf("it names version %d of the policy, which is not the one in force", origin.Policy)
	for _, order.Policy = range pending(version) {
		order.PolicyVersion = origin.Policy
		if err = cfg.CheckOperator(order); err == nil {
			return nil
		}
	}

	return err
}

// A pending returns the policies behind a version, of entries that a member has acknowledged, or judged, and
// not yet applied.
type pending func(version uint64) [][]byte

// pendingOf returns the policies of the entries up to last, and of those behind them that were judged before.
func (i *inspector) pendingOf(last uint64, behind []*raft.Log) pending {
	return func(version uint64) [][]byte { return i.pendingPolicies(version, last, behind) }
}

// checkCommands refuses commands of an entry that are not proven.
func (i *inspector) checkCommands(batch *state.Batch, pending pending) error {
	for c := range batch.Commands {
		command := &batch.Commands[c]

		// Most commands wait for no lock of the state. An epoch begins a state that was judged by itself.
		if _, traced := command.Change(); !traced || command.Epoch != nil {
			continue
		}

		if err := checkCommand(i.cfg, i.replica, command, batch.Time, pending); err != nil {
			return err
		}
	}

	return nil
}

// pendingPolicies returns the policies of entries that this member has acknowledged up to last and may not
// have applied, and of those behind them, which were judged before. A policy is left out if it replaces one
// before version, because apply refuses it.
func (i *inspector) pendingPolicies(version, last uint64, behind []*raft.Log) (texts [][]byte) {
	add := func(entry *raft.Log) {
		if entry.Type != raft.LogCommand {
			return
		}

		batch, err := state.DecodeBatch(entry.Data)
		if err != nil {
			// An entry that can't be read was not acknowledged.
			return
		}

		for c := range batch.Commands {
			command := &batch.Commands[c]
			if command.Policy != nil && (command.Origin.Request() == nil || command.Origin.Policy >= version) {
				texts = append(texts, command.Policy.Text)
			}
		}
	}

	first, err := i.storage.disk.Logs.FirstIndex()
	if err != nil {
		// No command is judged by a log that can't be read.
		return nil
	}

	var entry raft.Log

	// The policies of entries that are applied are in the state.
	for index := max(first, i.replica.progress.applied.Load()+1); index <= last; index++ {
		// An entry may be cut or compacted meanwhile. Either way its policy is pending no longer.
		if err := i.storage.disk.Logs.GetLog(index, &entry); err == nil {
			add(&entry)
		}
	}

	for _, entry := range behind {
		add(entry)
	}

	return texts
}

// confirmedEntry reports whether another voter than the sender of an entry has applied it: its proof may be
// by an authority that was replaced since.
func (i *inspector) confirmedEntry(from spiffeid.ID, entry *raft.Log) bool {
	hash := directory.HashOf(entry.Data)

	return i.confirmed(from, &message.DecisionRequest{Entry: entry.Index}, func(answer *message.DecisionAnswer) bool {
		return answer.Entry == hash
	})
}

// confirmedDecision reports whether another voter than the sender of a snapshot has its decisions.
func (i *inspector) confirmedDecision(from spiffeid.ID, decided state.Decision) bool {
	return i.confirmed(from, &message.DecisionRequest{}, func(answer *message.DecisionAnswer) bool {
		return answer.Decision == decided
	})
}

// answerDecision answers another member with the decisions of operators, as applied here, and the hash of an
// entry of the log if it is committed here.
func (i *inspector) answerDecision(request *message.DecisionRequest) *message.DecisionAnswer {
	answer := &message.DecisionAnswer{Decision: i.replica.decision()}
	if i.cfg.Bundles != nil {
		answer.Bundles = i.cfg.Bundles()
	}

	var entry raft.Log
	if request.Entry != 0 && request.Entry <= i.group.raft.AppliedIndex() &&
		i.storage.disk.Logs.GetLog(request.Entry, &entry) == nil {
		answer.Entry = directory.HashOf(entry.Data)
	}

	return answer
}

// answerCommand answers a leader whether this member would acknowledge a command.
func (i *inspector) answerCommand(request *message.CommandRequest) *message.CommandAnswer {
	committed := int64(0)
	if origin := request.Command.Origin; origin != nil {
		committed = origin.Judged
	}

	pending := i.pendingOf(i.group.raft.LastIndex(), nil)

	err := checkCommand(i.cfg, i.replica, &request.Command, committed, pending)
	if err != nil {
		return &message.CommandAnswer{Refusal: err.Error()}
	}

	return &message.CommandAnswer{}
}

// accepted refuses an operator's command that not enough voters would acknowledge for a majority, as its
// leader: an entry with it would stop the domain. The trust bundles of members may differ for a while.
func (m *member) accepted(ctx context.Context, command *state.Command) error {
	others, needed := m.group.voters()
	if needed <= 0 || m.cfg.CheckOperator == nil {
		return nil
	}

	ctx, cancel := context.WithTimeout(ctx, answerWait)
	defer cancel()

	answers := askEach(m, others, func(other Member) error {
		var answer message.CommandAnswer

		err := m.messenger.post(ctx, other, commandPath, &message.CommandRequest{Command: *command}, &answer)
		if err == nil && answer.Refusal != "" {
			err = directory.Refuse(directory.Forbidden,
				"%s does not accept the operator's proof, and with it no majority of the voters: %s; nothing was "+
					"changed; compare the trust bundles of the nodes", other.ID, answer.Refusal)
		}

		return err
	})

	// Silence may pass, so this refusal is a temporary one. A voter's own refusal replaces it.
	var err error = directory.Refuse(directory.Unavailable,
		"too few voters answer to check the operator's proof; nothing was changed: try again")

	for range others {
		answered := <-answers
		if answered == nil {
			needed--
		}

		if needed == 0 {
			return nil
		}

		if directory.ProblemOf(answered) == directory.Forbidden {
			err = answered
		}
	}

	return err
}
