package transport

import (
	"errors"
	"net"
	"sync"

	"github.com/hashicorp/raft"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// lanes receive Raft's messages. Each member has one of its own: a message of Raft's names its sender,
// and any member could name another one. By the lane it came from the member that TLS has authenticated.
type lanes struct {
	cluster *Cluster
	config  raft.NetworkTransportConfig

	mu        sync.Mutex
	heartbeat func(from spiffeid.ID, rpc raft.RPC)
	open      map[spiffeid.ID]lane // nil once closed
}

// A lane is the connections that one member has opened.
type lane struct {
	conns   *acceptor
	network *raft.NetworkTransport
}

// accept gives each connection to the lane of its member until the cluster or the lanes are closed, and
// calls begin for each new lane.
func (l *lanes) accept(begin func(from spiffeid.ID, network *raft.NetworkTransport)) {
	for {
		conn, err := l.cluster.raft.Accept()
		if err != nil {
			return
		}

		// The handshake has found the ID.
		from, _ := PeerOf(conn)

		to, isNew, err := l.of(from)
		if err != nil {
			_ = conn.Close()
			return
		}

		if isNew {
			begin(from, to.network)
		}

		// A lane that is closed closes the connection.
		_ = to.conns.give(l.cluster.ctx, conn)
	}
}

// of returns the lane of a member.
func (l *lanes) of(from spiffeid.ID) (found lane, isNew bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()

	if l.open == nil {
		return found, false, net.ErrClosed
	}

	found, known := l.open[from]
	if known {
		return found, false, nil
	}

	found.conns = newAcceptor(l.cluster.raft.Addr())

	config := l.config
	config.Stream = streams{found.conns, l.cluster}
	found.network = raft.NewNetworkTransportWithConfig(&config)
	l.open[from] = found
	l.follow(from, found)

	return found, true, nil
}

// setHeartbeats sets the function that gets heartbeats ahead of other messages.
func (l *lanes) setHeartbeats(handle func(from spiffeid.ID, rpc raft.RPC)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.heartbeat = handle

	for from, one := range l.open {
		l.follow(from, one)
	}
}

// follow has the heartbeats of a lane handled. The caller holds mu.
func (l *lanes) follow(from spiffeid.ID, one lane) {
	if handle := l.heartbeat; handle != nil {
		one.network.SetHeartbeatHandler(func(rpc raft.RPC) { handle(from, rpc) })
	}
}

// close ends all connections.
func (l *lanes) close() (err error) {
	_ = l.cluster.raft.Close() // never fails

	l.mu.Lock()
	open := l.open
	l.open = nil
	l.mu.Unlock()

	for _, one := range open {
		err = errors.Join(err, one.network.Close())
	}

	return err
}
