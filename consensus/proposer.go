package consensus

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	"github.com/roster-mesh/roster/consensus/message"
	"github.com/roster-mesh/roster/consensus/state"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/span"
)

// maxBatch bounds the commands of one log entry. One entry is under way at a time: several
// entries under way are smaller ones, each of which costs every member a message, a wait for
// its disk and two turns of Raft. With four, 16 writers at a time cost an eighth more and got
// no more done.
const maxBatch = 256

// A proposal is a command on its way into the log.
type proposal = waitingChange[state.Result]

// A proposer puts commands into the log, as the leader.
type proposer struct {
	*member

	clocks  *clocks
	over    <-chan struct{} // closed at the end of the term
	batches *batcher[state.Result]
	slot    chan struct{} // holds one: an entry is under way
	commits commitSignals

	inflight atomic.Pointer[inflightEntry] // the last entry
}

func newProposer(m *member, clocks *clocks, over context.Context) *proposer {
	return &proposer{
		member: m, clocks: clocks, over: over.Done(),
		batches: newBatcher[state.Result](over.Done(), maxBatch, state.MaxBatchBytes),
		slot:    make(chan struct{}, 1),
		commits: newCommitSignals(),
	}
}

// propose puts a command into the log and returns its result. message.ErrNotLeader and
// Unavailable mean that nothing was changed.
func (p *proposer) propose(ctx context.Context, c *state.Command) (directory.Outcome, error) {
	waiting, err := p.submit(ctx, c)
	if err != nil {
		return directory.Outcome{}, err
	}

	return p.outcome(ctx, waiting)
}

// tryPropose is propose of a command that a later round repeats if it fails.
func (p *proposer) tryPropose(ctx context.Context, command *state.Command) {
	if _, err := p.propose(ctx, command); err != nil {
		p.log.Debug("a command failed; the next round retries", "err", err)
	}
}

// submit lets a command wait for its entry.
func (p *proposer) submit(ctx context.Context, command *state.Command) (*proposal, error) {
	if err := p.life.failure(); err != nil {
		return nil, directory.Refuse(directory.Unavailable, "this node cannot write any more; use another: %w", err)
	}

	// No request has brought the change, so it gets its origin here.
	if change, traced := command.Change(); traced && change.Node && command.Origin == nil {
		command.Origin = &state.Origin{From: p.cfg.Node, Mark: p.replica.marks.mark(directory.Identity{})}
	}

	raw, err := state.Marshal(command)
	if err != nil {
		return nil, fmt.Errorf("encode a command: %w", err)
	}

	// A member that can't read an entry of the log ends for good, as all others do.
	if err := state.Unmarshal(raw, &state.Command{}); err != nil {
		return nil, directory.Refuse(directory.BadRequest, "the members could not read this change; nothing was "+
			"changed: %w", err)
	}

	return p.batches.add(ctx, raw, command.Weight())
}

// run makes log entries of waiting proposals, one after the other.
func (p *proposer) run() {
	for {
		first := p.batches.first()
		if first == nil {
			return
		}

		select {
		case p.slot <- struct{}{}:
		case <-p.over:
			return
		}

		if group := p.batches.gather(first); len(group) > 0 {
			p.enter(group)
		}

		<-p.slot
	}
}

// An inflightEntry is an entry on its way into the log, with its proposals.
type inflightEntry struct {
	data     []byte // which Raft hands to the machine as it was given to Raft
	group    []*proposal
	steps    entrySteps
	answered atomic.Bool
}

// entrySteps are the times of an entry's steps at the leader, for traces.
type entrySteps struct {
	entered   time.Time // given to Raft
	committed time.Time // given to the state machine
	applied   time.Time
	commands  int
}

// enter stamps a group with the time, gives it to Raft, and answers each of its commands.
func (p *proposer) enter(group []*proposal) {
	entry := &inflightEntry{group: group}
	entry.steps.entered, entry.steps.commands = time.Now(), len(group)

	now, err := p.clocks.stamp()
	if err == nil {
		entry.data, err = state.EncodeBatch(p.replica.Written().Log, now, encodedChanges(group))
	}

	if err != nil {
		entry.answer(nil, err)
		return
	}

	// Before Apply, because the entry may be applied before Raft's future returns.
	p.commits.entering()
	p.inflight.Store(entry)

	future := p.group.raft.Apply(entry.data, enqueueTimeout)
	if err := proposed(future.Error()); err != nil {
		entry.answer(nil, err)
	} else if err, is := future.Response().(error); is {
		entry.answer(nil, message.Unknown(err))
	}
}

// applied answers the proposals of an entry of this member where it is applied, instead
// of where Raft reports it: one goroutine less to wake for every write.
func (p *proposer) applied(entry *raft.Log, committed time.Time, results []state.Result) {
	last := p.inflight.Load()
	if last == nil || len(entry.Data) == 0 || &last.data[0] != &entry.Data[0] {
		return
	}

	last.steps.committed, last.steps.applied = committed, time.Now()

	p.commits.committed()
	last.answer(results, nil)
}

// answer answers all proposals once. An entry whose outcome Raft no longer knows, as of a
// leader that was overtaken, may still be applied.
func (f *inflightEntry) answer(results []state.Result, err error) {
	if !f.answered.CompareAndSwap(false, true) {
		return
	}

	for i, waiting := range f.group {
		if err != nil {
			waiting.done <- state.Result{Err: err}
		} else {
			waiting.steps = &f.steps
			waiting.done <- results[i]
		}
	}
}

// commitSignals say when followers wait for a commit notice.
type commitSignals struct {
	entered atomic.Uint64 // number of entries given to Raft
	pending atomic.Bool   // no entry follows the last commit and carries its index
	awaited chan struct{} // holds one: a reader waits for a follower to apply the commit
	commit  chan struct{} // holds one: an entry was committed
}

func newCommitSignals() commitSignals {
	return commitSignals{awaited: make(chan struct{}, 1), commit: make(chan struct{}, 1)}
}

// entering notes that an entry is given to Raft, which carries the commit index.
func (s *commitSignals) entering() {
	s.pending.Store(false)
	s.entered.Add(1)
}

// committed notes that the last entry is committed.
func (s *commitSignals) committed() {
	s.pending.Store(true)
	signal(s.commit)
}

// outcome waits for the result of a command.
func (p *proposer) outcome(ctx context.Context, waiting *proposal) (directory.Outcome, error) {
	result, err := p.batches.result(ctx, waiting)
	if err != nil {
		return directory.Outcome{}, err
	}

	if s := waiting.steps; s != nil {
		span.Past(ctx, span.Queue, waiting.added, s.entered, 0)
		span.Past(ctx, span.Commit, s.entered, s.committed, s.commands)
		span.Past(ctx, span.Apply, s.committed, s.applied, s.commands)
	}

	return result.Outcome, result.Err
}

// pause waits until no entry is under way, and lets none begin until release, which may
// be called twice.
func (p *proposer) pause(ctx context.Context) (release func(), err error) {
	select {
	case p.slot <- struct{}{}:
		return sync.OnceFunc(func() { <-p.slot }), nil
	case <-ctx.Done():
		return func() {}, tooBusy(ctx)
	}
}
