package consensus

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/fxamacker/cbor/v2"
	"github.com/hashicorp/raft"
	"github.com/roster-mesh/roster/consensus/message"
	"github.com/roster-mesh/roster/consensus/state"
	"github.com/roster-mesh/roster/directory"
)

// Bounds of the leader's batching: the proposals that wait, and the size of one log entry.
// One entry is under way at a time. Meanwhile commands gather, so a busy leader makes large
// entries and an idle one makes them at once. Several entries under way are smaller ones,
// each of which costs every member a message, a wait for its disk and two turns of Raft:
// with four, 16 writers at a time cost an eighth more and got no more done.
const (
	maxWaiting = 4096
	maxBatch   = 256
)

// A proposer puts commands into the log, as the leader.
type proposer struct {
	cfg     *Config
	life    *lifecycle
	group   *group
	replica *Replica
	clocks  *clocks
	batches batcher
}

// run makes log entries of waiting proposals, one after the other.
func (p *proposer) run() {
	for {
		var first *proposal
		select {
		case first = <-p.batches.queue:
		case first = <-p.batches.lists: // in turn, so that neither waits for all of the other
		case <-p.life.closing.Done():
			return
		}

		select {
		case p.batches.slot <- struct{}{}:
		case <-p.life.closing.Done():
			return
		}

		if group := p.batches.gather(first); len(group) > 0 {
			p.enter(group)
		}

		<-p.batches.slot
	}
}

// enter stamps a group with the time, gives it to Raft, and answers each of its commands.
func (p *proposer) enter(group []*proposal) {
	entry := &inflightEntry{group: group}

	now, err := p.clocks.stamp()
	if err == nil {
		entry.data, err = encodeGroup(group, p.replica.Written().Log, now)
	}

	if err != nil {
		entry.answer(nil, err)
		return
	}

	p.batches.untold.Store(false)
	p.batches.entered.Add(1)
	p.batches.inflight.Store(entry)

	future := p.group.raft.Apply(entry.data, enqueueTimeout)
	if err := proposed(future.Error()); err != nil {
		entry.answer(nil, err)
	} else if err, is := future.Response().(error); is {
		entry.answer(nil, message.Unknown(err))
	}
}

// outcome waits for the result of a command.
func (p *proposer) outcome(ctx context.Context, waiting *proposal) (directory.Outcome, error) {
	select {
	case r := <-waiting.done:
		return r.Outcome, r.Err
	case <-ctx.Done():
	case <-p.life.closing.Done():
	}

	if waiting.taken.CompareAndSwap(false, true) {
		return directory.Outcome{}, tooBusy(ctx)
	}

	select {
	case r := <-waiting.done:
		return r.Outcome, r.Err
	default:
		return directory.Outcome{}, message.Unknown(context.Cause(ctx))
	}
}

// pause waits until no entry is under way, and lets none begin until release, which may
// be called twice.
func (p *proposer) pause(ctx context.Context) (release func(), err error) {
	select {
	case p.batches.slot <- struct{}{}:
		return sync.OnceFunc(func() { <-p.batches.slot }), nil
	case <-ctx.Done():
		return func() {}, tooBusy(ctx)
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

// submit lets a command wait for its entry.
func (p *proposer) submit(ctx context.Context, command *state.Command) (*proposal, error) {
	if err := p.life.failure(); err != nil {
		return nil, directory.Refuse(directory.Unavailable, "this node cannot write any more; use another: %w", err)
	}

	if change, traced := command.Change(); traced && change.Node && command.Origin == nil &&
		p.replica.Written().Log >= state.TracedVersion {
		command.Origin = &state.Origin{From: p.cfg.Node}
	}

	raw, err := state.Marshal(command)
	if err != nil {
		return nil, fmt.Errorf("encode a command: %w", err)
	}

	waiting := &proposal{command: raw, weight: command.Weight(), done: make(chan state.Result, 1)}
	select {
	case p.batches.fits(waiting) <- waiting:
		return waiting, nil
	case <-p.life.closing.Done():
		return nil, message.ErrNotLeader
	case <-ctx.Done():
		return nil, tooBusy(ctx)
	}
}

// A proposal is a command on its way into the log. Its owner is the one that moves it
// from waiting: the batcher takes it, or its caller gives it up.
type proposal struct {
	command cbor.RawMessage
	weight  int // how many changes it is
	taken   atomic.Bool
	done    chan state.Result // holds one
}

// A batcher has the waiting proposals and the entry under way. Proposals with many
// changes wait by themselves, so that a single change goes into the next entry, however
// many lists came before it.
type batcher struct {
	queue chan *proposal
	lists chan *proposal
	slot  chan struct{} // holds one: an entry is under way

	inflight atomic.Pointer[inflightEntry] // the last entry
	entered  atomic.Uint64                 // how many entries were given to Raft
	untold   atomic.Bool                   // the last commit is followed by no entry that would tell of it
	tell     chan struct{}                 // holds one: somebody waits for a follower to know
	commit   chan struct{}                 // holds one: something was committed
}

func newBatcher() batcher {
	return batcher{
		queue: make(chan *proposal, maxWaiting), lists: make(chan *proposal, maxWaiting), slot: make(chan struct{}, 1),
		tell: make(chan struct{}, 1), commit: make(chan struct{}, 1),
	}
}

// fits returns the queue for a proposal.
func (b *batcher) fits(p *proposal) chan<- *proposal {
	if p.weight > 1 {
		return b.lists
	}

	return b.queue
}

// gather takes first, all waiting single changes, and lists as far as there is room,
// within bounds.
func (b *batcher) gather(first *proposal) (group []*proposal) {
	size, changes := 0, 0
	for next := first; next != nil; next = nextOf(b.queue, b.lists, changes < message.MaxChanges) {
		if next.taken.CompareAndSwap(false, true) {
			group = append(group, next)
			size += len(next.command)
			changes += next.weight
		}

		if len(group) == maxBatch || size >= state.MaxBatchBytes {
			break
		}
	}

	return group
}

// nextOf returns the next waiting item, a list only if there is room; nil if none waits.
func nextOf[T any](queue, lists <-chan *T, room bool) *T {
	select {
	case p := <-queue:
		return p
	default:
	}

	if !room {
		return nil
	}

	select {
	case p := <-lists:
		return p
	default:
		return nil
	}
}

// applied answers the proposals of an entry of this member where it is applied, instead
// of where Raft reports it: one goroutine less to wake for every write.
func (b *batcher) applied(entry *raft.Log, results []state.Result) {
	last := b.inflight.Load()
	if last == nil || len(entry.Data) == 0 || &last.data[0] != &entry.Data[0] {
		return
	}

	b.untold.Store(true)
	signal(b.commit)
	last.answer(results, nil)
}

// An inflightEntry is an entry on its way into the log, with its proposals.
type inflightEntry struct {
	data     []byte // which Raft hands to the machine as it was given to Raft
	group    []*proposal
	answered atomic.Bool
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
			waiting.done <- results[i]
		}
	}
}

// encodeGroup encodes the batch of commands that are encoded already, in that version
// of the log.
func encodeGroup(group []*proposal, version uint, now int64) ([]byte, error) {
	commands := make([]cbor.RawMessage, len(group))
	for i, p := range group {
		commands[i] = p.command
	}

	return state.EncodeBatch(version, now, commands)
}
