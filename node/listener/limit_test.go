package listener

import (
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/limit"
	"github.com/roster-mesh/roster/trust"
)

// A besieged server accepts at most 64 connections: 16 anonymous ones, 4 of an address, 8 of
// one identity or of another domain; and 8 pending ones, one of an address.
type besieged struct {
	*testing.T
	ca      *trust.CA
	addr    string
	limiter *connLimiter
	refused atomic.Int64
}

func limited(most int, rejected func()) Limit {
	return Limit{Max: most, OwnDomain: "alpha.test", Rejected: rejected}
}

func besiege(t *testing.T) *besieged {
	b := &besieged{T: t}
	b.issuedBy("alpha.test")
	s := NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
	}),
		&tls.Config{Certificates: []tls.Certificate{b.certificate("/roster/node/1")},
			ClientAuth: tls.RequestClientCert}, slog.New(slog.DiscardHandler))
	ExpireWithCertificates(s, func(*tls.ConnectionState, time.Time) bool { return true })

	inner, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)

	b.addr = inner.Addr().String()
	config := limited(64, func() { b.refused.Add(1) })
	config.Paced = true
	b.limiter = newConnLimiter(inner, config)

	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = s.ServeTLS(b.limiter, "", "")
	}()
	t.Cleanup(func() {
		_ = s.Close()
		<-served
	})

	return b
}

// issuedBy has certificates be of a domain from now on.
func (b *besieged) issuedBy(domain string) {
	ca, err := trust.NewCA(spiffeid.RequireTrustDomainFromString(domain), time.Now())
	must(b, err)

	b.ca = ca
}

func (b *besieged) certificate(path string) tls.Certificate {
	return issued(b, b.ca, path, time.Hour)
}

// dial connects from a loopback address and says nothing.
func (b *besieged) dial(from string) net.Conn {
	b.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}

	conn, err := d.Dial("tcp", b.addr)
	if err != nil {
		b.Skipf("no connection from %s: %v", from, err)
	}

	b.Cleanup(func() { _ = conn.Close() })

	return conn
}

// ask connects as somebody, or with "" as nobody, asks once and keeps the connection.
func (b *besieged) ask(from, as, protocol string) (net.Conn, error) {
	b.Helper()

	config := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{protocol}}
	if as != "" {
		config.Certificates = []tls.Certificate{b.certificate(as)}
	}

	conn := tls.Client(b.dial(from), config)
	_ = conn.SetDeadline(time.Now().Add(time.Minute))

	said := "GET / HTTP/1.1\r\nHost: ad.alpha.test\r\n\r\n"
	if protocol == "h2" {
		// the server's settings are the answer
		said = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	}

	_, err := io.WriteString(conn, said)
	if err == nil {
		_, err = io.ReadFull(conn, make([]byte, 9))
	}

	return conn, err
}

// Clients that open connections without end from a few addresses keep out other anonymous
// clients, but none with a certificate; a closed connection makes room.
//
// Requirement: OPS-020
func TestAFewAddressesDoNotKeepOutKnownCallers(t *testing.T) {
	b, began := besiege(t), time.Now()
	for _, from := range []string{"127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5", "127.0.0.6",
		"127.0.0.7", "127.0.0.8"} {
		for range 12 {
			b.dial(from)
		}
	}

	again := time.Tick(time.Millisecond)
	for deadline := time.Now().Add(time.Minute); b.refused.Load() < 8*12-16-8; <-again {
		if time.Now().After(deadline) {
			t.Fatalf("%d are refused: there are 16 anonymous connections, and each address has one pending", b.refused.Load())
		}
	}

	for i, as := range []string{"/roster/node/2", "/agent/ada"} {
		for n := 0; n < 8; { // an eighth of 64, and all that there is
			_, err := b.ask("127.0.0.9", as, []string{"h2", "http/1.1"}[i])
			switch {
			case err == nil:
				n++
			case time.Now().After(began.Add(time.Minute)): // one after the other is pending
				t.Fatalf("%s, from another address: %v", as, err)
			}
		}
	}
}

// One identity has an eighth of all connections; more count as anonymous.
//
// Requirement: OPS-020
func TestOneIdentityHasAShareOfConnections(t *testing.T) {
	b := besiege(t)
	for i := range 8 + 4 { // identified, and anonymous
		// the answer comes once it is classified
		if _, err := b.ask("127.0.0.1", "/agent/eve", "http/1.1"); err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
	}

	if _, err := b.ask("127.0.0.1", "/agent/eve", "http/1.1"); err == nil {
		t.Error("it has one more than an eighth of all and an address's anonymous share")
	}

	if _, err := b.ask("127.0.0.1", "", "http/1.1"); err == nil {
		t.Error("nobody comes in from an address that has spent its share")
	}

	if _, err := b.ask("127.0.0.1", "/agent/ada", "http/1.1"); err != nil {
		t.Errorf("another identity from the same address: %v", err)
	}

	if n := b.refused.Load(); n != 2 {
		t.Errorf("%d are counted", n)
	}
}

// Another domain, which can issue any number of identities, has no more connections than
// one identity of the own domain.
//
// Requirement: OPS-020
func TestAnotherDomainHasAShareOfConnections(t *testing.T) {
	b := besiege(t)
	b.issuedBy("beta.test")

	for i := range 8 + 4 {
		if _, err := b.ask("127.0.0.1", fmt.Sprintf("/agent/%d", i), "http/1.1"); err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
	}

	if _, err := b.ask("127.0.0.1", "/agent/more", "http/1.1"); err == nil {
		t.Error("a domain has more than an eighth of all and an address's anonymous share")
	}

	b.issuedBy("alpha.test")

	for i := range 8 + 1 {
		if _, err := b.ask("127.0.0.1", fmt.Sprintf("/agent/%d", i), "http/1.1"); err != nil {
			t.Fatalf("%d of the own domain: %v", i, err)
		}
	}
}

// Silent clients can't block the pending ones: a new connection takes the place of the
// oldest one.
//
// Requirement: OPS-020
func TestSilentClientsDoNotBlockOthers(t *testing.T) {
	l := newConnLimiter(nil, limited(64, func() {}))
	at := func(i int) fixedConn { return fixedConn{addr: fmt.Sprintf("192.0.2.%d:1", i)} }

	var pending []*limitedConn
	for i := range 12 { // 16 anonymous ones of four addresses, and one pending of each other
		for range 4 {
			if i >= 4 && len(pending) == i-3 {
				break
			}

			conn, first := l.admit(at(i))
			if conn == nil || first != nil {
				t.Fatal("there is no room")
			}

			if conn.timer != nil {
				pending = append(pending, conn)
			}
		}
	}

	var gone []*limitedConn
	for i := range 48 { // members come one after the other
		conn, first := l.admit(at(100 + i))
		if conn == nil || i < 46 && !l.classify(conn, limit.Caller{Kind: limit.Own, ID: fmt.Sprint("node", i)}) {
			t.Fatalf("there is no room for member %d", i)
		}

		if first != nil {
			gone = append(gone, first)
		}
	}

	if len(pending) != 8 || len(gone) == 0 || !slices.Equal(gone, pending[:len(gone)]) {
		t.Errorf("%d made room of %d that came before", len(gone), len(pending))
	}

	if l.conns.Held() != 62 { // two are for operators
		t.Errorf("there are %d, and %d pending", l.conns.Held(), l.pending.Held())
	}

	for l.pending.places.Len() > 0 { // whose timers would go on
		_ = l.pending.places.Front().Value.(*place).conn.Close()
	}
}

// When a network uses its share of the pending places, its own oldest connection is evicted.
func TestANetworkEvictsItsOwnPendingConnections(t *testing.T) {
	l := newConnLimiter(nil, limited(64, func() {}))
	enter := func(addr string) (conn, first *limitedConn) { return l.admit(fixedConn{addr: addr}) }
	fill := func(addr string) (door *limitedConn) {
		for door == nil || door.timer == nil {
			door, _ = enter(addr)
		}

		return door
	}
	fill("192.0.2.1:1")

	one, two := fill("[2001:db8:0:1::1]:1"), fill("[2001:db8:0:2::1]:1")
	if _, first := enter("[2001:db8:0:2::2]:1"); first != two {
		t.Error("a /64 with its share takes another's place")
	}

	if conn, first := enter("[2001:db8:0:3::1]:1"); conn == nil || first != one {
		t.Error("a /48 with its share takes another's place than that of who came first of it")
	}

	if l.pending.Held() != 3 || l.pending.places.Len() != 3 {
		t.Errorf("%d are pending, %d in the queue", l.pending.Held(), l.pending.places.Len())
	}

	for l.pending.places.Len() > 0 {
		_ = l.pending.places.Front().Value.(*place).conn.Close()
	}
}

// The share of an address is as configured, and a network has twice that. Nothing is limited without a maximum.
//
// Requirement: OPS-020
func TestAnAddressHasTheConfiguredShare(t *testing.T) {
	if inner := net.Listener(noListener{}); (Limit{PerAddress: 1}).Listen(inner) != inner {
		t.Error("a listener without a maximum is limited")
	}

	for perAddress, want := range map[int][2]int{0: {8, 16}, 10: {10, 20}} {
		config := limited(128, func() {})
		config.PerAddress = perAddress
		l := newConnLimiter(nil, config)

		var got [2]int

		for i, from := range []string{"192.0.2.1:1", "[2001:db8:0:%x::1]:1"} {
			for n := range 32 {
				if i == 1 {
					from = fmt.Sprintf("[2001:db8:0:%x::1]:1", n)
				}

				if conn, _ := l.admit(fixedConn{addr: from}); conn.timer == nil {
					got[i]++
				}
			}
		}

		if got != want {
			t.Errorf("%d for an address: an address and a network have %d", perAddress, got)
		}

		for l.pending.places.Len() > 0 {
			_ = l.pending.places.Front().Value.(*place).conn.Close()
		}
	}
}

// A closed connection gives its place back, whichever it is and once.
func TestClosedConnectionsAreNotCounted(t *testing.T) {
	l := newConnLimiter(nil, limited(64, func() {}))
	ada := limit.Caller{Kind: limit.Own, ID: "ada"}

	for range 3 {
		var all []*limitedConn
		for range 4 + 1 {
			conn, _ := l.admit(fixedConn{addr: "192.0.2.1:1"})
			if conn == nil {
				t.Fatal("there is no room")
			}

			all = append(all, conn)
		}

		conn, first := l.admit(fixedConn{addr: "192.0.2.1:1"})
		if conn == nil || first != all[4] || l.conns.Held()+l.pending.Held() != 4+1 {
			t.Fatal("a new connection of an address with its share doesn't take the place of the pending one")
		}

		all[4] = conn
		if !l.classify(all[4], ada) || !l.classify(all[3], ada) || l.conns.Held() != 5 || l.pending.Held() != 0 {
			t.Fatalf("%d have places, %d are pending", l.conns.Held(), l.pending.Held())
		}

		for _, conn := range all {
			_, _ = conn.Close(), conn.Close()
		}

		if l.conns.Held() != 0 || l.pending.Held() != 0 || l.pending.places.Len() != 0 {
			t.Fatalf("when all have gone %d have places", l.conns.Held())
		}
	}

	// A pending stranger takes a place that has become free, and keeps it when it is heard of again.
	var all []*limitedConn
	for range 4 + 1 {
		conn, _ := l.admit(fixedConn{addr: "192.0.2.1:1"})
		all = append(all, conn)
	}

	_ = all[0].Close()

	for range 2 {
		if !l.classify(all[4], all[4].from) || l.conns.Held() != 4 || l.pending.Held() != 0 {
			t.Errorf("%d have places, %d are pending", l.conns.Held(), l.pending.Held())
		}
	}
}

// An address opens a bounded number of connections without a certificate, because each handshake costs
// the node more than its sender. Those that show a certificate don't count, nor do other addresses.
//
// Requirement: SEC-001, OPS-020
func TestAnAddressOpensConnectionsAtAPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := limited(32768, func() {})
		config.Paced = true
		l := newConnLimiter(nil, config)
		ada := limit.Caller{Kind: limit.Own, ID: "ada"}

		open := func(addr string, count int, client limit.Caller) (opened int) {
			for range count {
				conn, _ := l.admit(fixedConn{addr: addr})
				if conn == nil {
					continue
				}

				opened++

				if client != (limit.Caller{}) {
					l.classify(conn, client)
				}

				_ = conn.Close()
			}

			return opened
		}

		if opened := open("192.0.2.1:1", 10_000, ada); opened != 10_000 {
			t.Errorf("a client with a certificate opens %d of 10000", opened)
		}

		stranger := limit.Caller{Kind: limit.Stranger, ID: "192.0.2.1"}
		if opened := open("192.0.2.1:1", 1000, stranger) + open("192.0.2.1:1", 9000, limit.Caller{}); opened != 2048 {
			t.Errorf("an address opens %d, want 2048", opened)
		}

		if opened := open("192.0.2.2:1", 100, stranger); opened != 100 {
			t.Errorf("another address opens %d of 100", opened)
		}

		if opened := open("[2001:db8:1::1]:1", 3000, limit.Caller{}); opened != 2048 {
			t.Errorf("a /64 opens %d, want 2048", opened)
		}

		network := 0
		for host := range 10 {
			network += open(fmt.Sprintf("[2001:db8:0:%d::1]:1", host), 1000, limit.Caller{})
		}

		if network != 4096 {
			t.Errorf("a /48 opens %d, want 4096", network)
		}

		<-time.After(time.Second)

		if opened := open("192.0.2.1:1", 1000, limit.Caller{}); opened != 128 {
			t.Errorf("an address opens %d more in a second, want 128", opened)
		}

		l.config.Paced = false

		if opened := open("192.0.2.1:1", 1000, limit.Caller{}); opened != 1000 {
			t.Errorf("where connections aren't paced, an address opens %d of 1000", opened)
		}
	})
}

// A connection that its address may not open now is closed and counted, and the next one is accepted.
//
// Requirement: SEC-001, OPS-020
func TestAConnectionOverThePaceIsClosed(t *testing.T) {
	near, far := net.Pipe()
	t.Cleanup(func() { _ = far.Close() })

	over := &remote{Conn: near, from: "192.0.2.1"}
	rejected := 0
	config := limited(64, func() { rejected++ })
	config.Paced = true
	ln := config.Listen(&arrivals{conns: append(slices.Repeat([]net.Conn{fixedConn{addr: "192.0.2.1:1"}}, minOpened),
		over, fixedConn{addr: "192.0.2.2:1"})})

	for range minOpened {
		conn, err := ln.Accept()
		must(t, err)
		must(t, conn.Close())
	}

	conn, err := ln.Accept()
	must(t, err)

	if conn.RemoteAddr().String() != "192.0.2.2:1" || rejected != 1 || !over.closed {
		t.Errorf("%s is accepted, %d are rejected, closed %t", conn.RemoteAddr(), rejected, over.closed)
	}
}

// arrivals is a listener with connections that have arrived.
type arrivals struct {
	net.Listener
	conns []net.Conn
}

func (a *arrivals) Accept() (conn net.Conn, err error) {
	conn, a.conns = a.conns[0], a.conns[1:]
	return conn, nil
}

// A fixedConn is a silent connection from an address.
type fixedConn struct {
	net.Conn
	addr string
}

func (f fixedConn) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(f.addr))
}

func (fixedConn) Close() error { return nil }
