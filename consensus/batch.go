package consensus

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/fxamacker/cbor/v2"
	"github.com/hashicorp/raft"

	"github.com/roster-mesh/roster/directory"
)

// Bounds of the leader's batching: what waits, what one log entry holds, and how
// many entries are under way. While the slots are taken commands gather, so a
// busy leader makes large entries and an idle one makes them at once. More entries
// under way are smaller ones, each of which costs every member a message, a wait
// for its disk and two turns of Raft: with four, 16 writers at a time cost an eighth
// more and got no more done.
const (
	maxWaiting      = 4096
	maxBatch        = 256
	maxBatchBytes   = 512 << 10
	maxEntriesAtOne = 1
	enqueueTimeout  = 2 * time.Second
)

// errNotLeader says that this member does not lead, and has done nothing.
var errNotLeader = errors.New("this member does not lead")

// A proposal is a command on its way into the log. Whoever moves it from waiting
// decides its fate: the batcher takes it, or its caller gives it up.
type proposal struct {
	command cbor.RawMessage
	weight  int // how many changes it is
	taken   atomic.Bool
	done    chan result // holds one
}

// What is many changes waits by itself: so one change goes into the next entry,
// however many lists have come before it.
type batcher struct {
	queue chan *proposal
	lists chan *proposal
	slots chan struct{}

	entered atomic.Uint64 // how many entries were given to Raft
	untold  atomic.Bool   // the last commit is followed by no entry that would tell of it
	tell    chan struct{} // holds one: somebody waits for a follower to know
	commit  chan struct{} // holds one: something was committed
}

func newBatcher() batcher {
	return batcher{
		queue: make(chan *proposal, maxWaiting), lists: make(chan *proposal, maxWaiting), slots: make(chan struct{}, maxEntriesAtOne),
		tell: make(chan struct{}, 1), commit: make(chan struct{}, 1),
	}
}

// propose puts a command into the log and returns what it did. errNotLeader and
// Unavailable mean that nothing was changed.
func (s *Store) propose(ctx context.Context, c *command) (directory.Outcome, error) {
	if err := s.failure(); err != nil {
		return directory.Outcome{}, directory.Refuse(directory.Unavailable, "this node cannot write any more; use another: %w", err)
	}
	raw, err := encoding.Marshal(c)
	if err != nil {
		return directory.Outcome{}, fmt.Errorf("encode a command: %w", err)
	}
	p := &proposal{command: raw, weight: c.weight(), done: make(chan result, 1)}
	select {
	case s.batches.fits(p) <- p:
	case <-s.closing.Done():
		return directory.Outcome{}, errNotLeader
	case <-ctx.Done():
		return directory.Outcome{}, tooBusy(ctx)
	}
	select {
	case r := <-p.done:
		return r.outcome, r.err
	case <-ctx.Done():
	case <-s.closing.Done():
	}
	if p.taken.CompareAndSwap(false, true) {
		return directory.Outcome{}, tooBusy(ctx)
	}
	select {
	case r := <-p.done:
		return r.outcome, r.err
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

// batchLoop makes log entries of what waits.
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
		case s.batches.slots <- struct{}{}:
		case <-s.closing.Done():
			return
		}
		group := s.batches.gather(first)
		if len(group) == 0 {
			<-s.batches.slots
			continue
		}
		future, err := s.enter(group)
		s.loops.Go(func() {
			defer func() { <-s.batches.slots }()
			s.settle(group, future, err)
		})
	}
}

// pause waits until nothing is under way into the log, and lets nothing begin
// until release, which may be called twice.
func (s *Store) pause(ctx context.Context) (release func(), err error) {
	held := 0
	release = func() {
		for ; held > 0; held-- {
			<-s.batches.slots
		}
	}
	for ; held < cap(s.batches.slots); held++ {
		select {
		case s.batches.slots <- struct{}{}:
		case <-ctx.Done():
			release()
			return nil, tooBusy(ctx)
		}
	}
	return release, nil
}

// gather takes first, what else waits of single changes, and lists as far as there is
// room for more changes, within bounds.
func (b *batcher) gather(first *proposal) (group []*proposal) {
	size, changes := 0, 0
	for p := first; p != nil; p = b.more(changes < maxChanges) {
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

// more returns what is to go into an entry next; nil where nothing waits.
func (b *batcher) more(room bool) *proposal {
	select {
	case p := <-b.queue:
		return p
	default:
	}
	if !room {
		return nil
	}
	select {
	case p := <-b.lists:
		return p
	default:
		return nil
	}
}

// enter stamps a group with the time and gives it to Raft.
func (s *Store) enter(group []*proposal) (raft.ApplyFuture, error) {
	now, err := s.stamp()
	if err != nil {
		return nil, err
	}
	data, err := encodeGroup(group, now)
	if err != nil {
		return nil, err
	}
	s.batches.untold.Store(false)
	s.batches.entered.Add(1)
	return s.raft.Apply(data, enqueueTimeout), nil
}

// encodeGroup encodes the batch of commands that are encoded already.
func encodeGroup(group []*proposal, now int64) ([]byte, error) {
	b := struct {
		Version  uint              `cbor:"1,keyasint"`
		Time     int64             `cbor:"2,keyasint"`
		Commands []cbor.RawMessage `cbor:"3,keyasint"`
	}{commandVersion, now, make([]cbor.RawMessage, len(group))}
	for i, p := range group {
		b.Commands[i] = p.command
	}
	return encoding.Marshal(b)
}

// settle waits for a group's entry and tells each of its commands what became of
// it.
func (s *Store) settle(group []*proposal, future raft.ApplyFuture, err error) {
	var results []result
	if err == nil {
		if err = proposed(future.Error()); err == nil {
			switch r := future.Response().(type) {
			case []result:
				results = r
			case error:
				err = unknown(r)
			}
		}
	}
	if err == nil {
		s.batches.untold.Store(true)
		signal(s.batches.commit)
	}
	for i, p := range group {
		if err != nil {
			p.done <- result{err: err}
		} else {
			p.done <- results[i]
		}
	}
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
