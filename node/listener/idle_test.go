package listener

import (
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/roster-mesh/roster/limit"
)

// A remote is one end of a pipe that has an address.
type remote struct {
	net.Conn
	from   string
	closed bool
}

func (r *remote) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(r.from), 1))
}

func (r *remote) Close() error {
	r.closed = true
	return r.Conn.Close()
}

// idlers is a limiter with connections that have no request.
type idlers struct {
	*testing.T
	limiter *connLimiter
}

// connect admits a connection of a client, which becomes idle.
func (i *idlers) connect(from string, client limit.Caller) (*limitedConn, *remote) {
	near, far := net.Pipe()
	i.Cleanup(func() { _ = far.Close() })

	raw := &remote{Conn: near, from: from}

	conn, _ := i.limiter.admit(raw)
	if conn == nil {
		i.Fatalf("%s is not admitted", from)
	}

	if client.Kind != limit.Stranger {
		i.limiter.classify(conn, client)
	}

	conn.setIdle(true)

	return conn, raw
}

// Strangers, and other domains, have a bounded number of idle connections: the one that is idle for
// longest is closed for a newer one. One with a request, and one that was closed, gives its place back.
//
// Requirement: OPS-020, SEC-004
func TestIdleConnectionsHaveShares(t *testing.T) {
	i := &idlers{t, newConnLimiter(nil, limited(1<<15, func() {}))}
	own := limit.Caller{Kind: limit.Own, ID: "spiffe://alpha.test/agent/ada"}
	address := func(n int) string { return fmt.Sprintf("10.0.%d.%d", n/250, n%250+1) }

	_, ofOwn := i.connect("10.1.0.1", own)
	first, firstRaw := i.connect(address(0), limit.Caller{})
	_, secondRaw := i.connect(address(1), limit.Caller{})

	for n := 2; n < idleStrangers; n++ {
		i.connect(address(n), limit.Caller{})
	}

	if firstRaw.closed {
		t.Fatal("a connection is closed although there is room")
	}

	// A request takes the first one out of the idle ones, so the next has its place.
	first.setIdle(false)
	i.connect(address(idleStrangers), limit.Caller{})

	if firstRaw.closed || secondRaw.closed {
		t.Error("a connection is closed although there is room again")
	}

	// With the first one idle again, the second is idle for longest.
	first.setIdle(true)

	if firstRaw.closed || !secondRaw.closed {
		t.Errorf("closed: the busy one %t, the one that is idle for longest %t", firstRaw.closed, secondRaw.closed)
	}

	_ = first.Close()
	_, last := i.connect(address(idleStrangers+1), limit.Caller{})

	for range idleStrangers {
		i.connect("10.1.0.1", own)
	}

	if last.closed || ofOwn.closed {
		t.Error("connections of the own domain close others, or each other")
	}

	if held := i.limiter.idle.Held(); held != idleStrangers {
		t.Errorf("%d places are held, not %d", held, idleStrangers)
	}
}

// One address closes none but its own.
//
// Requirement: OPS-020
func TestAnAddressClosesItsOwnIdleConnections(t *testing.T) {
	i := &idlers{t, newConnLimiter(nil, limited(1<<15, func() {}))}
	_, other := i.connect("10.0.0.2", limit.Caller{})
	_, first := i.connect("10.0.0.1", limit.Caller{})

	for range idleStrangers / 2 {
		i.connect("10.0.0.1", limit.Caller{})
	}

	if other.closed || !first.closed {
		t.Errorf("closed: another address's %t, its own first %t", other.closed, first.closed)
	}
}
