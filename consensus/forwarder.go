package consensus

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/fxamacker/cbor/v2"
	"github.com/roster-mesh/roster/consensus/message"
	"github.com/roster-mesh/roster/consensus/state"
	"github.com/roster-mesh/roster/consensus/transport"
	"github.com/roster-mesh/roster/directory"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// Bounds of a follower's forwarding: the size of a message, and how many messages are
// under way. While they are, writes gather, as in the proposer; a message is one exchange
// with the leader, however many writes are in it.
const (
	maxMessages     = 2
	maxMessage      = 128
	maxMessageBytes = 256 << 10
)

// A forwarder takes this member's writes to the leader: the one place that knows who
// leads.
type forwarder struct {
	cfg       *Config
	life      *lifecycle
	group     *group
	replica   *Replica
	messenger *messenger
	commits   *commitNotifier
	writes    *writeServer // does the writes if this member leads
	queue     forwardQueue
	streams   openStreams
}

// openStreams are this member's write streams to the leader and to former leaders.
type openStreams struct {
	dialing chan struct{} // holds one: the right to change own
	own     map[spiffeid.ID]*writeStream
}

func (f *forwarder) attempt(ctx context.Context, req *message.Request) (directory.Outcome, error) {
	if f.group.leading.Load() {
		return f.writes.lead(ctx, req)
	}

	if leader, ok := f.group.leader(); !ok || leader.ID == f.cfg.Node {
		return directory.Outcome{}, message.ErrNotLeader
	}

	return f.forward(ctx, req)
}

// forwardGroup takes a group to the leader, waits until this member shows the results, so
// that the writer reads its own write here, and answers each write.
func (f *forwarder) forwardGroup(group []*forwardedWrite) {
	if len(group) == 0 {
		return
	}

	ctx, cancel := context.WithTimeout(f.life.closing, f.cfg.Timing.Write)
	defer cancel()

	got, err := f.send(ctx, group)
	if err == nil {
		_ = f.replica.Await(ctx, got.Last()) // it is committed anyway
	}

	for i, write := range group {
		switch {
		case err != nil:
			write.done <- forwardResult{err: err}
		case got.Replies[i].NotLeader:
			write.done <- forwardResult{err: message.ErrNotLeader}
		default:
			write.done <- forwardResult{reply: got.Replies[i]}
		}
	}
}

// forwardLoop makes messages of waiting writes, one after the other. There are
// maxMessages such loops.
func (f *forwarder) forwardLoop() {
	for {
		var first *forwardedWrite
		select {
		case first = <-f.queue.queue:
		case first = <-f.queue.lists: // in turn
		case <-f.life.closing.Done():
			return
		}

		f.forwardGroup(f.queue.gather(first))
	}
}

// send exchanges a group with the leader.
func (f *forwarder) send(ctx context.Context, group []*forwardedWrite) (*message.Answers, error) {
	leader, term, ok := f.group.follow()
	if !ok || leader.ID == f.cfg.Node {
		return nil, message.ErrNotLeader
	}

	writes := message.Writes{Requests: make([]cbor.RawMessage, len(group))}
	for i, p := range group {
		writes.Requests[i] = p.request
	}

	stream, err := f.streamTo(term, leader)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", message.ErrNotLeader, err)
	}

	got, err := f.exchange(ctx, stream, &writes)
	switch {
	case err != nil:
		return nil, err
	case got.NotLeader:
		return nil, message.ErrNotLeader
	case len(got.Replies) != len(group):
		return nil, message.Unknown(errors.New("the leader answered another number of writes"))
	}

	if got.Commit != nil {
		f.commits.deliver(ctx, leader, got.Commit)
	}

	return got, nil
}

// exchange sends a message over a stream and returns the answers.
func (f *forwarder) exchange(ctx context.Context, stream *writeStream, m *message.Writes) (*message.Answers, error) {
	data, err := f.messenger.encode(m)
	if err != nil {
		return nil, fmt.Errorf("encode a message: %w", err)
	}

	if data, err = stream.ask(ctx, append(newFrame(len(data)), data...)); err != nil {
		return nil, err
	}

	var got message.Answers
	if err := message.Unmarshal(data, &got); err != nil {
		return nil, message.Unknown(err)
	}

	return &got, nil
}

// forward sends a request to the leader, together with others, and waits until this
// member has applied it. message.ErrNotLeader means that nothing was changed.
func (f *forwarder) forward(ctx context.Context, req *message.Request) (directory.Outcome, error) {
	raw, err := f.messenger.encode(req)
	if err != nil {
		return directory.Outcome{}, err
	}

	write := &forwardedWrite{request: raw, weight: req.Weight(), done: make(chan forwardResult, 1)}
	select {
	case f.queue.fits(write) <- write:
	case <-f.life.closing.Done():
		return directory.Outcome{}, message.ErrNotLeader
	case <-ctx.Done():
		return directory.Outcome{}, tooBusy(ctx)
	}

	select {
	case result := <-write.done:
		if result.err != nil {
			return directory.Outcome{}, result.err
		}

		return result.reply.Result()
	case <-ctx.Done():
	case <-f.life.closing.Done():
	}

	if write.taken.CompareAndSwap(false, true) {
		return directory.Outcome{}, tooBusy(ctx)
	}

	return directory.Outcome{}, message.Unknown(context.Cause(ctx))
}

// cutFormerLeaders cuts the streams to members that have led no more for a heartbeat
// timeout. It returns the time until the next stream is due; 0 if there is none.
func (f *forwarder) cutFormerLeaders() (due time.Duration) {
	select {
	case f.streams.dialing <- struct{}{}:
	case <-f.life.closing.Done():
		return 0
	}

	defer func() { <-f.streams.dialing }()

	leader, ok := f.group.leader()
	if !ok {
		return 0
	}

	for id, stream := range f.streams.own {
		if id == leader.ID {
			stream.former = time.Time{}
			continue
		}

		if stream.former.IsZero() {
			stream.former = time.Now()
		}

		rest := f.cfg.Timing.Heartbeat - time.Since(stream.former)
		switch {
		case rest <= 0:
			stream.cut()
			delete(f.streams.own, id)
		case due == 0:
			due = rest
		default:
			due = min(due, rest)
		}
	}

	return due
}

// streamTo returns the write stream to a member, and opens one if necessary.
func (f *forwarder) streamTo(ctx context.Context, to Member) (*writeStream, error) {
	streams := &f.streams
	select {
	case streams.dialing <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}

	defer func() { <-streams.dialing }()

	if stream := streams.own[to.ID]; stream != nil {
		if stream.to == to && stream.live() {
			return stream, nil
		}

		stream.cut() // the member has moved, so the stream would stay unused
	}

	conn, err := f.messenger.cluster.Connect(ctx, to.Address, transport.ProtocolWrite)
	if err != nil {
		return nil, err
	}

	stream := newWriteStream(conn, to, f.cfg.Timing.Write)
	streams.own[to.ID] = stream
	f.life.loops.Go(stream.run) // it ends with the connection, which the cluster closes at the latest

	return stream, nil
}

// successionLoop cuts the streams to former leaders, each a heartbeat timeout after this
// member has followed another one. By then a former leader that runs has answered: it
// learns soon that it leads no more. So writes that were sent to a stopped leader get an
// unknown outcome, and those behind them go to the new one.
func (f *forwarder) successionLoop() {
	elected, deaf := f.group.elections()
	defer deaf()

	var due <-chan time.Time
	for {
		select {
		case <-elected:
			f.group.follow()
		case <-due:
		case <-f.life.closing.Done():
			return
		}

		due = nil
		if next := f.cutFormerLeaders(); next > 0 {
			due = time.After(next)
		}
	}
}

// write executes a request here, or sends it to the leader. It retries requests of which
// nothing was begun, while there is time.
func (f *forwarder) write(ctx context.Context, req *message.Request) (directory.Outcome, error) {
	if why := f.group.outside.Load(); why != nil {
		return directory.Outcome{}, directory.Refuse(directory.Unavailable,
			"this node is no member of its domain; nothing was changed: use another: %s", *why)
	}

	if request := directory.OperatorRequestOf(ctx); request != nil && req.TakesOrders() {
		req.Operator = state.OriginOf(f.cfg.Node, request).Operator
	}

	ctx, cancel := context.WithTimeout(ctx, f.cfg.Timing.Write)
	defer cancel()

	for {
		out, err := f.attempt(ctx, req)
		if !errors.Is(err, message.ErrNotLeader) {
			return out, err
		}

		select {
		case <-time.After(retryPause):
		case <-ctx.Done():
			return out, directory.Refuse(directory.Unavailable,
				"the domain has no leader in reach; nothing was changed: try again: %w", err)
		case <-f.life.closing.Done():
			return out, directory.Refuse(directory.Unavailable,
				"this node is stopping; nothing was changed: use another")
		}
	}
}

// A forwardedWrite is a write on its way to the leader. Its owner is the one that moves
// it from waiting: the forwarder takes it, or its caller gives it up.
type forwardedWrite struct {
	request cbor.RawMessage
	weight  int // how many changes it is
	taken   atomic.Bool
	done    chan forwardResult // holds one
}

// A forwardResult is the outcome of a forwarded write.
type forwardResult struct {
	reply message.Reply
	err   error
}

// A forwardQueue has the waiting writes. As in the batcher, writes with many changes wait
// by themselves.
type forwardQueue struct {
	queue chan *forwardedWrite
	lists chan *forwardedWrite
}

func newForwardQueue() forwardQueue {
	return forwardQueue{make(chan *forwardedWrite, maxWaiting), make(chan *forwardedWrite, maxWaiting)}
}

// fits returns the queue for a write.
func (c *forwardQueue) fits(p *forwardedWrite) chan<- *forwardedWrite {
	if p.weight > 1 {
		return c.lists
	}

	return c.queue
}

// gather takes first, all waiting single changes, and lists as far as there is room,
// within bounds.
func (c *forwardQueue) gather(first *forwardedWrite) (group []*forwardedWrite) {
	size, changes := 0, 0
	for write := first; write != nil; write = nextOf(c.queue, c.lists, changes < message.MaxChanges) {
		if write.taken.CompareAndSwap(false, true) {
			group = append(group, write)
			size += len(write.request)
			changes += write.weight
		}

		if len(group) == maxMessage || size >= maxMessageBytes {
			break
		}
	}

	return group
}
