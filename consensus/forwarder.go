package consensus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"
	"github.com/roster-mesh/roster/consensus/message"
	"github.com/roster-mesh/roster/consensus/state"
	"github.com/roster-mesh/roster/consensus/stream"
	"github.com/roster-mesh/roster/consensus/transport"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/span"
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
	*member

	terms   *terms
	peers   *peers
	batches *batcher[forwardResult]
	streams openStreams
}

// openStreams are this member's write streams to the leader and to former leaders.
type openStreams struct {
	dialing chan struct{} // holds one: the right to change own
	own     map[spiffeid.ID]*leaderStream
}

// A leaderStream is this member's write stream to a member that leads or has led.
type leaderStream struct {
	*stream.Stream
	to     Member
	former time.Time // when this member lost it as its leader; zero while it leads
}

// A forwardResult is the outcome of a forwarded write.
type forwardResult struct {
	reply message.Reply
	err   error
}

// write executes a request here, or sends it to the leader. It retries requests of which
// nothing was begun, while there is time.
func (f *forwarder) write(ctx context.Context, req *message.Request) (_ directory.Outcome, err error) {
	ctx, step := span.Start(ctx, span.Write)
	defer func() { step.Done(err) }()

	if why := f.group.outside.Load(); why != nil {
		return directory.Outcome{}, directory.Refuse(directory.Unavailable,
			"this node is no member of its domain; nothing was changed: use another: %s", *why)
	}

	if request := directory.OperatorRequestOf(ctx); request != nil && req.TakesOrders() {
		req.Operator = state.OriginOf(f.cfg.Node, request).Operator
	}

	// Of a member without a vote the leader takes its own key alone.
	if err := f.peers.MustVote(); err != nil && req.Attest == nil {
		return directory.Outcome{}, err
	}

	req.Mark = f.replica.marks.mark(req.Caller().Identity)

	ctx, cancel := context.WithTimeout(ctx, f.cfg.Timing.Write)
	defer cancel()

	for {
		out, err := f.attempt(ctx, req)

		// Only ErrNotLeader says that nothing was begun. Any other answer is final.
		if !errors.Is(err, message.ErrNotLeader) {
			return out, err
		}

		select {
		case <-time.After(retryPause):
		case <-ctx.Done():
			return out, noLeader(err)
		case <-f.life.closing.Done():
			return out, directory.Refuse(directory.Unavailable,
				"this node is stopping; nothing was changed: use another")
		}
	}
}

// change is write of a request whose outcome says nothing but that it was done.
func (f *forwarder) change(ctx context.Context, req *message.Request) error {
	_, err := f.write(ctx, req)
	return err
}

// noLeader returns the refusal of a write that found no leader in time. That this member does
// not lead is no cause: another should.
func noLeader(err error) error {
	const refusal = "the domain has no leader in reach; nothing was changed"
	if err.Error() == message.ErrNotLeader.Error() {
		return directory.Refuse(directory.Unavailable, refusal)
	}

	return directory.Refuse(directory.Unavailable, refusal+": %w", err)
}

func (f *forwarder) attempt(ctx context.Context, req *message.Request) (directory.Outcome, error) {
	if leader := f.terms.leader(); leader != nil {
		return leader.write(ctx, req)
	}

	// Cosignatures of the domain's own ledger are the leader's, and no message carries them.
	if leader, ok := f.group.leader(); !ok || leader.ID == f.cfg.Node || req.Witnessed != nil {
		return directory.Outcome{}, message.ErrNotLeader
	}

	return f.forward(ctx, req)
}

// forward sends a request to the leader, together with others, and waits until this
// member has applied it. message.ErrNotLeader means that nothing was changed.
func (f *forwarder) forward(ctx context.Context, req *message.Request) (_ directory.Outcome, err error) {
	ctx, step := span.Start(ctx, span.Forward)
	defer func() { step.Done(err) }()

	req.Trace = span.Traceparent(ctx)

	raw, err := f.messenger.encode(req)
	if err != nil {
		return directory.Outcome{}, err
	}

	write, err := f.batches.add(ctx, raw, req.Weight())
	if err != nil {
		return directory.Outcome{}, err
	}

	result, err := f.batches.result(ctx, write)
	if err == nil {
		err = result.err
	}

	if err != nil {
		return directory.Outcome{}, err
	}

	return result.reply.Result()
}

// forwardLoop makes messages of waiting writes, one after the other. There are
// maxMessages such loops.
func (f *forwarder) forwardLoop() {
	for {
		first := f.batches.first()
		if first == nil {
			return
		}

		f.forwardGroup(f.batches.gather(first))
	}
}

// forwardGroup takes a group to the leader, waits until this member shows the results, so
// that the writer reads its own write here, and answers each write.
func (f *forwarder) forwardGroup(group []*waitingChange[forwardResult]) {
	if len(group) == 0 {
		return
	}

	// The bound is the member's own and no caller's, because a group has many callers.
	ctx, cancel := context.WithTimeout(f.life.closing, f.cfg.Timing.Write)
	defer cancel()

	got, err := f.send(ctx, group)
	if err == nil {
		// That the wait has ended early fails no write: they are committed.
		_ = f.replica.Await(ctx, got.Last())
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

// send exchanges a group with the leader.
func (f *forwarder) send(ctx context.Context, group []*waitingChange[forwardResult]) (*message.Answers, error) {
	leader, term, ok := f.group.follow()
	if !ok || leader.ID == f.cfg.Node {
		return nil, message.ErrNotLeader
	}

	// A stream opens within the leader's term: the host of a former leader may never answer.
	to, err := f.streamTo(term, leader)
	if err != nil {
		// No request was sent, so the next leader may get them.
		return nil, fmt.Errorf("%w: %w", message.ErrNotLeader, err)
	}

	got, err := f.exchange(ctx, to, &message.Writes{Requests: encodedChanges(group)})
	switch {
	case err != nil:
		return nil, err
	case got.NotLeader:
		return nil, message.ErrNotLeader
	case len(got.Replies) != len(group):
		// The writes may be done, but nothing says which reply belongs to which.
		return nil, message.Unknown(errors.New("the leader answered another number of writes"))
	}

	if got.Commit != nil {
		f.deliver(ctx, leader, got.Commit)
	}

	return got, nil
}

// streamTo returns the write stream to a member, and opens one if necessary.
func (f *forwarder) streamTo(ctx context.Context, to Member) (*leaderStream, error) {
	streams := &f.streams

	// A channel takes the place of a mutex, so that the wait for a slow dial ends with ctx.
	select {
	case streams.dialing <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}

	defer func() { <-streams.dialing }()

	if own := streams.own[to.ID]; own != nil {
		if own.to == to && own.IsLive() {
			return own, nil
		}

		// The member has moved, so the stream would stay unused.
		own.Cut()
	}

	conn, err := f.messenger.cluster.Connect(ctx, to.Address, transport.ProtocolWrite)
	if err != nil {
		return nil, err
	}

	opened := &leaderStream{Stream: stream.New(conn, f.cfg.Timing.Write), to: to}
	streams.own[to.ID] = opened

	// The stream ends with the connection, which the cluster closes at the latest.
	f.life.loops.Go(opened.Run)

	return opened, nil
}

// exchange sends a message over a stream and returns the answers.
func (f *forwarder) exchange(ctx context.Context, to *leaderStream, m *message.Writes) (*message.Answers, error) {
	data, err := f.messenger.encode(m)
	if err != nil {
		return nil, fmt.Errorf("encode a message: %w", err)
	}

	if data, err = to.Ask(ctx, append(stream.NewFrame(len(data)), data...)); err != nil {
		return nil, err
	}

	var got message.Answers
	if err := message.Unmarshal(data, &got); err != nil {
		return nil, message.Unknown(err)
	}

	return &got, nil
}

// deliver gives Raft the commit notice of an answer as a message of its own, which saves a
// message for each forwarded write. Raft ignores it if the entry is not here yet.
func (f *forwarder) deliver(ctx context.Context, leader Member, t *message.CommitNotice) {
	rpc := raft.RPC{Command: t.AppendEntries(leader), RespChan: make(chan raft.RPCResponse, 1)}
	f.transport.Deliver(ctx, rpc)
}

// successionLoop cuts the streams to former leaders, each a heartbeat timeout after this
// member has lost it. By then a former leader that runs has answered: it learns soon that it
// leads no more. So writes that were sent to a stopped leader get an unknown outcome, and
// those behind them go to the new one.
//
// It follows each new leader at once, even while a stream is being opened: that ends the
// attempt to connect to the former leader, which may be on a host that answers no more.
func (f *forwarder) successionLoop() {
	elected, deaf := f.group.elections()
	defer deaf()

	var (
		due  <-chan time.Time
		turn chan<- struct{} // to change the streams; nil while there is no cause to
	)

	for {
		select {
		case <-elected:
			f.group.follow()
			turn = f.streams.dialing
		case <-due:
			turn = f.streams.dialing
		case turn <- struct{}{}:
			// The send is the lock: streamTo holds the same channel while it dials.
			next := f.cutFormerLeaders()
			<-f.streams.dialing

			due, turn = nil, nil
			if next > 0 {
				due = time.After(next)
			}
		case <-f.life.closing.Done():
			return
		}
	}
}

// cutFormerLeaders cuts the streams to former leaders, each a heartbeat timeout after this
// member has followed it no more, and only while another leads. It returns the time until the
// next stream is due; 0 if there is none. The caller holds the right to change the streams.
func (f *forwarder) cutFormerLeaders() (due time.Duration) {
	leader, known := f.group.leader()

	for id, own := range f.streams.own {
		// A former leader that leads again keeps its stream.
		if id == leader.ID {
			own.former = time.Time{}
			continue
		}

		if own.former.IsZero() {
			own.former = time.Now()
		}

		rest := f.cfg.Timing.Heartbeat - time.Since(own.former)
		switch {
		case !known:
			// The former leader may lead again.
		case rest <= 0:
			own.Cut()
			delete(f.streams.own, id)
		case due == 0:
			due = rest
		default:
			due = min(due, rest)
		}
	}

	return due
}
