package mesh

import (
	"context"
	"math/rand/v2"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	backlog     = 128              // connections that wait for Accept
	firstRetry  = time.Second      // a lost SYN is sent again after this, then twice this, …
	lastRetry   = 64 * time.Second // … until Dial gives up, after 127 s in all
	firstPort   = 49152            // of the ports that are given to diallers and to port 0
	privatePort = 1<<16 - firstPort
)

// A Network is an in-memory network of hosts that speak TCP: net.Listener and
// net.Conn with delays, losses, cuts and deaths under a test's control. All time
// is package time's, so in a testing/synctest bubble an hour's cut takes no
// time at all. It owns no goroutine and everything in it blocks on channels and
// timers alone, which a bubble sees; make it inside the bubble that uses it. (A
// bubble does not see a goroutine that waits for a mutex. Locks that others hold
// while they write, as crypto/tls does, are why a connection takes 1 MiB before
// Write waits.)
//
// A host is named by any text that may stand before a port; one that is an IP
// address gets *net.TCPAddr addresses. Randomness comes from the seed and from
// the order in which the connections of a pair of hosts are made.
type Network struct {
	seed uint64

	mu        sync.Mutex // guards the fields below; taken before a wire's own
	rng       *rand.Rand
	standard  Link
	links     map[direction]Link
	cuts      map[direction]bool
	down      map[string]bool
	listeners map[string]*listener // by host:port
	wires     map[*wire]struct{}
	made      map[direction]uint64 // connections so far
	sent      map[Flow]*atomic.Uint64
	nextPort  int
}

// A Flow is the traffic from one host to another over connections to one port, on either
// side.
type Flow struct{ From, To, Port string }

// A direction is one way between two hosts.
type direction struct{ from, to string }

func (d direction) back() direction { return direction{d.to, d.from} }

// New returns a network without delays, losses and cuts.
func New(seed uint64) *Network {
	return &Network{
		seed: seed, rng: rand.New(rand.NewPCG(seed, 0)),
		links: map[direction]Link{}, cuts: map[direction]bool{}, down: map[string]bool{},
		listeners: map[string]*listener{}, wires: map[*wire]struct{}{}, made: map[direction]uint64{},
		sent: map[Flow]*atomic.Uint64{},
	}
}

// SetAll sets how every direction behaves that SetLink does not name. A host's
// way to itself is always perfect.
func (n *Network) SetAll(link Link) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.standard = link
	n.relink()
}

// SetLink sets how the one direction between two hosts behaves, for the
// connections that exist too.
func (n *Network) SetLink(from, to string, link Link) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.links[direction{from, to}] = link
	n.relink()
}

// Cut stops everything between two hosts, both ways, silently: sent bytes wait, and a
// connection that stays cut for GiveUp fails at both ends.
func (n *Network) Cut(a, b string) { n.setCut(true, direction{a, b}, direction{b, a}) }

// CutOneWay stops traffic from one host to the other. New connections between them fail,
// because a handshake needs both ways.
func (n *Network) CutOneWay(from, to string) { n.setCut(true, direction{from, to}) }

// Heal ends the cuts between two hosts, both ways. Waiting bytes are sent again.
func (n *Network) Heal(a, b string) { n.setCut(false, direction{a, b}, direction{b, a}) }

func (n *Network) setCut(cut bool, ds ...direction) {
	n.mu.Lock()
	defer n.mu.Unlock()

	for _, direction := range ds {
		if cut {
			n.cuts[direction] = true
		} else {
			delete(n.cuts, direction)
		}
	}

	n.relink()
}

// relink tells every connection how its host's ways behave now. The caller
// holds mu.
func (n *Network) relink() {
	for w := range n.wires {
		w.relink([2]Link{n.link(w.path), n.link(w.path.back())}, [2]bool{n.cuts[w.path], n.cuts[w.path.back()]})
	}
}

// link returns how a direction behaves. The caller holds mu.
func (n *Network) link(direction direction) Link {
	if l, ok := n.links[direction]; ok {
		return l
	}

	if direction.from == direction.to {
		return Link{}
	}

	return n.standard
}

// Kill ends a host as a killed process ends: its listeners are closed, its connections
// reset, and its later attempts fail until Revive.
func (n *Network) Kill(host string) {
	n.mu.Lock()
	defer n.mu.Unlock()

	n.down[host] = true
	for _, l := range n.listeners {
		if l.host == host {
			n.end(l)
		}
	}

	for w := range n.wires {
		if w.path.from == host {
			w.abort(0)
		}

		if w.path.to == host {
			w.abort(1)
		}
	}
}

// Revive lets a killed host listen and dial again.
func (n *Network) Revive(host string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.down, host)
}

// Listen announces on an address of the form host:port; port 0 takes a free one,
// and there is no address that means all of a host's.
func (n *Network) Listen(addr string) (net.Listener, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}

	n.mu.Lock()
	defer n.mu.Unlock()

	if port == "0" {
		addr = n.privateAddr(host)
	}

	a := address(addr)
	switch {
	case n.down[host]:
		return nil, &net.OpError{Op: "listen", Net: a.Network(), Addr: a, Err: syscall.ENETDOWN}
	case n.listeners[a.String()] != nil:
		return nil, &net.OpError{Op: "listen", Net: a.Network(), Addr: a, Err: syscall.EADDRINUSE}
	}

	l := &listener{net: n, host: host, addr: a, queue: make(chan *conn, backlog), done: make(chan struct{})}
	n.listeners[a.String()] = l

	return l, nil
}

// privateAddr returns an unused address of that host. The caller holds mu.
func (n *Network) privateAddr(host string) string {
	for {
		n.nextPort = (n.nextPort + 1) % privatePort
		if addr := net.JoinHostPort(host, strconv.Itoa(firstPort+n.nextPort)); n.listeners[addr] == nil {
			return addr
		}
	}
}

// Dial connects a host to an address. A host that lives and does not listen
// there refuses; one that is cut off answers nothing, and Dial tries on until
// ctx ends or 127 s have passed.
func (n *Network) Dial(ctx context.Context, from, addr string) (net.Conn, error) {
	to, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}

	a := address(addr)

	fail := func(err error) error {
		return &net.OpError{Op: "dial", Net: a.Network(), Addr: a, Err: err}
	}
	for wait := firstRetry; wait <= lastRetry; wait *= 2 {
		if pause, answered := n.handshake(direction{from, to}); answered {
			if err := sleep(ctx, pause); err != nil {
				return nil, fail(err)
			}

			conn, err := n.connect(direction{from, to}, a.String())
			switch {
			case err != nil:
				return nil, fail(err)
			case conn != nil:
				return conn, nil
			}
		}

		if err := sleep(ctx, wait); err != nil {
			return nil, fail(err)
		}
	}

	return nil, fail(syscall.ETIMEDOUT)
}

// handshake sends a SYN. It returns the time until the answer, or false if none arrives.
func (n *Network) handshake(direction direction) (time.Duration, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()

	there, back := n.link(direction), n.link(direction.back())
	if n.cuts[direction] || n.cuts[direction.back()] || there.loses(n.rng) || back.loses(n.rng) {
		return 0, false
	}

	return there.travel(n.rng) + back.travel(n.rng), true
}

// connect makes the connection, or returns neither connection nor error where
// the SYN must be sent again.
func (n *Network) connect(direction direction, addr string) (net.Conn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()

	listener := n.listeners[addr]
	switch {
	case n.down[direction.from]:
		return nil, syscall.ENETDOWN
	case n.cuts[direction] || n.cuts[direction.back()]:
		return nil, nil
	case listener == nil:
		return nil, syscall.ECONNREFUSED
	case len(listener.queue) == cap(listener.queue):
		return nil, nil
	}

	w := n.newWire(direction, addr)
	here := address(n.privateAddr(direction.from))
	listener.queue <- newConn(w, 1, listener.addr, here) // has room: only this function fills it, under mu

	return newConn(w, 0, here, listener.addr), nil
}

// newWire makes the inside of a connection to addr. The caller holds mu.
func (n *Network) newWire(d direction, addr string) *wire {
	_, port, _ := net.SplitHostPort(addr) // somebody listens there: it has one
	n.made[d]++

	w := &wire{net: n, path: d, changed: make(chan struct{})}
	for i, d := range []direction{d, d.back()} {
		w.ways[i].link = n.link(d)
		w.ways[i].sent = n.counter(Flow{d.from, d.to, port})
		w.ways[i].rng = rand.New(rand.NewPCG(n.seed^hash(d), n.made[d]<<1|uint64(i)))
	}

	n.wires[w] = struct{}{}

	return w
}

// counter returns the byte counter of a flow. The caller holds mu.
func (n *Network) counter(flow Flow) *atomic.Uint64 {
	if n.sent[flow] == nil {
		n.sent[flow] = &atomic.Uint64{}
	}

	return n.sent[flow]
}

// Sent returns the bytes sent so far in the selected flows: TLS and its contents,
// without TCP and IP headers.
func (n *Network) Sent(counts func(Flow) bool) (bytes uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()

	for f, c := range n.sent {
		if counts(f) {
			bytes += c.Load()
		}
	}

	return bytes
}

// forget drops a connection that both ends have closed.
func (n *Network) forget(w *wire) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.wires, w)
}

// sleep waits for d or until ctx ends, and returns its error then.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}

	t := time.NewTimer(d)
	defer t.Stop()

	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// address returns the net.Addr of an address: a TCP address if its host is an IP
// address.
func address(addr string) net.Addr {
	if ap, err := netip.ParseAddrPort(addr); err == nil {
		return net.TCPAddrFromAddrPort(ap)
	}

	return named(addr)
}

// named is an address with a host's name in it.
type named string

func (named) Network() string  { return "tcp" }
func (a named) String() string { return string(a) }
