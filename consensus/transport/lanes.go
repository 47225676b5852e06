package transport

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// lanes receive Raft's messages. Each connection has one of its own: a message of Raft's names its sender,
// and any member could name another one. By the lane it came from the member that TLS has authenticated.
type lanes struct {
	cluster *Cluster
	config  raft.NetworkTransportConfig

	mu        sync.Mutex
	heartbeat func(from spiffeid.ID, rpc raft.RPC)
	open      map[*lane]bool // nil once closed
}

// A lane is a connection that a member has opened, and the library's server of it.
type lane struct {
	net.Conn
	from    spiffeid.ID
	network *raft.NetworkTransport
	ended   chan struct{}
	end     func() // closes ended and the server, once
}

// Close implements net.Conn. The library's server closes the connection when it ends.
func (l *lane) Close() error {
	l.end()

	return l.Conn.Close()
}

// accept gives each connection a lane until the cluster or the lanes are closed, and calls begin for it.
func (l *lanes) accept(begin func(*lane)) {
	for {
		conn, err := l.cluster.raft.Accept()
		if err != nil {
			return
		}

		// The lane's server accepts this connection alone.
		only := newAcceptor(l.cluster.raft.Addr())

		one, err := l.add(conn, only)
		if err != nil {
			_ = conn.Close()
			return
		}

		begin(one)

		// A lane that is closed closes the connection.
		_ = only.give(l.cluster.ctx, one)
	}
}

// add makes the lane of a connection.
func (l *lanes) add(conn net.Conn, only *acceptor) (*lane, error) {
	config := l.config
	config.Stream = streams{only, l.cluster}

	// The handshake has found the ID.
	from, _ := PeerOf(conn)
	one := &lane{Conn: conn, from: from, ended: make(chan struct{})}
	one.end = sync.OnceFunc(func() {
		close(one.ended)
		l.remove(one)
		_ = one.network.Close() // never fails
	})

	l.mu.Lock()
	defer l.mu.Unlock()

	if l.open == nil {
		return nil, net.ErrClosed
	}

	one.network = raft.NewNetworkTransportWithConfig(&config)
	l.open[one] = true
	l.follow(one)

	return one, nil
}

func (l *lanes) remove(one *lane) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, one)
}

// setHeartbeats sets the function that gets heartbeats ahead of other messages.
func (l *lanes) setHeartbeats(handle func(from spiffeid.ID, rpc raft.RPC)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.heartbeat = handle

	for one := range l.open {
		l.follow(one)
	}
}

// follow has the heartbeats of a lane handled. The caller holds mu.
func (l *lanes) follow(one *lane) {
	if handle := l.heartbeat; handle != nil {
		one.network.SetHeartbeatHandler(func(rpc raft.RPC) { handle(one.from, rpc) })
	}
}

// close ends all connections.
func (l *lanes) close() {
	_ = l.cluster.raft.Close() // never fails

	l.mu.Lock()
	open := l.open
	l.open = nil
	l.mu.Unlock()

	for one := range open {
		one.end()
	}
}

// The pace of a snapshot: each piece, or the rest, comes within its time.
const (
	snapshotPiece = 1 << 20
	snapshotTime  = 10 * time.Second
)

// A snapshotReader reads the snapshot behind a message. Raft does nothing else until it has come, so a
// member that sends it too slowly, or has gone, loses the connection.
type snapshotReader struct {
	io.Reader
	lane  *lane
	begin func() // called before the first read; nil if nothing is
	piece int    // bytes that remain of the piece
	err   error  // of the first read that failed; Raft reads on behind it
}

// Read implements io.Reader.
func (s *snapshotReader) Read(b []byte) (int, error) {
	if s.begin != nil {
		s.begin()
		s.begin = nil
	}

	if s.err != nil {
		return 0, s.err
	}

	if s.piece <= 0 {
		s.piece = snapshotPiece
		_ = s.lane.SetReadDeadline(time.Now().Add(snapshotTime)) // fails only on a closed connection
	}

	n, err := s.Reader.Read(b)
	s.piece -= n
	s.err = err

	// The next message may take its time. A deadline that has passed stays, and ends the connection.
	if errors.Is(err, io.EOF) {
		_ = s.lane.SetReadDeadline(time.Time{})
	}

	return n, err
}
