package transport

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// A RaftTransport is Raft's transport of one member. It knows the member's configured
// address, its pipelines cannot block for ever, it withholds commits that the leader's
// disk does not have, it gives way to another candidate, and Raft gets no message that
// was not judged.
type RaftTransport struct {
	*raft.NetworkTransport // to others
	options                RaftOptions
	heard                  chan raft.RPC // messages to Raft: from the network, and delivered locally
	candidacy              *candidacy
	lanes                  *lanes
}

// RaftOptions are the parts of a RaftTransport.
type RaftOptions struct {
	Cluster *Cluster
	Address raft.ServerAddress // this member's, as configured
	Timeout time.Duration      // of a message
	Log     hclog.Logger
	// Withhold gets each message to others, and returns the message that is sent.
	Withhold func(*raft.AppendEntriesRequest) *raft.AppendEntriesRequest
	// Entered is closed once messages are accepted.
	Entered <-chan struct{}
	// Received gets the member of each message and of each answer.
	Received func(from raft.ServerID)
	// Matched gets each answer of a member that has this leader's entries up to an index.
	Matched func(id raft.ServerID, term, index uint64)
	// Judge refuses a message that Raft must not have. TLS has authenticated the member that has sent
	// it. It is called by several goroutines.
	Judge func(from spiffeid.ID, message any) error
	// Installing gets the member that has sent a snapshot, when Raft begins to read it.
	Installing func(from spiffeid.ID)
}

// NewRaftTransport returns Raft's transport of a member. It receives once Run is called.
func NewRaftTransport(options RaftOptions) RaftTransport {
	config := raft.NetworkTransportConfig{MaxPool: 3, Timeout: options.Timeout, Logger: options.Log}

	outbound := config
	outbound.Stream = streams{newAcceptor(options.Cluster.raft.Addr()), options.Cluster}

	return RaftTransport{
		NetworkTransport: raft.NewNetworkTransportWithConfig(&outbound),
		options:          options,
		heard:            make(chan raft.RPC),
		candidacy:        &candidacy{},
		lanes:            &lanes{cluster: options.Cluster, config: config, open: map[*lane]bool{}},
	}
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

// admit reports whether Raft may have a message of a member, and refuses it otherwise.
func (t RaftTransport) admit(from spiffeid.ID, rpc raft.RPC) bool {
	// A message that is refused shows, too, that its member is there.
	t.options.Received(raft.ServerID(from.String()))

	select {
	case <-t.options.Entered:
	default:
		refuse(rpc, errOutside)
		return false
	}

	if err := t.options.Judge(from, rpc.Command); err != nil {
		refuse(rpc, err)
		return false
	}

	return true
}

// refuse answers a message with an error, behind the snapshot that comes with it: the library's server
// would take the rest of it for the next message.
func refuse(rpc raft.RPC, err error) {
	if rpc.Reader != nil {
		_, _ = io.Copy(io.Discard, rpc.Reader)
	}

	rpc.Respond(nil, err)
}

// SetHeartbeatHandler sets the function that gets heartbeats ahead of other messages.
func (t RaftTransport) SetHeartbeatHandler(handle func(raft.RPC)) {
	t.lanes.setHeartbeats(func(from spiffeid.ID, rpc raft.RPC) {
		if t.admit(from, rpc) {
			handle(rpc)
		}
	})
}

// Run receives messages of members and passes them on, until stop and Close.
func (t RaftTransport) Run(stop <-chan struct{}) {
	var loops sync.WaitGroup
	defer loops.Wait()

	t.lanes.accept(func(one *lane) {
		loops.Go(func() { t.receive(one, stop) })
	})
}

// receive passes the messages of one connection on.
func (t RaftTransport) receive(one *lane, stop <-chan struct{}) {
	for {
		var rpc raft.RPC

		select {
		case rpc = <-one.network.Consumer():
		case <-one.ended:
			return
		case <-stop:
			return
		}

		var snapshot *snapshotReader
		if rpc.Reader != nil {
			snapshot = &snapshotReader{Reader: rpc.Reader, lane: one}
			rpc.Reader = snapshot
		}

		if !t.admit(one.from, rpc) {
			continue
		}

		if candidate, ok := rpc.Command.(*raft.RequestPreVoteRequest); ok {
			t.candidacy.compare(candidate)
		}

		if snapshot != nil {
			snapshot.begin = func() { t.options.Installing(one.from) }
		}

		select {
		case t.heard <- rpc:
		case <-stop:
			return
		}
	}
}

// Close ends all connections.
func (t RaftTransport) Close() error {
	t.lanes.close()

	return t.NetworkTransport.Close()
}

// LocalAddr returns the member's configured address.
func (t RaftTransport) LocalAddr() raft.ServerAddress { return t.options.Address }

// RequestPreVote asks a member for its pre-vote. A grant does not count if this member has
// withdrawn its candidacy meanwhile.
func (t RaftTransport) RequestPreVote(id raft.ServerID, target raft.ServerAddress, args *raft.RequestPreVoteRequest,
	resp *raft.RequestPreVoteResponse) error {
	t.candidacy.stand(args)

	err := t.note(id, t.NetworkTransport.RequestPreVote(id, target, args, resp))

	// The candidacy may have been withdrawn while the answer was on its way.
	if t.candidacy.isWithdrawn(args) {
		resp.Granted = false
	}

	return err
}

// AppendEntries sends entries, or a commit index without any.
func (t RaftTransport) AppendEntries(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest,
	resp *raft.AppendEntriesResponse) error {
	err := t.note(id, t.NetworkTransport.AppendEntries(id, target, t.options.Withhold(args), resp))
	if err == nil {
		t.noteMatch(id, args, resp)
	}

	return err
}

// noteMatch notes a member's answer to entries.
func (t RaftTransport) noteMatch(id raft.ServerID, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) {
	if resp.Success && resp.Term <= args.Term {
		t.options.Matched(id, args.Term, args.PrevLogEntry+uint64(len(args.Entries)))
	}
}

// RequestVote asks a member for its vote.
func (t RaftTransport) RequestVote(id raft.ServerID, target raft.ServerAddress, args *raft.RequestVoteRequest,
	resp *raft.RequestVoteResponse) error {
	err := t.note(id, t.NetworkTransport.RequestVote(id, target, args, resp))
	if err != nil {
		return err
	}

	from, err := spiffeid.FromString(string(id))
	if err == nil {
		// Raft takes over the term of an answer, so it is judged as that of a message.
		err = t.options.Judge(from, resp)
	}

	return err
}

// note notes that a member has answered, unless err says that it has not.
func (t RaftTransport) note(id raft.ServerID, err error) error {
	if err == nil {
		t.options.Received(id)
	}

	return err
}

// AppendEntriesPipeline opens a pipeline to a member.
func (t RaftTransport) AppendEntriesPipeline(id raft.ServerID, target raft.ServerAddress) (raft.AppendPipeline, error) {
	p, err := t.NetworkTransport.AppendEntriesPipeline(id, target)
	if err != nil {
		return nil, err
	}

	d := &drainedPipeline{AppendPipeline: p, told: t.options.Withhold, id: id, note: t.noteMatch,
		answers: make(chan raft.AppendFuture),
		closed:  make(chan struct{})}
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
	id      raft.ServerID
	note    func(raft.ServerID, *raft.AppendEntriesRequest, *raft.AppendEntriesResponse)
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

		// Without an answer the channel is nil, so that none is sent.
		if len(held) > 0 {
			out, next = d.answers, held[0]
		}

		select {
		case f := <-d.AppendPipeline.Consumer():
			if f.Error() == nil {
				d.note(d.id, f.Request(), f.Response())
			}

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
