package consensus

import (
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	"github.com/roster-mesh/roster/consensus/disk"
	"github.com/roster-mesh/roster/consensus/message"
	"github.com/roster-mesh/roster/consensus/state"
	"github.com/roster-mesh/roster/directory"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// A Misconduct is a message of another member that this one has refused, because no member that works
// as it should sends it.
type Misconduct struct {
	By   spiffeid.ID // as TLS has authenticated it
	Kind MisconductKind
	Err  error
}

// A MisconductKind is the kind of fault of a refused message.
type MisconductKind string

// The kinds of misconduct.
const (
	badEntry    MisconductKind = "entry"    // an entry of the log that this release can't read or apply
	badHistory  MisconductKind = "history"  // entries other than those that this member has applied
	badSnapshot MisconductKind = "snapshot" // a snapshot that can't be read, or contradicts this member's state
	badSender   MisconductKind = "sender"   // a message in the name of another member
	badTerm     MisconductKind = "term"     // a term that no elections lead to
	badCommand  MisconductKind = "command"  // an operator's command that no operator has proven
	badLedger   MisconductKind = "ledger"   // a ledger that most of the other members contradict
)

// MisconductKinds are all of them.
func MisconductKinds() []MisconductKind {
	return []MisconductKind{badEntry, badHistory, badSnapshot, badSender, badTerm, badCommand, badLedger}
}

// An inspector judges the messages of other members to Raft before Raft has them. Raft stores and
// acknowledges entries, and committed ones are applied at each start again: an entry that can't be applied
// would end this member for good.
type inspector struct {
	*member

	// confirmed asks the other voters, without that one, for the state that they have applied.
	confirmed func(from spiffeid.ID, ask *message.DecisionRequest, holds func(*message.DecisionAnswer) bool) bool

	// bringer has sent the snapshot that Raft begins to install; nil for this member's own ones.
	bringer atomic.Pointer[spiffeid.ID]

	// refused is the leadership whose last entries this member has refused; nil if there is none.
	refused atomic.Pointer[leadership]

	// gone is the index of the last entry, as far as it was received, that removes this member's word on
	// its versions.
	gone atomic.Uint64
}

// A misconductError marks a message that is the misconduct of its sender.
type misconductError struct {
	kind MisconductKind
	err  error
}

func (e *misconductError) Error() string { return e.err.Error() }

func (e *misconductError) Unwrap() error { return e.err }

func misconduct(kind MisconductKind, format string, args ...any) error {
	return &misconductError{kind, fmt.Errorf(format, args...)}
}

// judge refuses a message of a member that Raft must not have, and reports it.
func (i *inspector) judge(from spiffeid.ID, message any) error {
	err := i.check(from, message)
	i.report(from, err)

	return err
}

// report passes a misconduct of a member on, if err is one.
func (i *inspector) report(by spiffeid.ID, err error) {
	var wrong *misconductError
	if errors.As(err, &wrong) && i.cfg.Misconduct != nil {
		i.cfg.Misconduct(Misconduct{By: by, Kind: wrong.kind, Err: err})
	}
}

func (i *inspector) check(from spiffeid.ID, message any) error {
	// Raft trusts the sender's name in the header. Only the certificate proves it.
	if headed, is := message.(raft.WithRPCHeader); is {
		if name := string(headed.GetRPCHeader().ID); name != from.String() {
			return misconduct(badSender, "a message of Raft names %.100q as its sender", name)
		}
	}

	switch message := message.(type) {
	case *raft.AppendEntriesRequest:
		if err := i.checkTerm(message.Term); err != nil {
			return err
		}

		return i.checkAppend(from, message)
	case *raft.InstallSnapshotRequest:
		if err := i.checkTerm(message.Term); err != nil {
			return err
		}

		return i.checkInstall(message)
	case *raft.RequestVoteRequest:
		return i.checkTerm(message.Term)
	case *raft.RequestVoteResponse:
		return i.checkTerm(message.Term)
	}

	return nil
}

// maxTerms is by how many terms a message may be ahead of this member. Each election takes a term, so no
// domain gets there; beyond the last term there is no election any more.
const maxTerms = 1 << 32

func (i *inspector) checkTerm(term uint64) error {
	running := i.group.running.Load()
	if running == nil {
		return nil
	}

	if now := running.CurrentTerm(); term > now && term-now > maxTerms {
		return misconduct(badTerm, "a message is of term %d and this member is in term %d", term, now)
	}

	return nil
}

// A leadership is one member's, for a term.
type leadership struct {
	by   spiffeid.ID
	term uint64
}

// checkAppend refuses entries as checkEntries does, and from then on the heartbeats of their leader, until
// it sends entries that this member takes: a leader that a majority refuses can commit nothing more. It
// steps down, and the log of another one replaces the entry.
func (i *inspector) checkAppend(from spiffeid.ID, message *raft.AppendEntriesRequest) error {
	leader := leadership{from, message.Term}
	refused := i.refused.Load()

	// A heartbeat that is answered would keep the refused leader in office.
	if len(message.Entries) == 0 {
		if refused != nil && *refused == leader {
			return errRefusedLeader
		}

		return nil
	}

	err := i.checkEntries(from, message)

	var wrong *misconductError
	switch {
	case errors.As(err, &wrong):
		// Only misconduct counts: an error of this member's own disk says nothing of the leader.
		i.refused.Store(&leader)
	case err == nil && refused != nil:
		// Another connection may have led to the refusal of a later leader meanwhile.
		i.refused.CompareAndSwap(refused, nil)
	}

	return err
}

var errRefusedLeader = errors.New("this member refuses entries of that leader")

// checkEntries refuses entries that this member could not apply, or store, those that contradict
// committed ones, and those with operators' commands that are not proven.
func (i *inspector) checkEntries(from spiffeid.ID, message *raft.AppendEntriesRequest) error {
	committed := uint64(0)
	if running := i.group.running.Load(); running != nil {
		committed = running.CommitIndex()
	}

	before := raft.Log{Index: message.PrevLogEntry, Term: message.PrevLogTerm}
	for n, entry := range message.Entries {
		switch {
		case entry == nil || entry.Index != before.Index+1:
			return misconduct(badEntry, "log entry %d is not followed by the next one", before.Index)
		case entry.Term < before.Term || entry.Term > message.Term:
			return misconduct(badEntry, "log entry %d is of term %d, behind one of term %d in a message of term %d",
				entry.Index, entry.Term, before.Term, message.Term)
		}

		if err := i.checkCommitted(entry, committed); err != nil {
			return err
		}

		batch, err := i.checkEntry(entry)
		if err != nil {
			return misconduct(badEntry, "log entry %d of term %d: %w", entry.Index, entry.Term, err)
		}

		// A majority has judged a committed entry. Its proofs may have ended since, so they aren't judged again.
		if batch == nil || entry.Index <= committed {
			before = *entry
			continue
		}

		// Entries before this one in the message may put the policy in force by which its commands are judged.
		err = i.checkCommands(batch, i.pendingOf(message.PrevLogEntry, message.Entries[:n]))
		if err != nil && !i.confirmedEntry(from, entry) {
			return misconduct(badCommand, "log entry %d of term %d: %w", entry.Index, entry.Term, err)
		}

		before = *entry
	}

	return nil
}

// checkCommitted refuses another entry in the place of one that is committed.
func (i *inspector) checkCommitted(entry *raft.Log, committed uint64) error {
	if entry.Index > committed {
		return nil
	}

	var have raft.Log

	err := i.storage.disk.Logs.GetLog(entry.Index, &have)
	if err != nil && !errors.Is(err, raft.ErrLogNotFound) {
		return err
	}

	if err == nil && have.Term != entry.Term {
		return misconduct(badHistory, "log entry %d is of term %d, and this member has applied one of term %d there",
			entry.Index, entry.Term, have.Term)
	}

	return nil
}

// checkEntry refuses an entry that this member could not apply, and returns its commands, if it has some.
func (i *inspector) checkEntry(entry *raft.Log) (*state.Batch, error) {
	switch entry.Type {
	case raft.LogNoop, raft.LogBarrier:
		return nil, nil
	case raft.LogConfiguration:
		return nil, checkConfiguration(entry.Data)
	case raft.LogCommand:
	default:
		return nil, fmt.Errorf("it is of the unknown type %d", entry.Type)
	}

	batch, err := decodeEntry(entry.Data, i.cfg.reads)
	if err != nil {
		return nil, err
	}

	for c := range batch.Commands {
		if err := i.checkVersions(&batch.Commands[c], entry.Index); err != nil {
			return nil, err
		}
	}

	return batch, nil
}

// checkVersions refuses a command that would put a version in force that this member doesn't read. The
// state refuses that as long as it has this member's own word on its versions.
func (i *inspector) checkVersions(command *state.Command, index uint64) error {
	switch member := command.Member; {
	case member != nil && member.ID == i.cfg.Node && member.Gone:
		i.gone.Store(index)
	case member != nil && member.ID == i.cfg.Node:
		if !i.cfg.reads.Covers(member.Reads) {
			return fmt.Errorf("it says that this member reads log version %d, snapshot version %d and wire version "+
				"%d, which it does not: %w", member.Reads.Log, member.Reads.Snapshot, member.Reads.Wire,
				state.ErrNewer)
		}
	case command.Feature != nil:
		err := i.cfg.reads.Lacks(*command.Feature)
		if err != nil && (!i.replica.declared() || i.gone.Load() > i.group.running.Load().AppliedIndex()) {
			return err
		}
	}

	return nil
}

// decodeEntry decodes the commands of a log entry that this member reads.
func decodeEntry(data []byte, reads Versions) (*state.Batch, error) {
	batch, err := state.DecodeBatch(data)
	if err == nil && batch.Version > reads.Log {
		err = state.NewerLog(batch.Version, reads.Log)
	}

	return batch, err
}

// checkConfiguration refuses a Raft configuration that Raft can't read, or by which no member leads.
func checkConfiguration(data []byte) (err error) {
	defer func() {
		// The library panics on bytes that it can't read.
		if p := recover(); p != nil {
			err = fmt.Errorf("its configuration can't be read: %v", p)
		}
	}()

	voters := 0
	ids, addresses := map[raft.ServerID]bool{}, map[raft.ServerAddress]bool{}

	for _, server := range raft.DecodeConfiguration(data).Servers {
		if _, err := spiffeid.FromString(string(server.ID)); err != nil || server.Address == "" ||
			ids[server.ID] || addresses[server.Address] {
			return fmt.Errorf("its configuration has the member %.100q at %.100q, which is malformed or a duplicate",
				server.ID, server.Address)
		}

		ids[server.ID], addresses[server.Address] = true, true

		if server.Suffrage == raft.Voter {
			voters++
		}
	}

	// No election could follow: the domain would end with this entry.
	if voters == 0 {
		return errors.New("its configuration has no voter")
	}

	return nil
}

// checkInstall refuses the announcement of a snapshot that can't be installed, or is behind this
// member's state.
func (i *inspector) checkInstall(message *raft.InstallSnapshotRequest) error {
	if message.SnapshotVersion != raft.SnapshotVersionMax {
		return misconduct(badSnapshot, "a snapshot has the library's version %d", message.SnapshotVersion)
	}

	if err := checkConfiguration(message.Configuration); err != nil {
		return misconduct(badSnapshot, "the snapshot at entry %d: %w", message.LastLogIndex, err)
	}

	if running := i.group.running.Load(); running != nil && message.LastLogIndex < running.AppliedIndex() {
		return misconduct(badHistory, "a snapshot ends at entry %d and this member has applied entry %d",
			message.LastLogIndex, running.AppliedIndex())
	}

	return nil
}

// installing notes whose snapshot Raft begins to install.
func (i *inspector) installing(from spiffeid.ID) { i.bringer.Store(&from) }

// beginSnapshot returns the judgement of the snapshot that Raft begins to install; nil for one that this
// member restores itself.
func (i *inspector) beginSnapshot() func(io.Reader) error {
	// A snapshot that was judged and never installed must not be taken for this one.
	i.storage.judged.Store(nil)

	from := i.bringer.Swap(nil)
	if from == nil {
		return nil
	}

	return func(r io.Reader) error {
		next, err := decodeSnapshot(i.cfg, r)

		// A connection that is cut says nothing of the member.
		if errors.Is(err, disk.ErrCancelled) {
			return err
		}

		if err != nil {
			err = misconduct(badSnapshot, "a snapshot can't be read: %w", err)
		} else {
			err = i.checkSnapshot(*from, next)
		}

		if err == nil {
			// Restore takes it from here, and needn't decode it a second time.
			i.storage.judged.Store(next)
		}

		i.report(*from, err)

		return err
	}
}

// checkSnapshot refuses the state of a snapshot that contradicts this member's state, or that has
// decisions of operators which neither a proof nor another voter confirms. A node that has just been let
// in knows neither a state nor a voter, and takes the state that its domain sends it.
func (i *inspector) checkSnapshot(from spiffeid.ID, next *state.State) error {
	had := i.replica.outline()
	if err := next.Follows(had); err != nil {
		return misconduct(badHistory, "a snapshot contradicts this member's state: %w", err)
	}

	if err := i.proven(had, next); err != nil && !i.confirmedDecision(from, next.Decision()) {
		return misconduct(badSnapshot, "a snapshot has decisions that no operator has proven and no other voter "+
			"confirms: %w", err)
	}

	i.proveBundles(from, had, next)

	return nil
}

// proveBundles notes the refreshed bundles of peers in a snapshot that another voter has in force, or that an
// operator's command has put in force. The others are held back (see CommandFeed.Proven).
func (i *inspector) proveBundles(from spiffeid.ID, had, next *state.State) {
	changes := next.BundlesSince(had)
	if len(changes) == 0 {
		return
	}

	all := directory.BundlesHash(next.Peerings().List())
	confirmed := i.confirmed(from, &message.DecisionRequest{}, func(answer *message.DecisionAnswer) bool {
		return answer.Bundles == all
	})

	for _, change := range changes {
		if confirmed || next.OrdersBundle(change, i.deciding(had, next)) {
			i.replica.Commands.prove(change.Was.Domain, change.Next)
		}
	}
}

// proven returns nil if operators' proofs lead from the decisions that this member had to those of a
// snapshot.
func (i *inspector) proven(had, next *state.State) error {
	if next.Decision() == had.Decision() {
		return nil
	}

	restored := next.Restored(had)
	if restored {
		if err := i.checkOrder(had, next.RestoreOrder(), state.RestoredFor); err != nil {
			return err
		}
	}

	// A backup brings its policy into a domain that has set none.
	if version := policyVersion(had); policyVersion(next) != version && !(restored && version == 0) {
		if err := i.checkOrder(had, next.PolicyOrder(), state.JudgedFor); err != nil {
			return err
		}
	}

	return next.CheckDecided(had, i.deciding(had, next))
}

// deciding returns the check of the commands of decisions that lead from one state to that of a snapshot.
func (i *inspector) deciding(had, next *state.State) func(*state.Command) error {
	return func(command *state.Command) error {
		// A command is judged by the policy that it names: this member's, or that of the snapshot.
		judged := had
		if command.Origin.Policy == policyVersion(next) {
			judged = next
		}

		change, _ := command.Change()

		return i.checkDecided(judged, had, change, command)
	}
}

// checkDecided checks a command that put a peering or an admission in force.
func (i *inspector) checkDecided(judged, had *state.State, change directory.OperatorChange,
	command *state.Command) error {
	order := directory.OperatorCommand{
		OperatorChange: change, Request: command.Origin.Request(), From: command.Origin.From,
		Judged: time.UnixMilli(command.Origin.Judged),
	}

	switch {
	case change.Action == directory.ActionFarewell && i.cfg.CheckFarewell != nil:
		return i.cfg.CheckFarewell(change.Peering, order.Judged)
	case change.Node:
		return nil
	case command.Origin.Policy != policyVersion(judged):
		return errors.New("an operator's command was judged by a policy that this member doesn't know")
	}

	order.Policy, order.PolicyVersion = judged.Policy().Policy()

	return i.checkLater(had, order, state.JudgedFor)
}

// checkOrder checks an operator's command by the policy that this member has in force.
func (i *inspector) checkOrder(had *state.State, order directory.OperatorCommand, within time.Duration) error {
	order.Policy, order.PolicyVersion = had.Policy().Policy()

	return i.checkLater(had, order, within)
}

// checkLater checks an operator's command at the time at which it was judged. One from before the state that
// this member had, by more than the time within which it is applied, may be an old command that another has
// replaced since.
func (i *inspector) checkLater(had *state.State, order directory.OperatorCommand, within time.Duration) error {
	if i.cfg.CheckOperator == nil {
		return nil
	}

	order.At = order.Judged
	if had := time.UnixMilli(had.History().Now()); order.Judged.Before(had.Add(-within)) {
		return errors.New("the operator's command is older than this member's state")
	}

	return i.cfg.CheckOperator(order)
}
