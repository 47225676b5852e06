package listener

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

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

// A connection whose client is not known by HeaderTimeout is closed and gives its place back, even if no
// newer one needs it. One whose client is known by then stays.
//
// Requirement: OPS-020
func TestAPendingConnectionEndsAfterATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := 0
		l := newConnLimiter(nil, limited(64, func() { refused++ }))

		var all []*remote

		admit := func() *limitedConn {
			near, far := net.Pipe()
			t.Cleanup(func() { _ = far.Close() })

			raw := &remote{Conn: near, from: "10.0.0.1"}
			all = append(all, raw)

			conn, evicted := l.admit(raw)
			if conn == nil || evicted != nil {
				t.Fatal("a connection has no place, or takes another's")
			}

			return conn
		}

		// Four are an address's share, and one more may be pending.
		for range 4 {
			admit()
		}

		silent := admit()

		if silent.timer == nil || l.pending.Held() != 1 {
			t.Fatal("the connection beyond the share is not pending")
		}

		<-time.After(HeaderTimeout + time.Second)
		synctest.Wait()

		if !all[4].closed || refused != 1 || l.pending.Held() != 0 || l.pending.places.Len() != 0 {
			t.Errorf("closed %t, %d refused, %d places are held", all[4].closed, refused, l.pending.Held())
		}

		known := admit()
		if !l.classify(known, limit.Caller{Kind: limit.Own, ID: "spiffe://alpha.test/agent/ada"}) {
			t.Fatal("a known client has no place")
		}

		<-time.After(HeaderTimeout + time.Second)
		synctest.Wait()

		if all[5].closed || refused != 1 || l.pending.Held() != 0 {
			t.Errorf("that of the known client is closed %t, %d refused, %d places are held", all[5].closed, refused,
				l.pending.Held())
		}
	})
}

// Connections with a certificate use up neither their address's rate of new ones nor that of its network.
//
// Requirement: OPS-020
func TestKnownCallersUseUpNoRateOfTheirNetwork(t *testing.T) {
	l := limited(1<<15, func() {})
	l.Paced = true
	limiter := newConnLimiter(nil, l)

	for n := range 5 * limiter.pace.Burst {
		near, far := net.Pipe()
		_ = far.Close()

		conn, _ := limiter.admit(&remote{Conn: near, from: fmt.Sprintf("2001:db8:1:%x::1", n)})
		if conn == nil {
			t.Fatalf("connection %d of known callers in one network is refused", n)
		}

		limiter.classify(conn, limit.Caller{Kind: limit.Own, ID: "spiffe://alpha.test/agent/ada"})
		_ = conn.Close()
	}
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
	rejected := 0
	i := &idlers{t, newConnLimiter(nil, limited(1<<15, func() { rejected++ }))}
	_, other := i.connect("10.0.0.2", limit.Caller{})
	_, first := i.connect("10.0.0.1", limit.Caller{})

	for range idleStrangers / 2 {
		i.connect("10.0.0.1", limit.Caller{})
	}

	if other.closed || !first.closed || rejected != 1 {
		t.Errorf("closed: another address's %t, its own first %t; %d are counted", other.closed, first.closed, rejected)
	}
}

// A network, and another domain, close none but their own.
//
// Requirement: OPS-020
func TestAGroupClosesItsOwnIdleConnections(t *testing.T) {
	foreign := func(domain string, n int) limit.Caller {
		return limit.Caller{Kind: limit.Foreign, ID: fmt.Sprintf("spiffe://%s/%d", domain, n), Group: domain}
	}

	for name, x := range map[string]struct {
		from func(group, n int) string
		as   func(group, n int) limit.Caller
	}{
		"networks": {
			func(group, n int) string { return fmt.Sprintf("2001:db8:%x:%x::1", group, n) },
			func(int, int) limit.Caller { return limit.Caller{} },
		},
		"domains": {
			func(_, n int) string { return fmt.Sprintf("10.0.0.%d", n%250+1) },
			func(group, n int) limit.Caller { return foreign([]string{"beta.test", "gamma.test"}[group], n) },
		},
	} {
		i := &idlers{t, newConnLimiter(nil, limited(1<<15, func() {}))}
		others, other := i.connect(x.from(0, 0), x.as(0, 0))
		_, first := i.connect(x.from(1, 0), x.as(1, 0))

		for n := range idleForeign {
			i.connect(x.from(1, n+1), x.as(1, n+1))
		}

		if other.closed || others.leaveIdle == nil || !first.closed {
			t.Errorf("%s: closed: another's %t, which has its place %t; its own first %t", name, other.closed,
				others.leaveIdle != nil, first.closed)
		}
	}
}

// The server's states of a connection make it idle and busy. A connection that is closed takes no
// place of its client any more.
//
// Requirement: OPS-020
func TestTheServersStatesMakeAConnectionIdle(t *testing.T) {
	i := &idlers{t, newConnLimiter(nil, limited(1<<15, func() {}))}
	conn, _ := i.connect("10.0.0.1", limit.Caller{})
	secure := tls.Server(conn, &tls.Config{})
	// Its client is known already, so that the states change nothing else.
	timers := &expiryTimers{byConn: map[*tls.Conn]*time.Timer{secure: time.NewTimer(time.Hour)}}

	for _, x := range []struct {
		state http.ConnState
		idle  int64
	}{{http.StateActive, 0}, {http.StateIdle, 1}, {http.StateIdle, 1}, {http.StateNew, 1},
		{http.StateActive, 0}, {http.StateIdle, 1}} {
		timers.stateChanged(secure, x.state)

		if held := i.limiter.idle.Held(); held != x.idle || i.limiter.conns.Held() != 1 {
			t.Errorf("%s: %d are idle, of %d", x.state, held, i.limiter.conns.Held())
		}
	}

	must(t, conn.Close())
	conn.HandshakeDone(&tls.ConnectionState{HandshakeComplete: true, PeerCertificates: []*x509.Certificate{
		{URIs: []*url.URL{{Scheme: "spiffe", Host: "beta.test", Path: "/agent"}}, NotAfter: time.Now().Add(time.Hour)},
	}})
	timers.stateChanged(secure, http.StateIdle)

	if i.limiter.conns.Held() != 0 || i.limiter.idle.Held() != 0 {
		t.Errorf("a closed connection holds %d places, and %d idle ones", i.limiter.conns.Held(),
			i.limiter.idle.Held())
	}
}

// An aborted call closes the connection of a stranger, and of no one who is known; what is not
// counted here stays open.
//
// Requirement: SEC-002
func TestAnAbortedCallClosesAStrangersConnection(t *testing.T) {
	i := &idlers{t, newConnLimiter(nil, limited(1<<15, func() {}))}
	stranger, ofStranger := i.connect("10.0.0.1", limit.Caller{})
	known, ofKnown := i.connect("10.0.0.1", limit.Caller{Kind: limit.Own, ID: "spiffe://alpha.test/agent/ada"})
	plain := &remote{Conn: &net.TCPConn{}, from: "10.0.0.1"}

	server := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		panic(http.ErrAbortHandler)
	})}
	CloseAborted(server)

	for _, conn := range []net.Conn{
		tls.Server(stranger, &tls.Config{}), tls.Server(known, &tls.Config{}), tls.Server(plain, &tls.Config{}),
		stranger,
	} {
		func() {
			defer func() {
				if err, _ := recover().(error); !errors.Is(err, http.ErrAbortHandler) {
					t.Errorf("the server is told %v", err)
				}
			}()

			r := httptest.NewRequest("GET", "/", nil)
			server.Handler.ServeHTTP(httptest.NewRecorder(), r.WithContext(server.ConnContext(r.Context(), conn)))
		}()
	}

	if !ofStranger.closed || ofKnown.closed || plain.closed {
		t.Errorf("closed: a stranger's %t, a known client's %t, one that isn't counted %t", ofStranger.closed,
			ofKnown.closed, plain.closed)
	}
}

// A server that leaves says so with each answer, and answers all the same.
func TestAServerThatLeavesSaysSo(t *testing.T) {
	leaving := false
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusTeapot)
	})}
	LeaveWhile(server, func() bool { return leaving })

	for _, leaving = range []bool{false, true, false} {
		w := httptest.NewRecorder()
		server.Handler.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))

		if got := w.Header().Get("Connection"); (got == "close") != leaving || w.Code != http.StatusTeapot {
			t.Errorf("leaving %t: %d, Connection %q", leaving, w.Code, got)
		}
	}
}

// A private socket is its owner's alone, takes the place of one that was left, and stays when its
// listener is closed: the next process may have it already.
func TestAPrivateSocketIsItsOwnersAlone(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "admin.sock")

	for range 2 {
		ln, err := ListenPrivate(path)
		must(t, err)

		info, err := os.Stat(path)
		must(t, err)

		if info.Mode().Perm() != 0o600 {
			t.Errorf("its mode is %s", info.Mode())
		}

		accepted := make(chan error, 1)
		go func() {
			conn, err := ln.Accept()
			if err == nil {
				err = conn.Close()
			}

			accepted <- err
		}()

		conn, err := net.Dial("unix", path)
		must(t, err)
		must(t, errors.Join(<-accepted, conn.Close(), ln.Close()))

		if all, err := os.ReadDir(dir); err != nil || len(all) != 1 || all[0].Name() != "admin.sock" {
			t.Errorf("the folder has %v, %v", all, err)
		}
	}

	if _, err := ListenPrivate(filepath.Join(dir, "none", "admin.sock")); err == nil {
		t.Error("a socket in a folder that isn't there")
	}
}
