package listener

import (
	"container/list"
	"crypto/tls"
	"net"
	"net/url"
	"sync"
	"time"
)

// A connLimiter is a listener that caps connections per class, so that a few addresses
// cannot starve known callers, and that bounds the memory of all (OPS-020). Who opened a
// connection is known only after its handshake, so there are three classes:
//
//   - anonymous: clients without a certificate. Five eighths of all connections, of which
//     one address (in IPv6 a /64) has a share, and a /48 twice that.
//   - identified: clients with a valid certificate, as members, peers, operators and
//     agents. They have all that the others leave, at least a quarter. One identity has an
//     eighth of all; so has every other domain, which can issue any number of identities.
//   - pending: clients that arrive when the anonymous class, or their share of it, is full.
//     They stay until their handshake ends, at most HeaderTimeout. An eighth of all, of
//     which an address has an eighth. When the class or the share is full, the oldest
//     connection is closed for the new one, so that silent clients cannot block it.
//
// A connection that fits no class is closed at once.
type connLimiter struct {
	net.Listener
	max        int
	ownDomain  string
	onRejected func() // called for every connection that the limiter closes

	mu        sync.Mutex // guards the rest, and the classes of all connections
	total     int
	anonymous class
	pending   class
	queue     list.List // of *limitedConn in pending, the oldest first
	byID      counts    // of identified
}

// Limit caps the connections that a listener accepts at max, and those of one address
// without a certificate at perAddress. max 0 sets no limit; perAddress 0 is an eighth of
// the class. onRejected is called for every connection that is closed by the limit.
func Limit(ln net.Listener, max, perAddress int, ownDomain string, onRejected func()) net.Listener {
	if max == 0 {
		return ln
	}

	return &connLimiter{
		Listener:   ln,
		max:        max,
		ownDomain:  ownDomain,
		onRejected: onRejected,
		anonymous:  newClass(max*5/8, perAddress),
		pending:    newClass(max/8, 0),
		byID:       counts{},
	}
}

// Accept implements net.Listener.
func (l *connLimiter) Accept() (net.Conn, error) {
	for {
		raw, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}

		conn, evicted := l.admit(raw)

		if evicted != nil {
			l.onRejected()
			_ = evicted.Close()
		}

		if conn != nil {
			return conn, nil
		}

		l.onRejected()
		_ = raw.Close()
	}
}

// admit gives a new connection a class; conn is nil if it fits none. evicted, unless it
// is nil, is a pending connection that made room and must be closed.
func (l *connLimiter) admit(raw net.Conn) (conn, evicted *limitedConn) {
	l.mu.Lock()
	defer l.mu.Unlock()

	conn = &limitedConn{Conn: raw, limiter: l, from: originOf(raw.RemoteAddr())}

	if l.total < l.max && l.anonymous.enter(conn.from) {
		l.total++
		conn.class = &l.anonymous

		return conn, nil
	}

	if l.total >= l.max || l.pending.full() || !l.pending.hasShare(conn.from) {
		evicted = l.oldestPending(conn.from)
		if evicted == nil {
			return nil, nil
		}

		l.release(evicted)
	}

	l.total++
	l.pending.enter(conn.from)
	conn.class = &l.pending
	conn.queued = l.queue.PushBack(conn)
	conn.timer = time.AfterFunc(HeaderTimeout, conn.timeout)

	return conn, evicted
}

// oldestPending returns the oldest pending connection whose end makes room for one from
// an origin: any, or if the share of that origin is full, one that uses the share.
func (l *connLimiter) oldestPending(from origin) *limitedConn {
	hasShare := l.pending.hasShare(from)
	addressFull := l.pending.addressFull(from)

	for at := l.queue.Front(); at != nil; at = at.Next() {
		conn := at.Value.(*limitedConn)

		switch {
		case hasShare,
			conn.from.address == from.address,
			!addressFull && conn.from.network == from.network:
			return conn
		}
	}

	return nil
}

// A limitedConn counts in its class until it is closed.
type limitedConn struct {
	net.Conn
	limiter *connLimiter
	from    origin
	queued  *list.Element // if it was pending at first, as is timer
	timer   *time.Timer

	// Guarded by the limiter's lock.
	class    *class // nil if it is identified
	id       string // key of byID, if it is identified
	released bool
}

// HandshakeDone takes the state of a connection after its handshake, and moves the
// connection to the class of its client. It is closed when it was pending and no other
// class has room.
func (c *limitedConn) HandshakeDone(state *tls.ConnectionState) {
	id := ""
	// A certificate is valid here: the handshake fails otherwise.
	if len(state.PeerCertificates) > 0 && len(state.PeerCertificates[0].URIs) > 0 {
		id = c.limiter.countedID(state.PeerCertificates[0].URIs[0])
	}

	if !c.limiter.classify(c, id) {
		c.limiter.onRejected()
		_ = c.Close()
	}
}

// countedID is the key by which connections of an identity count: the identity, or for
// one of another domain that domain.
func (l *connLimiter) countedID(id *url.URL) string {
	if id.Host != l.ownDomain {
		return id.Host
	}

	return id.String()
}

// classify moves a connection to the class of its client; an empty id is one without a
// certificate. It reports whether the connection may stay.
func (l *connLimiter) classify(conn *limitedConn, id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()

	switch {
	case conn.released || conn.class == nil:
		return true
	case id != "" && l.byID[id] < max(1, l.max/8):
		conn.class.leave(conn.from)
		l.byID[id]++
		conn.class = nil
		conn.id = id
	case conn.class == &l.anonymous:
		return true
	case !l.anonymous.enter(conn.from):
		return false
	default:
		l.pending.leave(conn.from)
		conn.class = &l.anonymous
	}

	l.unqueue(conn)

	return true
}

// unqueue ends the wait of a connection that was pending. The lock is held.
func (l *connLimiter) unqueue(conn *limitedConn) {
	if conn.queued != nil {
		l.queue.Remove(conn.queued)
		conn.timer.Stop()
	}
}

// timeout closes a connection that is still pending.
func (c *limitedConn) timeout() {
	c.limiter.mu.Lock()
	late := !c.released && c.class == &c.limiter.pending
	c.limiter.mu.Unlock()

	if late {
		c.limiter.onRejected()
		_ = c.Close()
	}
}

// Close implements net.Conn.
func (c *limitedConn) Close() error {
	c.limiter.mu.Lock()
	c.limiter.release(c)
	c.limiter.mu.Unlock()

	return c.Conn.Close()
}

// release stops counting a connection, once. The lock is held.
func (l *connLimiter) release(conn *limitedConn) {
	if conn.released {
		return
	}

	conn.released = true
	l.total--

	if conn.class != nil {
		conn.class.leave(conn.from)
	} else {
		l.byID.decrement(conn.id)
	}

	l.unqueue(conn)
}
