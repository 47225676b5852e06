package transport

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// A RaftTransport is Raft's transport of one member. It knows the member's configured
// address, its pipelines cannot block for ever, it withholds commits that the leader's
// disk does not have, and it gives way to another candidate.
type RaftTransport struct {
	*raft.NetworkTransport
	address   raft.ServerAddress
	told      func(*raft.AppendEntriesRequest) *raft.AppendEntriesRequest
	heard     chan raft.RPC // messages to Raft: from the network, and delivered locally
	entered   <-chan struct{}
	received  func(from raft.ServerID)
	candidacy *candidacy
}

// NewRaftTransport returns Raft's transport of the member at that address. withhold gets
// each message to others, and returns the message that is sent. Messages that are received before
// entered is closed are refused. received gets the member of each message and of each answer.
func NewRaftTransport(
	cluster *Cluster, address raft.ServerAddress, timeout time.Duration, log hclog.Logger,
	withhold func(*raft.AppendEntriesRequest) *raft.AppendEntriesRequest, entered <-chan struct{},
	received func(from raft.ServerID),
) RaftTransport {
	network := raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Stream: streams{cluster.raft, cluster}, MaxPool: 3, Timeout: timeout, Logger: log,
	})

	return RaftTransport{network, address, withhold, make(chan raft.RPC), entered, received, &candidacy{}}
}

// Deliver lets Raft receive a message that came beside its own connections.
func (t RaftTransport) Deliver(ctx context.Context, rpc raft.RPC) {
	select {
	case t.heard <- rpc:
	case <-ctx.Done():
	}
}

// Consumer returns the channel of received messages.
func (t RaftTransport) Consumer() <-chan raft.RPC { return t.heard }

// errOutside answers messages to a node that has not been let into its domain.
var errOutside = errors.New("this node's disk is empty, and its domain has not let it in yet")

// admit reports whether Raft may have a received message, and refuses it otherwise.
func (t RaftTransport) admit(rpc raft.RPC) bool {
	if message, ok := rpc.Command.(raft.WithRPCHeader); ok {
		t.received(raft.ServerID(message.GetRPCHeader().ID))
	}

	select {
	case <-t.entered:
		return true
	default:
		rpc.Respond(nil, errOutside)
		return false
	}
}

// SetHeartbeatHandler sets the function that gets heartbeats ahead of other messages.
func (t RaftTransport) SetHeartbeatHandler(handle func(raft.RPC)) {
	if handle == nil {
		t.NetworkTransport.SetHeartbeatHandler(nil)
		return
	}

	t.NetworkTransport.SetHeartbeatHandler(func(rpc raft.RPC) {
		if t.admit(rpc) {
			handle(rpc)
		}
	})
}

// Run passes received messages on, until stop.
func (t RaftTransport) Run(stop <-chan struct{}) {
	for {
		select {
		case rpc := <-t.NetworkTransport.Consumer():
			if !t.admit(rpc) {
				continue
			}

			if candidate, ok := rpc.Command.(*raft.RequestPreVoteRequest); ok {
				t.candidacy.compare(candidate)
			}

			select {
			case t.heard <- rpc:
			case <-stop:
				return
			}
		case <-stop:
			return
		}
	}
}

// LocalAddr returns the member's configured address.
func (t RaftTransport) LocalAddr() raft.ServerAddress { return t.address }

// RequestPreVote asks a member for its pre-vote. A grant does not count if this member has
// withdrawn its candidacy meanwhile.
func (t RaftTransport) RequestPreVote(id raft.ServerID, target raft.ServerAddress, args *raft.RequestPreVoteRequest,
	resp *raft.RequestPreVoteResponse) error {
	t.candidacy.stand(args)

	err := t.note(id, t.NetworkTransport.RequestPreVote(id, target, args, resp))
	if t.candidacy.isWithdrawn(args) {
		resp.Granted = false
	}

	return err
}

// AppendEntries sends entries, or a commit index without any.
func (t RaftTransport) AppendEntries(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest,
	resp *raft.AppendEntriesResponse) error {
	return t.note(id, t.NetworkTransport.AppendEntries(id, target, t.told(args), resp))
}

// RequestVote asks a member for its vote.
func (t RaftTransport) RequestVote(id raft.ServerID, target raft.ServerAddress, args *raft.RequestVoteRequest,
	resp *raft.RequestVoteResponse) error {
	return t.note(id, t.NetworkTransport.RequestVote(id, target, args, resp))
}

// note notes that a member has answered, unless err says that it has not.
func (t RaftTransport) note(id raft.ServerID, err error) error {
	if err == nil {
		t.received(id)
	}

	return err
}

// AppendEntriesPipeline opens a pipeline to a member.
func (t RaftTransport) AppendEntriesPipeline(id raft.ServerID, target raft.ServerAddress) (raft.AppendPipeline, error) {
	p, err := t.NetworkTransport.AppendEntriesPipeline(id, target)
	if err != nil {
		return nil, err
	}

	d := &drainedPipeline{AppendPipeline: p, told: t.told, answers: make(chan raft.AppendFuture),
		closed: make(chan struct{})}
	d.pump.Go(d.run)

	return d, nil
}

// A drainedPipeline takes its answers whether or not they are read. Raft stops reading
// when a member refuses entries or has a later term, and may send once more before it
// notices. The library's pipeline then blocks for ever: the sender waits for the reader
// of the answers, and that for the sender's end (hashicorp/raft issue 612).
type drainedPipeline struct {
	raft.AppendPipeline
	told    func(*raft.AppendEntriesRequest) *raft.AppendEntriesRequest
	answers chan raft.AppendFuture
	closed  chan struct{}
	once    sync.Once
	pump    sync.WaitGroup
}

// AppendEntries sends entries without waiting for the answer.
func (d *drainedPipeline) AppendEntries(args *raft.AppendEntriesRequest,
	resp *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	return d.AppendPipeline.AppendEntries(d.told(args), resp)
}

// Consumer returns the channel of the answers, in order.
func (d *drainedPipeline) Consumer() <-chan raft.AppendFuture { return d.answers }

// run holds answers that are not read yet: two at most while Raft reads, and few more
// later.
func (d *drainedPipeline) run() {
	var held []raft.AppendFuture
	for {
		var (
			out  chan raft.AppendFuture
			next raft.AppendFuture
		)
		if len(held) > 0 {
			out, next = d.answers, held[0]
		}

		select {
		case f := <-d.AppendPipeline.Consumer():
			held = append(held, f)
		case out <- next:
			held = held[1:]
		case <-d.closed:
			return
		}
	}
}

// Close ends the pipeline and the requests on it.
func (d *drainedPipeline) Close() error {
	err := d.AppendPipeline.Close()
	d.once.Do(func() { close(d.closed) })
	d.pump.Wait()

	return err
}
