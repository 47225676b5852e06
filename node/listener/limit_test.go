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
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/trust"
)

// A besieged server accepts at most 64 connections: 40 anonymous ones, 5 of an address,
// and 8 pending ones.
type besieged struct {
	*testing.T
	ca      *trust.CA
	addr    string
	refused atomic.Int64
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
	if err != nil {
		t.Fatal(err)
	}

	b.addr = inner.Addr().String()
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = s.ServeTLS(Limit(inner, 64, 0, "alpha.test", func() { b.refused.Add(1) }), "", "")
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
	if err != nil {
		b.Fatal(err)
	}

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
	for deadline := time.Now().Add(time.Minute); b.refused.Load() < 8*(12-5-1); <-again {
		if time.Now().After(deadline) {
			t.Fatalf("%d are refused: each address has five anonymous connections and one pending", b.refused.Load())
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
	for i := range 8 + 5 { // identified, and anonymous
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

	for i := range 8 + 5 {
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

// Silent clients cannot block the pending class: a new connection takes the place of the
// oldest one, even when all classes are full.
//
// Requirement: OPS-020
func TestSilentClientsDoNotBlockOthers(t *testing.T) {
	c := Limit(nil, 64, 0, "alpha.test", func() {}).(*connLimiter)
	at := func(i int) fixedConn { return fixedConn{addr: fmt.Sprintf("192.0.2.%d:1", i)} }

	var pending []*limitedConn
	for i := range 8 {
		for range 5 + 1 {
			p, first := c.admit(at(i))
			if p == nil || first != nil {
				t.Fatal("there is no room")
			}

			if p.class == &c.pending {
				pending = append(pending, p)
			}
		}
	}

	var gone []*limitedConn
	for i := range 64 - 40 { // members come one after the other until all is full
		p, first := c.admit(at(100 + i))
		if p == nil || !c.classify(p, fmt.Sprint("node", i)) {
			t.Fatalf("there is no room for member %d", i)
		}

		if first != nil {
			gone = append(gone, first)
		}
	}

	if !slices.Equal(gone, pending) {
		t.Errorf("%d made room of %d that came before", len(gone), len(pending))
	}

	if p, _ := c.admit(at(99)); p != nil || c.total != 64 || c.queue.Len()+c.pending.total != 0 {
		t.Errorf("there are %d, of which %d pending, and %d in the queue", c.total, c.pending.total, c.queue.Len())
	}
}

// When a network uses its share of the pending class, its own oldest connection is evicted.
func TestANetworkEvictsItsOwnPendingConnections(t *testing.T) {
	c := Limit(nil, 64, 0, "alpha.test", func() {}).(*connLimiter)
	enter := func(addr string) (p, first *limitedConn) { return c.admit(fixedConn{addr: addr}) }
	fill := func(addr string) (door *limitedConn) {
		for door == nil || door.class != &c.pending {
			door, _ = enter(addr)
		}

		return door
	}
	fill("192.0.2.1:1")

	one, two := fill("[2001:db8:0:1::1]:1"), fill("[2001:db8:0:2::1]:1")
	if _, first := enter("[2001:db8:0:2::2]:1"); first != two {
		t.Error("a /64 with its share takes another's place")
	}

	if p, first := enter("[2001:db8:0:3::1]:1"); p == nil || first != one {
		t.Error("a /48 with its share takes another's place than that of who came first of it")
	}

	if c.pending.total != 3 || c.queue.Len() != 3 {
		t.Errorf("%d are pending, %d in the queue", c.pending.total, c.queue.Len())
	}

	for c.queue.Len() > 0 { // whose timers would go on
		_ = c.queue.Front().Value.(*limitedConn).Close()
	}
}

// A closed connection stops counting, in each class and once.
func TestClosedConnectionsAreNotCounted(t *testing.T) {
	c := Limit(nil, 64, 0, "alpha.test", func() {}).(*connLimiter)
	for range 3 {
		var all []*limitedConn
		for range 5 + 1 {
			p, _ := c.admit(fixedConn{addr: "192.0.2.1:1"})
			if p == nil {
				t.Fatal("there is no room")
			}

			all = append(all, p)
		}

		p, first := c.admit(fixedConn{addr: "192.0.2.1:1"})
		if p == nil || first != all[5] || c.total != 5+1 {
			t.Fatal("who comes where the address's share is full doesn't take the place of who came before")
		}

		all[5] = p
		if !c.classify(all[5], "ada") || !c.classify(all[4], "ada") || c.byID["ada"] != 2 || c.pending.total != 0 ||
			c.anonymous.total != 4 {
			t.Fatalf("identified %v, pending %d, anonymous %d", c.byID, c.pending.total, c.anonymous.total)
		}

		for _, p := range all {
			_, _ = p.Close(), p.Close()
		}

		if c.total != 0 || c.anonymous.total != 0 || c.pending.total != 0 ||
			len(c.byID)+len(c.anonymous.byAddress)+len(c.anonymous.byNetwork)+len(c.pending.byAddress) != 0 {
			t.Fatalf("when all have gone there are %+v", c)
		}
	}
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

// An IPv6 caller is its /64, of which a /48 has no more than two's share, and an IPv4
// one the same however it is written.
//
// Requirement: OPS-020
func TestWhereConnectionsAreFrom(t *testing.T) {
	at := func(s string) origin { return originOf(&net.TCPAddr{IP: net.ParseIP(s), Port: 1}) }
	if at("2001:db8::1") != at("2001:db8::2:1") || at("2001:db8::1").address == at("2001:db8:0:1::1").address {
		t.Error("a /64 is not one place")
	}

	if at("2001:db8::1").network != at("2001:db8:0:1::1").network ||
		at("2001:db8::1").network == at("2001:db8:1::1").network {
		t.Error("a /48 is not one network")
	}

	if at("::ffff:192.0.2.1") != at("192.0.2.1") || at("192.0.2.1") == at("192.0.2.2") ||
		at("192.0.2.1").network != "" {
		t.Error("IPv4 addresses are not places")
	}

	r := newClass(100, 10)

	in := 0
	for i := range 100 {
		if r.enter(at(fmt.Sprintf("2001:db8:0:%x::1", i))) {
			in++
		}
	}

	if in != 20 || !r.enter(at("2001:db8:1::1")) {
		t.Errorf("a /48 has %d of 100", in)
	}
}
