package consensus

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/fxamacker/cbor/v2"
	"github.com/roster-mesh/roster/consensus/message"
)

// maxWaiting bounds the changes that wait in each queue of a batcher.
const maxWaiting = 4096

// A batcher collects changes that share one exchange: commands for the next log entry, or
// requests for the next message to the leader. While an exchange is under way, changes
// gather, so a busy member makes large batches and an idle one makes them at once. Lists of
// many changes wait by themselves, so that a single change goes into the next batch, however
// many lists came before it.
type batcher[R any] struct {
	over      <-chan struct{} // closed when no more batches are made
	size      int             // of a batch, in items
	sizeBytes int
	singles   chan *waitingChange[R]
	lists     chan *waitingChange[R]
}

// A waitingChange is an encoded command or request on its way. Its owner is the one that
// moves it from waiting: a batch takes it, or its caller gives it up.
type waitingChange[R any] struct {
	data   cbor.RawMessage
	weight int // number of changes
	taken  atomic.Bool
	added  time.Time
	steps  *entrySteps // set before done has the result; nil if it went into no log entry
	done   chan R      // holds one
}

func newBatcher[R any](over <-chan struct{}, size, sizeBytes int) *batcher[R] {
	return &batcher[R]{
		over: over, size: size, sizeBytes: sizeBytes,
		singles: make(chan *waitingChange[R], maxWaiting), lists: make(chan *waitingChange[R], maxWaiting),
	}
}

// add lets a change wait for its batch. An error means that nothing was changed.
func (b *batcher[R]) add(ctx context.Context, data cbor.RawMessage, weight int) (*waitingChange[R], error) {
	queue := b.singles
	if weight > 1 {
		queue = b.lists
	}

	change := &waitingChange[R]{data: data, weight: weight, added: time.Now(), done: make(chan R, 1)}
	select {
	case queue <- change:
		return change, nil
	case <-b.over:
		return nil, message.ErrNotLeader
	case <-ctx.Done():
		return nil, tooBusy(ctx)
	}
}

// result waits for the result of a change. When no more batches are made, or ctx ends, the change
// is given up if no batch has taken it. Otherwise its outcome is unknown when ctx ends.
func (b *batcher[R]) result(ctx context.Context, change *waitingChange[R]) (result R, err error) {
	select {
	case result = <-change.done:
		return result, nil
	case <-ctx.Done():
	case <-b.over:
	}

	// Only one of the batch and this caller takes the change, so one that is given up is never proposed.
	if change.taken.CompareAndSwap(false, true) {
		if ctx.Err() == nil {
			return result, message.ErrNotLeader
		}

		return result, tooBusy(ctx)
	}

	// A batch has the change, so the end of batches doesn't end the wait: the answer still comes.
	select {
	case result = <-change.done:
		return result, nil
	case <-ctx.Done():
	}

	// Select chooses at random if both are ready, and a result that is there counts.
	select {
	case result = <-change.done:
		return result, nil
	default:
		return result, message.Unknown(context.Cause(ctx))
	}
}

// first waits for the first change of a batch; nil when no more are made. Singles and lists
// take turns, so that neither waits for all of the other.
func (b *batcher[R]) first() *waitingChange[R] {
	select {
	case change := <-b.singles:
		return change
	case change := <-b.lists:
		return change
	case <-b.over:
		return nil
	}
}

// gather takes first, all waiting single changes, and lists as far as there is room, within
// the bounds of a batch.
func (b *batcher[R]) gather(first *waitingChange[R]) (batch []*waitingChange[R]) {
	size, changes := 0, 0
	for change := first; change != nil; change = b.next(changes < message.MaxChanges) {
		if change.taken.CompareAndSwap(false, true) {
			batch = append(batch, change)
			size += len(change.data)
			changes += change.weight
		}

		if len(batch) == b.size || size >= b.sizeBytes {
			break
		}
	}

	return batch
}

// next returns the next waiting change, a list only if there is room; nil if none waits.
func (b *batcher[R]) next(room bool) *waitingChange[R] {
	select {
	case change := <-b.singles:
		return change
	default:
	}

	if !room {
		return nil
	}

	select {
	case change := <-b.lists:
		return change
	default:
		return nil
	}
}

// isEmpty reports whether no change waits.
func (b *batcher[R]) isEmpty() bool { return len(b.singles)+len(b.lists) == 0 }

// encodedChanges returns the changes of a batch as they are encoded.
func encodedChanges[R any](batch []*waitingChange[R]) []cbor.RawMessage {
	encoded := make([]cbor.RawMessage, len(batch))
	for i, change := range batch {
		encoded[i] = change.data
	}

	return encoded
}
