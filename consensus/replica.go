package consensus

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	"github.com/roster-mesh/roster/consensus/backup"
	"github.com/roster-mesh/roster/consensus/disk"
	"github.com/roster-mesh/roster/consensus/history"
	"github.com/roster-mesh/roster/consensus/state"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/ledger"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// A Replica is this member's copy of the domain's state.
type Replica struct {
	// Commands are the commands of operators that this member has applied of late.
	Commands CommandFeed
	// Changes are the changes that members brought and that this member has applied of late.
	Changes *ChangeFeed

	config   *Config
	lifetime *lifecycle
	marks    *marker
	progress readProgress
	settled  atomic.Bool                  // has led or caught up since it was opened
	away     atomic.Bool                  // was away before it was opened, and has not caught up
	summary  atomic.Pointer[stateSummary] // for reads that must not wait while an entry is applied

	mu            sync.RWMutex
	state         *state.State
	ledger        *ledger.Epochs // the logs whose last frontier the state has
	history       *history.Store // the statements before those of the state
	now           time.Time      // the committed time
	policyVersion uint64         // of which Config.Policy was called last
	changed       chan struct{}  // closed and replaced at every change of state
	agreed        chan struct{}  // the same, at changes of more than registrations
}

func newReplica(cfg *Config, life *lifecycle) *Replica {
	r := &Replica{
		config: cfg, lifetime: life, state: state.New(cfg.Domain, cfg.Index),
		ledger: openLedger(cfg), history: history.New(cfg.Dir),
		changed: make(chan struct{}), agreed: make(chan struct{}),
		Changes: newChangeFeed(), marks: newMarker(cfg.Timing.Write),
	}
	r.summary.Store(&stateSummary{written: state.FirstNumbers()})

	return r
}

// A machine is the replica as the Raft library sees it.
type machine struct {
	*member

	terms *terms
}

// Apply applies one log entry and returns its results, or the error that ended
// this member's applying.
func (m machine) Apply(entry *raft.Log) any {
	defer func() {
		// It happens at each start again, so the report names the entry at which a backup can end.
		if p := recover(); p != nil {
			panic(&backup.EntryError{Entry: entry.Index, Term: entry.Term, Err: fmt.Errorf("%v\n%s", p, debug.Stack())})
		}
	}()

	// A leader's entry may be committed before its own disk has it. The state is never ahead of the disk.
	err := m.storage.disk.Ahead.Wait(entry.Index)
	committed := time.Now()

	var results []state.Result
	if err == nil {
		results, err = m.replica.applyEntry(entry)
	}

	m.storage.growth.grow(len(entry.Data))

	if err != nil {
		m.life.fail(&backup.EntryError{Entry: entry.Index, Term: entry.Term, Err: err})
		return err
	}

	// Not only a ready leader: its first commands precede that.
	if leader := m.terms.elected(); leader != nil {
		leader.proposer.applied(entry, committed, results)
	}

	return results
}

func (r *Replica) applyEntry(entry *raft.Log) ([]state.Result, error) {
	if err := r.lifetime.failure(); err != nil {
		return nil, err
	}

	batch, err := decodeEntry(entry.Data, r.config.reads)
	if err != nil {
		return nil, err
	}

	application := r.begin(batch)
	for more := true; more; {
		// Waiting readers get the lock between two pieces.
		if more, err = r.applyPiece(application, batch, entry.Index); err != nil {
			return nil, err
		}
	}

	return application.Results(), nil
}

func (r *Replica) begin(batch *state.Batch) *state.Application {
	return ask(r, func(s *state.State) *state.Application { return s.Begin(batch) })
}

// applyPiece applies the next piece of an entry, shows it to readers, and reports whether there is
// another.
func (r *Replica) applyPiece(application *state.Application, batch *state.Batch, index uint64) (more bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()

	more, err = application.Next()
	r.publishPolicy()

	if err == nil {
		err = r.keepEntries()
	}

	if err == nil && !more {
		// Only the last piece raises the index, because a read that waits for it must see the whole entry.
		r.progress.raise(index)
		r.Commands.add(r.state.Traced(), index, r.state.History().Commands())
		r.Changes.add(r.brought(batch, application.Results(), index))
	}

	r.notifyChanged()

	if !more && !batch.OnlyRegistrations() {
		r.notifyAgreed()

		if err == nil {
			// Checked behind the entry: only later ones are written in the versions that it puts in force.
			err = r.config.reads.Lacks(r.state.Members().Written())
		}
	}

	return more, err
}

// keepEntries appends the entries of a piece to the ledger on disk. The caller holds mu.
func (r *Replica) keepEntries() error {
	applied := r.state.History()
	entries, began := applied.Logged()

	if began != nil {
		if err := r.ledger.Begin(began); err != nil {
			return fmt.Errorf("begin the ledger of epoch %d: %w", began.Epoch, err)
		}
	}

	r.ledger.Append(entries...)
	r.history.Add(applied.Past())

	return nil
}

// brought returns the changes of an entry that members brought. The caller holds mu.
func (r *Replica) brought(batch *state.Batch, results []state.Result, index uint64) (changes []Change) {
	at := time.UnixMilli(batch.Time)

	for i := range batch.Commands {
		command := &batch.Commands[i]

		change, ok := changeOf(command, &results[i], r.state.Registrations())
		if !ok {
			continue
		}

		own := change.From == r.config.Node
		change.Unsent = own && index > r.Commands.logged && !r.marks.sent(command.Origin.Mark, change.Caller, at)

		if change.Unsent || !own && !change.Silent {
			changes = append(changes, change)
		}
	}

	return changes
}

// publishPolicy passes the policy to Config.Policy if another one is in force. The caller
// holds mu, so that no reader sees the state after the change with the policy before it.
func (r *Replica) publishPolicy() {
	text, version := r.state.Policy().Policy()
	if r.config.Policy != nil && r.policyVersion != version {
		r.policyVersion = version
		r.config.Policy(text, version)
	}
}

// notifyChanged wakes all waiters for a change of state, and advances the index's clock to the
// committed time (rule T4). The caller holds mu.
func (r *Replica) notifyChanged() {
	history := r.state.History()

	now := time.UnixMilli(history.Now())

	// Committed time goes back after a step of a leader's clock that was confirmed.
	if now.Before(r.now) {
		r.config.Index.Clock.Correct(now)
	}

	r.now = now
	r.config.Index.Clock.Advance(now)

	if r.away.Load() && r.config.Clock.Now().Sub(now) <= awayFor {
		r.away.Store(false)
	}

	r.summary.Store(&stateSummary{
		position: history.Position(),
		restored: history.Restored(),
		sealed:   history.Sealed() != "",
		written:  r.state.Members().Written(),
	})
	close(r.changed)
	r.changed = make(chan struct{})
}

// notifyAgreed wakes all waiters for changes of more than registrations. The caller holds mu.
func (r *Replica) notifyAgreed() {
	close(r.agreed)
	r.agreed = make(chan struct{})
}

// Snapshot captures the contents of a snapshot; the library writes it while changes continue.
func (m machine) Snapshot() (raft.FSMSnapshot, error) {
	if err := m.life.failure(); err != nil {
		return nil, err
	}

	// Raft cuts the log by this bound once it has the snapshot.
	m.storage.limitTrailingLogs()

	var (
		snapshot *state.Snapshot
		at       history.Position
	)

	m.replica.use(func(s *state.State) {
		m.storage.growth.bytes.Store(0)

		snapshot = s.Snapshot()
		at = logged(s)
	})

	// Both are on the disk before the snapshot, because the log behind them may be cut after it.
	return fsmSnapshot{snapshot, func() error {
		return errors.Join(m.replica.ledger.Sync(), m.replica.history.Saved(at))
	}}, nil
}

// fsmSnapshot lets the Raft library write a snapshot.
type fsmSnapshot struct {
	snapshot *state.Snapshot
	before   func() error // writes the data for which the log before the snapshot was needed
}

// Persist implements raft.FSMSnapshot.
func (s fsmSnapshot) Persist(sink raft.SnapshotSink) error {
	// This member's own state needs no judgement.
	if judged, is := sink.(*disk.JudgedSink); is {
		judged.Unjudged()
	}

	w := bufio.NewWriterSize(sink, 1<<16)

	err := s.before()
	if err == nil {
		err = s.snapshot.Write(w)
	}

	if err == nil {
		err = w.Flush()
	}

	if err != nil {
		return errors.Join(fmt.Errorf("write a snapshot: %w", err), sink.Cancel())
	}

	return sink.Close()
}

// Release implements raft.FSMSnapshot.
func (fsmSnapshot) Release() {}

// Restore replaces the state by a snapshot.
func (m machine) Restore(r io.ReadCloser) error {
	if err := m.life.failure(); err != nil {
		return errors.Join(err, r.Close())
	}

	var err error

	// The inspector has decoded another member's snapshot already.
	next := m.storage.judged.Swap(nil)
	if next == nil {
		next, err = decodeSnapshot(m.cfg, r)
	}

	if err := errors.Join(err, r.Close()); err != nil {
		err = fmt.Errorf("restore a snapshot: %w", err)
		m.storage.unread.Store(&err)

		if errors.Is(err, state.ErrNewer) {
			// Otherwise its leader would send it again and again, or Raft would take an older one.
			m.life.fail(err)
		}

		return err
	}

	// Filling the index of 10^6 registrations takes seconds. Nothing is applied meanwhile,
	// so the lock is not needed yet.
	next.Registrations().FillIndex()
	m.storage.growth.bytes.Store(0)

	return m.replica.replace(next)
}

// decodeSnapshot reads a snapshot that this release can go on with.
func decodeSnapshot(cfg *Config, r io.Reader) (*state.State, error) {
	next, header, err := state.Read(r, cfg.Domain, cfg.Index, backup.Processors())
	if err != nil {
		return nil, err
	}

	reads := cfg.reads
	if header.Version > reads.Snapshot {
		return nil, state.NewerSnapshot(header.Version, reads.Snapshot)
	}

	if err := reads.Lacks(next.Members().Written()); err != nil {
		return nil, err
	}

	return next, next.Registrations().CheckStatements(reads)
}

// replace replaces the state by that of a snapshot.
func (r *Replica) replace(next *state.State) error {
	r.mu.Lock()
	defer r.mu.Unlock()

	before, at := logged(r.state), logged(next)

	// The history keeps the statements that a restored backup lacks, because no end of them is in the log.
	if before.Epoch != at.Epoch || next.History().Sealed() != "" {
		r.history.Add(r.state.Registrations().Lost(next.Registrations()))
	}

	// The files come first: if they fail, the state is still the one before.
	_, root := next.History().Ledger()
	if err := r.ledger.Reset(at.Epoch, ledger.Tree{Size: at.Size, Root: root}); err != nil {
		return err
	}

	if err := r.history.Restored(before, at); err != nil {
		return err
	}

	// The bundles of a backup are those of its time. A member that starts has had no state.
	if before.Epoch != 0 && next.Restored(r.state) {
		for _, peering := range next.Peerings().List() {
			r.Commands.prove(peering.Domain, peering.Bundle)
		}
	}

	r.state = next
	r.Commands.restored(next.History().Commands())
	r.publishPolicy()
	r.notifyChanged()
	r.notifyAgreed()

	return nil
}

// logged returns how far a state's ledger goes.
func logged(s *state.State) history.Position {
	size, _ := s.History().Ledger()
	return history.Position{Epoch: s.History().Position().Epoch, Size: size}
}

// A stateSummary has the parts of the state that every read needs.
type stateSummary struct {
	position directory.Position
	restored uint64 // the last revision of the backup that the epoch began with
	sealed   bool
	written  Numbers // its Formats are never modified
}

// A readProgress is the basis of a leader's reads.
type readProgress struct {
	applied atomic.Uint64 // index of the last entry that is applied, as far as known; every command raises it
}

func (r *readProgress) raise(index uint64) {
	for {
		old := r.applied.Load()
		if old >= index || r.applied.CompareAndSwap(old, index) {
			return
		}
	}
}

// view calls read with the state, which nothing changes meanwhile. It must not be kept.
func (r *Replica) view(read func(*state.State)) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	read(r.state)
}

// ask is view of a question to the state.
func ask[T any](r *Replica, question func(*state.State) T) (answer T) {
	r.view(func(s *state.State) { answer = question(s) })
	return answer
}

// use is view while no other call reads the state, for a call that changes how it is kept: a copy that is
// shared, a queue that is looked through. It must not change contents that the log determines.
func (r *Replica) use(use func(*state.State)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	use(r.state)
}

// Changed returns a channel that is closed at the next change of state. Take it before reading
// the state.
func (r *Replica) Changed() <-chan struct{} {
	r.mu.RLock()
	defer r.mu.RUnlock()

	return r.changed
}

// Current returns the digest by which a registration is in a stream now.
func (r *Replica) Current(rid directory.RID, aud directory.Audience) (signed.Digest, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()

	return r.state.Streams().Current(rid, aud)
}

// Digests returns a stream's digests with revisions in (since, to], ascending, at
// most limit; to is the last one's revision where they were cut off, otherwise
// at, the revision applied (rule G2).
func (r *Replica) Digests(
	aud directory.Audience, since uint64, limit int,
) (digests []signed.Digest, to, at uint64) {
	r.mu.RLock()
	defer r.mu.RUnlock()

	digests, to = r.state.Streams().Scan(aud, since, limit)

	return digests, to, r.state.History().Revision()
}

// Format returns the format in which a structure is written.
func (r *Replica) Format(structure signed.Structure) uint { return r.Written().Format(structure) }

// KeyDocument returns the domain's newest key document, nil until a key was
// attested, and while a restored history has no epoch of its own: nothing is signed
// then (rule P1). It must not be modified.
func (r *Replica) KeyDocument() *signed.KeyDocument {
	return ask(r, func(s *state.State) *signed.KeyDocument {
		if s.History().Sealed() != "" {
			return nil
		}

		return s.Keys().Document()
	})
}

// Ledger returns the size and root of the domain's Merkle log as applied here.
func (r *Replica) Ledger() (size uint64, root directory.Hash) {
	r.mu.RLock()
	defer r.mu.RUnlock()

	return r.state.History().Ledger()
}

// Offer returns the open offer of a registration to another identity.
func (r *Replica) Offer(rid directory.RID) (directory.Offer, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()

	return r.state.Offers().Of(rid)
}

// Offers returns up to limit open offers that an identity makes or is made, in the order of
// their rids, from the first behind after.
func (r *Replica) Offers(party directory.Identity, after directory.RID, limit int) []directory.Offer {
	return ask(r, func(s *state.State) []directory.Offer { return s.Offers().Involving(party, after, limit) })
}

// Own returns the statement of a living registration with all its disclosures.
func (r *Replica) Own(rid directory.RID) (payload []byte, disclosures []string, ok bool) {
	reg := r.registration(rid)
	if reg == nil {
		return nil, nil, false
	}

	return reg.Statement(directory.Grant{All: true})
}

// Peerings returns the agreements with other domains, sorted by name.
func (r *Replica) Peerings() []directory.Peering {
	return ask(r, func(s *state.State) []directory.Peering { return s.Peerings().List() })
}

// Position returns how far this member has applied the domain's history.
func (r *Replica) Position() directory.Position { return r.summary.Load().position }

// Restored returns the last revision of the backup that the epoch began with; 0 for the
// first epoch. Positions of earlier epochs up to it are part of the history.
func (r *Replica) Restored() uint64 { return r.summary.Load().restored }

// Unconfirmed returns how many registrations were restored and not written by their owners since,
// as applied here.
func (r *Replica) Unconfirmed() int {
	return ask(r, func(s *state.State) int { return s.Registrations().Unconfirmed() })
}

// Quotas returns how much of its quotas the domain uses, as applied here.
func (r *Replica) Quotas() Quotas {
	return ask(r, func(s *state.State) Quotas { return s.Owners().Quotas() })
}

// Record returns the record (h, m) of a stream, as long as it is the latest
// there of its registration: the statement's payload, and the disclosures meant
// for the audience.
func (r *Replica) Record(aud directory.Audience, h, m directory.Hash) (payload []byte, disclosures []string, ok bool) {
	r.mu.RLock()
	reg, grant, ok := r.state.Registrations().Record(aud, h, m)
	r.mu.RUnlock()

	if !ok {
		return nil, nil, false
	}

	return reg.Statement(grant)
}

// Agreed returns a channel that is closed at the next change of anything besides
// registrations: keys, peerings, policy, members, the history's beginning. A reader of these
// alone is not woken by every log entry. Take it as Changed's.
func (r *Replica) Agreed() <-chan struct{} {
	r.mu.RLock()
	defer r.mu.RUnlock()

	return r.agreed
}

// Await waits until this member has applied a position of its domain's history.
// It returns ctx's error when that ends first.
func (r *Replica) Await(ctx context.Context, at directory.Position) error {
	for {
		changed := r.Changed()
		if !r.Position().Before(at) {
			return nil
		}

		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		case <-r.lifetime.closing.Done():
			return errors.New("this member is stopping")
		}
	}
}

// Settled reports whether this member has led or caught up since it was opened. Until then it
// replays its log, and shows an incomplete state of the past.
func (r *Replica) Settled() bool { return r.settled.Load() }

// Tip returns the highest revision that was ever announced in a stream (rule G5).
func (r *Replica) Tip(aud directory.Audience) uint64 {
	return ask(r, func(s *state.State) uint64 { return s.Streams().Tip(aud) })
}

// Written returns the versions and formats that the domain writes, as far as this
// member has applied its history.
func (r *Replica) Written() Numbers { return r.summary.Load().written }

// settle notes that this member has led or caught up, and wakes waiting readers.
func (r *Replica) settle() {
	if r.settled.CompareAndSwap(false, true) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.notifyChanged()
		r.notifyAgreed()
	}
}

// isSealed reports whether a restored history has no epoch of its own yet here.
func (r *Replica) isSealed() bool { return r.summary.Load().sealed }

func (r *Replica) statementFormat() int {
	return int(r.Written().Format(signed.StructureStatement))
}

// declared reports whether the state has this member's own word on the versions that it reads.
func (r *Replica) declared() bool {
	_, ok := r.member(r.config.Node)

	return ok
}

// member returns a member's word on itself, and whether the state has one.
func (r *Replica) member(id spiffeid.ID) (state.Member, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()

	return r.state.Members().Get(id)
}

// committed returns the time of the last entry, in Unix milliseconds.
func (r *Replica) committed() int64 {
	return ask(r, func(s *state.State) int64 { return s.History().Now() })
}

// outline returns a copy of the state without its registrations.
func (r *Replica) outline() *state.State {
	return ask(r, func(s *state.State) *state.State { return s.Outline() })
}

// registration returns a registration; nil if there is none.
func (r *Replica) registration(rid directory.RID) *state.Registration {
	return ask(r, func(s *state.State) *state.Registration { return s.Registrations().Get(rid) })
}

// erasures returns the registrations behind a revision whose contents are erased.
func (r *Replica) erasures(behind uint64) []state.Erasure {
	return ask(r, func(s *state.State) []state.Erasure { return s.Erasures().After(behind) })
}

// hasErased reports whether the contents of a registration are erased.
func (r *Replica) hasErased(rid directory.RID) bool {
	return ask(r, func(s *state.State) bool { return s.Erasures().Has(rid) })
}

// named returns the registration of a name; nil without one.
func (r *Replica) named(agent string) *state.Registration {
	return ask(r, func(s *state.State) *state.Registration { return s.Registrations().Named(agent) })
}

// owned returns a registration that a caller may change.
func (r *Replica) owned(rid directory.RID, caller directory.Identity, any bool, ifMatch []uint64) (
	*state.Registration, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()

	return r.state.Registrations().Owned(rid, caller, any, ifMatch)
}

// decision returns the decisions of operators, as applied here.
func (r *Replica) decision() state.Decision {
	return ask(r, func(s *state.State) state.Decision { return s.Decision() })
}

// awayFor is the absence of a member after which authorities of its domain may have been replaced. A
// running domain writes more often: its nodes attest their keys again.
const awayFor = 6 * time.Hour

// noteAbsence notes whether this member was away for so long, by the time of the newest entry of its log. It
// is called when the member starts, before it has a message of another one: later the thief of a member's key
// could make committed time look old.
func (r *Replica) noteAbsence(newest time.Time) {
	if committed := time.UnixMilli(r.committed()); committed.After(newest) {
		newest = committed
	}

	r.away.Store(r.config.Clock.Now().Sub(newest) > awayFor)
}

// unconfirmed reports whether a registration was restored and not refreshed since.
func (r *Replica) unconfirmed(rid directory.RID) bool {
	reg := r.registration(rid)

	return reg != nil && reg.Entry().Unconfirmed
}

// policyVersion returns the version of the policy in force.
func policyVersion(s *state.State) uint64 {
	_, version := s.Policy().Policy()

	return version
}

// Admitted returns the nodes that may become members, sorted by id, and until when.
func (r *Replica) Admitted() (ids []spiffeid.ID, until []time.Time) {
	r.mu.RLock()
	defer r.mu.RUnlock()

	for _, a := range r.state.Members().Admissions() {
		if a.Until > r.state.History().Now()/1000 {
			ids, until = append(ids, a.ID), append(until, time.Unix(a.Until, 0))
		}
	}

	return ids, until
}

// StandingAdmissions returns the patterns of nodes that may become members, sorted, and how many
// members may match each.
func (r *Replica) StandingAdmissions() (patterns []string, most []uint32) {
	r.mu.RLock()
	defer r.mu.RUnlock()

	for _, a := range r.state.Members().Standing() {
		patterns, most = append(patterns, a.Pattern), append(most, a.Max)
	}

	return patterns, most
}
