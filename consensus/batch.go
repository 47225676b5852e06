package consensus

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fxamacker/cbor/v2"
	"github.com/hashicorp/raft"
	"github.com/roster-mesh/roster/consensus/state"
	"github.com/roster-mesh/roster/directory"
)

// Bounds of the leader's batching: what waits, and what one log entry holds. One entry
// is under way at a time. Meanwhile commands gather, so a busy leader makes large
// entries and an idle one makes them at once. More entries under way are smaller ones,
// each of which costs every member a message, a wait for its disk and two turns of
// Raft: with four, 16 writers at a time cost an eighth more and got no more done.
const (
	maxWaiting     = 4096
	maxBatch       = 256
	maxBatchBytes  = 512 << 10
	enqueueTimeout = 2 * time.Second
)

// errNotLeader says that this member does not lead, and has done nothing.
var errNotLeader = errors.New("this member does not lead")

// A proposal is a command on its way into the log. Whoever moves it from waiting
// decides its fate: the batcher takes it, or its caller gives it up.
type proposal struct {
	command cbor.RawMessage
	weight  int // how many changes it is
	taken   atomic.Bool
	done    chan state.Result // holds one
}

// What is many changes waits by itself: so one change goes into the next entry,
// however many lists have come before it.
type batcher struct {
	queue chan *proposal
	lists chan *proposal
	slot  chan struct{} // holds one: an entry is under way

	flight  atomic.Pointer[flight] // the last entry
	entered atomic.Uint64          // how many entries were given to Raft
	untold  atomic.Bool            // the last commit is followed by no entry that would tell of it
	tell    chan struct{}          // holds one: somebody waits for a follower to know
	commit  chan struct{}          // holds one: something was committed
}

func newBatcher() batcher {
	return batcher{
		queue: make(chan *proposal, maxWaiting), lists: make(chan *proposal, maxWaiting), slot: make(chan struct{}, 1),
		tell: make(chan struct{}, 1), commit: make(chan struct{}, 1),
	}
}

// propose puts a command into the log and returns what it did. errNotLeader and
// Unavailable mean that nothing was changed.
func (s *Store) propose(ctx context.Context, c *state.Command) (directory.Outcome, error) {
	p, err := s.submit(ctx, c)
	if err != nil {
		return directory.Outcome{}, err
	}
	return s.outcome(ctx, p)
}

// submit lets a command wait for its entry.
func (s *Store) submit(ctx context.Context, c *state.Command) (*proposal, error) {
	if err := s.failure(); err != nil {
		return nil, directory.Refuse(directory.Unavailable, "this node cannot write any more; use another: %w", err)
	}
	raw, err := state.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("encode a command: %w", err)
	}
	p := &proposal{command: raw, weight: c.Weight(), done: make(chan state.Result, 1)}
	select {
	case s.batches.fits(p) <- p:
		return p, nil
	case <-s.closing.Done():
		return nil, errNotLeader
	case <-ctx.Done():
		return nil, tooBusy(ctx)
	}
}

// outcome waits for what a command did.
func (s *Store) outcome(ctx context.Context, p *proposal) (directory.Outcome, error) {
	select {
	case r := <-p.done:
		return r.Outcome, r.Err
	case <-ctx.Done():
	case <-s.closing.Done():
	}
	if p.taken.CompareAndSwap(false, true) {
		return directory.Outcome{}, tooBusy(ctx)
	}
	select {
	case r := <-p.done:
		return r.Outcome, r.Err
	default:
		return directory.Outcome{}, unknown(context.Cause(ctx))
	}
}

// fits returns where a proposal waits.
func (b *batcher) fits(p *proposal) chan<- *proposal {
	if p.weight > 1 {
		return b.lists
	}
	return b.queue
}

func tooBusy(ctx context.Context) error {
	return directory.Refuse(directory.Unavailable, "the leader did not get to this in time; nothing was changed: try again: %w", context.Cause(ctx))
}

func unknown(cause error) error {
	e := directory.Refuse(directory.OutcomeUnknown, "it is not known whether this was done; to repeat it is safe")
	e.Err = cause
	return e
}

// batchLoop makes log entries of what waits, one after the other.
func (s *Store) batchLoop() {
	for {
		var first *proposal
		select {
		case first = <-s.batches.queue:
		case first = <-s.batches.lists: // in turn, so that neither waits for all of the other
		case <-s.closing.Done():
			return
		}
		select {
		case s.batches.slot <- struct{}{}:
		case <-s.closing.Done():
			return
		}
		if group := s.batches.gather(first); len(group) > 0 {
			s.enter(group)
		}
		<-s.batches.slot
	}
}

// pause waits until nothing is under way into the log, and lets nothing begin
// until release, which may be called twice.
func (s *Store) pause(ctx context.Context) (release func(), err error) {
	select {
	case s.batches.slot <- struct{}{}:
		return sync.OnceFunc(func() { <-s.batches.slot }), nil
	case <-ctx.Done():
		return func() {}, tooBusy(ctx)
	}
}

// gather takes first, what else waits of single changes, and lists as far as there is
// room for more changes, within bounds.
func (b *batcher) gather(first *proposal) (group []*proposal) {
	size, changes := 0, 0
	for p := first; p != nil; p = nextOf(b.queue, b.lists, changes < maxChanges) {
		if p.taken.CompareAndSwap(false, true) {
			group = append(group, p)
			size += len(p.command)
			changes += p.weight
		}
		if len(group) == maxBatch || size >= maxBatchBytes {
			break
		}
	}
	return group
}

// nextOf returns what is to go next with what was taken already, a list only where
// there is room for one; nil where nothing waits.
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

// enter stamps a group with the time, gives it to Raft, and tells each of its commands
// what became of it.
func (s *Store) enter(group []*proposal) {
	f := &flight{group: group}
	now, err := s.stamp()
	if err == nil {
		f.data, err = encodeGroup(group, s.Written().Log, now)
	}
	if err != nil {
		f.answer(nil, err)
		return
	}
	s.batches.untold.Store(false)
	s.batches.entered.Add(1)
	s.batches.flight.Store(f)
	future := s.raft.Apply(f.data, enqueueTimeout)
	if err := proposed(future.Error()); err != nil {
		f.answer(nil, err)
	} else if err, is := future.Response().(error); is {
		f.answer(nil, unknown(err))
	}
}

// applied tells who waits for an entry of this member's what it did. They are told
// where it is applied, and not where Raft says so to whom it had the entry from: one
// goroutine less to wake on the way of every write.
func (b *batcher) applied(entry *raft.Log, results []state.Result) {
	f := b.flight.Load()
	if f == nil || len(entry.Data) == 0 || &f.data[0] != &entry.Data[0] {
		return
	}
	b.untold.Store(true)
	signal(b.commit)
	f.answer(results, nil)
}

// A flight is an entry on its way into the log, and who waits for what it does.
type flight struct {
	data     []byte // which Raft hands to the machine as it was given to Raft
	group    []*proposal
	answered atomic.Bool
}

// answer tells everybody once: of an entry whose outcome Raft doesn't know any more,
// as of a leader that was overtaken, the machine may hear yet.
func (f *flight) answer(results []state.Result, err error) {
	if !f.answered.CompareAndSwap(false, true) {
		return
	}
	for i, p := range f.group {
		if err != nil {
			p.done <- state.Result{Err: err}
		} else {
			p.done <- results[i]
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

func signal(holdsOne chan<- struct{}) {
	select {
	case holdsOne <- struct{}{}:
	default: // one is there already, and will be seen after now
	}
}

// proposed says what an error of raft.Apply means for what was proposed.
func proposed(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrLeadershipTransferInProgress), errors.Is(err, raft.ErrEnqueueTimeout):
		return errNotLeader
	}
	return unknown(err)
}
