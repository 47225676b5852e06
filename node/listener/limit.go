package listener

import (
	"crypto/tls"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/limit"
	"github.com/roster-mesh/roster/trust"
)

// A Limit caps the connections that a listener accepts (OPS-020).
type Limit struct {
	Max int // connections; 0 is no limit
	// PerAddress is how many connections one address without a certificate may have; 0 is
	// a sixteenth of Max.
	PerAddress int
	// Paced bounds how many connections without a certificate one address opens: in openedWindow seconds
	// as many as it may have at once; and how many handshakes use a processor at a time. All connections
	// must be TLS.
	Paced     bool
	OwnDomain string
	Operator  func(id string) bool // see limit.SharesConfig
	Rejected  func()               // called for every connection that is closed by the limit
}

// Listen returns ln with the limit.
func (l Limit) Listen(ln net.Listener) net.Listener {
	if l.Max == 0 {
		return ln
	}

	return newConnLimiter(ln, l)
}

// A connLimiter is a listener whose connections are divided between clients like the places
// of every pool, so that neither a few addresses nor another domain can starve known
// callers, and the memory of all is bounded.
//
// The client of a connection is known only after its handshake. Until then the connection
// counts as its address's. If strangers have their share, it is pending: it stays until its
// handshake ends, at most HeaderTimeout. An eighth of the limit may be pending besides, of
// which an address has an eighth. If that is full, the oldest connection is closed for the
// new one, so that silent clients can't block it.
//
// Paced handshakes also wait for each other; see handshakes.go.
//
// A connection that finds no place is closed at once, and so is one of an address that opened too
// many without a certificate: a handshake costs half a millisecond of a processor.
type connLimiter struct {
	net.Listener
	config Limit
	conns  *limit.Shares
	opened *limit.Rates[string] // connections without a certificate, by address and network
	pace   limit.Rate           // of opened, of one address; a network has twice that

	handshakes chan struct{} // slots of handshakes that use a processor, if they are paced

	mu      sync.Mutex // guards the rest, and the places of all connections
	pending queue
	idle    queue // connections of strangers and other domains without a request
}

// An address may open as many connections without a certificate in openedWindow seconds as it may
// have, and minOpened at least.
const (
	openedWindow = 16
	minOpened    = 512
	maxOpeners   = 1 << 16 // addresses and networks that are known
)

func newConnLimiter(ln net.Listener, config Limit) *connLimiter {
	all := int64(config.Max)

	conns := limit.Divide(all, config.Operator)
	if each := int64(config.PerAddress); each > 0 {
		conns.Address = each
		conns.Network = 2 * each
	}

	pending := max(1, all/8)

	return &connLimiter{
		Listener: ln,
		config:   config,
		conns:    limit.NewShares(conns),
		opened:   limit.NewRates[string](maxOpeners),
		// At least half of the processors are left to requests.
		handshakes: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2)),
		pace: limit.Rate{
			PerSecond: float64(max(minOpened, conns.Address)) / openedWindow,
			Burst:     int(max(minOpened, conns.Address)),
		},
		pending: queue{Shares: limit.NewShares(limit.SharesConfig{
			Places: pending, Strangers: pending, Network: max(1, pending/4), Address: max(1, pending/8),
		})},
		idle: queue{Shares: limit.NewShares(limit.SharesConfig{
			Places: idleStrangers + idleForeign, Strangers: idleStrangers, Network: idleStrangers / 2,
			Address: idleStrangers / 2, Foreign: idleForeign, Domain: idleForeign / 2, ForeignID: idleForeign / 4,
		})},
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
			l.config.Rejected()
			_ = evicted.Close()
		}

		if conn != nil {
			return conn, nil
		}

		l.config.Rejected()
		_ = raw.Close()
	}
}

// admit gives a new connection a place; conn is nil if its address may not open it. evicted, unless it is nil, is a
// pending connection that made room and must be closed.
func (l *connLimiter) admit(raw net.Conn) (conn, evicted *limitedConn) {
	l.mu.Lock()
	defer l.mu.Unlock()

	from := limit.StrangerAt(raw.RemoteAddr().String())
	conn = &limitedConn{Conn: raw, limiter: l, from: from, client: from}

	if !l.mayOpen(from) {
		return nil, nil
	}

	release, refused := l.conns.Take(from, 1)
	if refused == nil {
		conn.release = release
		return conn, nil
	}

	conn.release, evicted = l.pending.enter(conn, from)
	conn.timer = time.AfterFunc(HeaderTimeout, conn.timeout)

	return conn, evicted
}

// mayOpen counts a connection of an address, and reports whether that may open it. Those that turn
// out to have a certificate are given back.
func (l *connLimiter) mayOpen(from limit.Caller) bool {
	if !l.config.Paced {
		return true
	}

	now := time.Now()
	if _, _, ok := l.opened.Take(from.ID, l.pace, now, 1); !ok || from.Group == "" {
		return ok
	}

	_, _, ok := l.opened.Take(from.Group, twice(l.pace), now, 1)

	return ok
}

func twice(rate limit.Rate) limit.Rate {
	return limit.Rate{PerSecond: 2 * rate.PerSecond, Burst: 2 * rate.Burst}
}

// A limitedConn has its place until it is closed.
type limitedConn struct {
	net.Conn
	limiter *connLimiter
	from    limit.Caller // the address

	settled atomic.Bool // its handshake is done
	working atomic.Bool // it has a slot of handshakes

	// Guarded by the limiter's lock.
	client    limit.Caller // who has shown a certificate; the address before
	leaveIdle func()       // gives its place among the idle ones back; nil if it has none
	release   func()       // gives its place back; nil after its end
	timer     *time.Timer  // ends it, while it is pending
}

// giveBack has a connection with a certificate not count for its address.
func (c *limitedConn) giveBack() {
	c.limiter.opened.GiveBack(c.from.ID, c.limiter.pace, 1)

	if c.from.Group != "" {
		c.limiter.opened.GiveBack(c.from.Group, twice(c.limiter.pace), 1)
	}
}

// HandshakeDone takes the state of a connection after its handshake, and gives it a place of its client. A pending
// connection without such a place is closed. It is called once for a connection with a certificate.
func (c *limitedConn) HandshakeDone(state *tls.ConnectionState) {
	c.settle()

	client := c.from
	if id, ok := trust.PeerID(state); ok {
		client = c.limiter.clientOf(id)
	}

	if !c.limiter.classify(c, client) {
		c.limiter.config.Rejected()
		_ = c.Close()
	}
}

// clientOf returns the client with a SPIFFE ID.
func (l *connLimiter) clientOf(id spiffeid.ID) limit.Caller {
	domain := id.TrustDomain().Name()
	if domain == l.config.OwnDomain {
		return limit.Caller{Kind: limit.Own, ID: id.String()}
	}

	return limit.Caller{Kind: limit.Foreign, ID: id.String(), Group: domain}
}

// classify gives a connection a place of its client instead of the one that it has. A client
// that has its share keeps the place of its address. It reports whether the connection may
// stay.
func (l *connLimiter) classify(conn *limitedConn, client limit.Caller) bool {
	l.mu.Lock()
	defer l.mu.Unlock()

	conn.client = client

	if client.Kind != limit.Stranger {
		conn.giveBack()
	}

	if conn.release == nil {
		return true
	}

	// A client whose share is used up may stay as a stranger at its address.
	for _, as := range []limit.Caller{client, conn.from} {
		// The new place is taken before the present one is left, because a refused client keeps the latter.
		if release, refused := l.conns.Take(as, 1); refused == nil {
			l.leave(conn)
			conn.release = release

			return true
		}
	}

	return conn.timer == nil
}

// remove gives the place of a connection back that is closed.
func (l *connLimiter) remove(conn *limitedConn) {
	l.mu.Lock()
	defer l.mu.Unlock()

	l.leave(conn)
}

// leave gives the place of a connection back. The lock is held.
func (l *connLimiter) leave(conn *limitedConn) {
	l.endIdle(conn)

	if conn.release != nil {
		conn.release()
		conn.release = nil
	}

	if conn.timer != nil {
		conn.timer.Stop()
		conn.timer = nil
	}
}

// clientAt returns the client of a connection, as far as it is known.
func (l *connLimiter) clientAt(conn *limitedConn) limit.Caller {
	l.mu.Lock()
	defer l.mu.Unlock()

	return conn.client
}

// timeout closes a connection that was pending for as long as it may be.
func (c *limitedConn) timeout() {
	c.limiter.config.Rejected()
	_ = c.Close()
}

// Close implements net.Conn.
func (c *limitedConn) Close() error {
	c.endStep()
	c.limiter.remove(c)

	return c.Conn.Close()
}
