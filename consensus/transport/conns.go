package transport

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// A tracked connection is known to its cluster, which closes it at the end, or
// when the peer's certificate ends.
type tracked struct {
	net.Conn
	cluster *Cluster
	raft    bool        // by which this member speaks Raft; guarded by the cluster's mu
	peer    spiffeid.ID // with proto guarded by the cluster's mu; zero until it is known
	proto   string
	claim   Claim // of the peer, if it is the client; guarded by the cluster's mu
	// says why the peer's certificate would not be taken now; as peer, or nil
	judge func() error
	busy  bool // the peer waits for an answer; guarded by the cluster's mu
	asked int  // answers that the peer waits for over a line; guarded by the cluster's mu
	once  sync.Once

	mu    sync.Mutex
	timer *time.Timer
	done  bool
}

func (c *Cluster) track(raw net.Conn) (*tracked, error) {
	t := &tracked{Conn: raw, cluster: c}
	c.mu.Lock()
	defer c.mu.Unlock()

	if c.conns == nil {
		return nil, errors.Join(net.ErrClosed, raw.Close())
	}

	c.conns[t] = struct{}{}

	return t, nil
}

func (c *Cluster) untrack(t *tracked) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.conns, t)
}

// noteClaim notes the claim of a connection's client.
func (c *Cluster) noteClaim(t *tracked, claim Claim) {
	c.mu.Lock()
	defer c.mu.Unlock()

	t.claim = claim
}

func (t *tracked) expire(after time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()

	if !t.done {
		t.timer = time.AfterFunc(after, func() { _ = t.Close() })
	}
}

func (t *tracked) Close() (err error) {
	t.once.Do(func() {
		err = t.Conn.Close()
		t.cluster.untrack(t)
		t.mu.Lock()
		defer t.mu.Unlock()

		t.done = true
		if t.timer != nil {
			t.timer.Stop()
		}
	})

	return err
}

// An acceptor is a net.Listener of connections that another has accepted.
type acceptor struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
	addr   net.Addr
}

func newAcceptor(addr net.Addr) *acceptor {
	return &acceptor{conns: make(chan net.Conn), closed: make(chan struct{}), addr: addr}
}

func (a *acceptor) give(ctx context.Context, conn net.Conn) error {
	select {
	case a.conns <- conn:
		return nil
	case <-a.closed:
	case <-ctx.Done():
	}

	return errors.Join(net.ErrClosed, conn.Close())
}

func (a *acceptor) Accept() (net.Conn, error) {
	select {
	case conn := <-a.conns:
		return conn, nil
	case <-a.closed:
		return nil, net.ErrClosed
	}
}

func (a *acceptor) Close() error {
	a.once.Do(func() { close(a.closed) })
	return nil
}

func (a *acceptor) Addr() net.Addr { return a.addr }

// streams implements raft.StreamLayer.
type streams struct {
	*acceptor
	cluster *Cluster
}

// Dial connects to a member for Raft.
func (s streams) Dial(address raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(s.cluster.ctx, timeout)
	defer cancel()

	return s.cluster.Connect(ctx, string(address), ProtocolRaft)
}
