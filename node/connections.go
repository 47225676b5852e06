package node

import (
	"net"
	"net/netip"
	"sync"
)

// A crowd is a listener with so many connections at most, of which half may be one
// address's (a /64 of IPv6): whoever opens more than they are let keeps nobody else
// out, and a node's memory is bounded (OPS-020). What is over is closed at once.
type crowd struct {
	net.Listener
	most    int
	refused func() // told of each that is closed

	mu  sync.Mutex // guards the rest
	all int
	by  map[netip.Addr]int
}

// bounded bounds what ln accepts; 0 is no bound.
func bounded(ln net.Listener, most int, refused func()) net.Listener {
	if most == 0 {
		return ln
	}
	return &crowd{Listener: ln, most: most, refused: refused, by: map[netip.Addr]int{}}
}

// Accept implements net.Listener.
func (c *crowd) Accept() (net.Conn, error) {
	for {
		conn, err := c.Listener.Accept()
		if err != nil {
			return nil, err
		}
		from := place(conn.RemoteAddr())
		if c.enter(from) {
			return &present{Conn: conn, leave: sync.OnceFunc(func() { c.leave(from) })}, nil
		}
		c.refused()
		_ = conn.Close()
	}
}

func (c *crowd) enter(from netip.Addr) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all >= c.most || c.by[from] >= c.most/2 {
		return false
	}
	c.all++
	c.by[from]++
	return true
}

func (c *crowd) leave(from netip.Addr) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all--
	if c.by[from]--; c.by[from] == 0 {
		delete(c.by, from)
	}
}

// place is whose a connection is: its address, of IPv6 the first of its /64.
func place(a net.Addr) netip.Addr {
	at, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return netip.Addr{}
	}
	ip := at.Addr().Unmap().WithZone("")
	if p, err := ip.Prefix(64); ip.Is6() && err == nil {
		return p.Addr()
	}
	return ip
}

// A present connection counts until it is closed.
type present struct {
	net.Conn
	leave func()
}

// Close implements net.Conn.
func (p *present) Close() error {
	p.leave()
	return p.Conn.Close()
}
