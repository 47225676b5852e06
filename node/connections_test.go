package node

import (
	"net"
	"testing"
)

// Whoever opens connections without end has half of what there is, and no more than
// that is kept; what ends makes room.
//
// Requirement: OPS-020
func TestACrowdIsBounded(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refused := make(chan struct{}, 16)
	ln := bounded(inner, 4, func() { refused <- struct{}{} })
	taken := make(chan net.Conn, 16)
	go func() {
		defer close(taken)
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			taken <- conn
		}
	}()
	defer func() {
		_ = ln.Close()
		for conn := range taken {
			_ = conn.Close()
		}
	}()
	dial := func(from string) net.Conn {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		conn, err := d.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Skipf("no connection from %s: %v", from, err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	dial("127.0.0.1")
	first := <-taken
	dial("127.0.0.1")
	second := <-taken
	dial("127.0.0.1")
	<-refused // half of four
	dial("127.0.0.2")
	third := <-taken
	_ = first.Close()
	_ = first.Close() // counts once
	dial("127.0.0.1")
	fourth := <-taken
	dial("127.0.0.1")
	<-refused
	dial("127.0.0.2")
	fifth := <-taken
	dial("127.0.0.3")
	<-refused // four are there
	for _, conn := range []net.Conn{second, third, fourth, fifth} {
		_ = conn.Close()
	}
}

// An IPv6 caller is its /64, and an IPv4 one the same however it is written.
func TestPlacesOfConnections(t *testing.T) {
	at := func(s string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(s), Port: 1} }
	if place(at("2001:db8::1")) != place(at("2001:db8::2:1")) || place(at("2001:db8::1")) == place(at("2001:db8:0:1::1")) {
		t.Error("a /64 is not one place")
	}
	if place(at("::ffff:192.0.2.1")) != place(at("192.0.2.1")) || place(at("192.0.2.1")) == place(at("192.0.2.2")) {
		t.Error("IPv4 addresses are not places")
	}
}
