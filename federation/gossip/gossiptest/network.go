// Package gossiptest provides tests of gossiping nodes with an in-memory network that can be
// partitioned, and with certificate authorities.
package gossiptest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"time"
)

// A Network is an in-memory network that can be partitioned. A partition is silent, like a
// real one: written bytes are delayed, and dialling hangs.
type Network struct {
	mu        sync.Mutex
	listeners map[string]*listener
	conns     map[*conn]struct{}
	cut       func(a, b string) bool
	changed   chan struct{} // closed and replaced when cut changes
}

// NewNetwork returns a network without partitions.
func NewNetwork() *Network {
	return &Network{
		listeners: map[string]*listener{}, conns: map[*conn]struct{}{},
		cut: func(a, b string) bool { return false }, changed: make(chan struct{}),
	}
}

// SetCut partitions the network between the pairs of addresses for which cut returns true;
// nil heals it.
func (n *Network) SetCut(cut func(a, b string) bool) {
	if cut == nil {
		cut = func(a, b string) bool { return false }
	}

	n.mu.Lock()
	n.cut = cut
	close(n.changed)
	n.changed = make(chan struct{})
	conns := slices.Collect(maps.Keys(n.conns))
	n.mu.Unlock()

	for _, c := range conns {
		c.in.kick()
		c.out.kick()
	}
}

func (n *Network) isCut(a, b string) (bool, chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()

	return n.cut(a, b), n.changed
}

type addr string

func (addr) Network() string  { return "memory" }
func (a addr) String() string { return string(a) }

type listener struct {
	network *Network
	address string
	waiting chan net.Conn
	closed  chan struct{}
	once    sync.Once
}

// Listen returns a listener at that address.
func (n *Network) Listen(address string) net.Listener {
	l := &listener{network: n, address: address, waiting: make(chan net.Conn, 64), closed: make(chan struct{})}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.listeners[address] = l

	return l
}

func (n *Network) unlisten(address string) {
	n.mu.Lock()
	defer n.mu.Unlock()

	delete(n.listeners, address)
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.waiting:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.once.Do(func() {
		l.network.unlisten(l.address)
		close(l.closed)
	})

	return nil
}

func (l *listener) Addr() net.Addr { return addr(l.address) }

// DialFrom returns the dial function of the node at that address.
func (n *Network) DialFrom(self string) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, address string) (net.Conn, error) {
		for {
			cut, changed := n.isCut(self, address)
			if !cut {
				break
			}

			select {
			case <-changed:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}

		n.mu.Lock()
		defer n.mu.Unlock()

		l := n.listeners[address]
		if l == nil {
			return nil, fmt.Errorf("%s: connection refused", address)
		}

		a, b := n.pipe(self, address)

		n.conns[a], n.conns[b] = struct{}{}, struct{}{}
		select {
		case l.waiting <- b:
			return a, nil
		default:
			return nil, fmt.Errorf("%s: connection refused", address)
		}
	}
}

// Pipe returns both ends of a connection between two addresses without listeners.
func (n *Network) Pipe(local, remote string) (here, there net.Conn) {
	return n.pipe(local, remote)
}

func (n *Network) pipe(local, remote string) (here, there *conn) {
	out := newHalf(n, local, remote)
	in := newHalf(n, remote, local)
	here = &conn{network: n, local: local, remote: remote, in: in, out: out}
	there = &conn{network: n, local: remote, remote: local, in: out, out: in}

	return here, there
}

// A half carries bytes one way, and holds up to 64 KiB.
type half struct {
	network  *Network
	from, to string

	mu          sync.Mutex
	buf         []byte
	writerGone  bool
	readerGone  bool
	changed     chan struct{}
	readBefore  time.Time
	writeBefore time.Time
}

func newHalf(n *Network, from, to string) *half {
	return &half{network: n, from: from, to: to, changed: make(chan struct{})}
}

func (h *half) kick() { h.change(func() {}) }

// change sets fields, and wakes those that wait.
func (h *half) change(set func()) {
	h.mu.Lock()
	defer h.mu.Unlock()

	set()
	h.kickLocked()
}

func (h *half) kickLocked() {
	close(h.changed)
	h.changed = make(chan struct{})
}

// await calls try until it is done or the deadline has passed.
func (h *half) await(deadline *time.Time, try func() (done bool, err error)) error {
	for {
		h.mu.Lock()
		done, err := try()
		changed, end := h.changed, *deadline
		h.mu.Unlock()

		if done || err != nil {
			return err
		}

		var expired <-chan time.Time
		if !end.IsZero() {
			timer := time.NewTimer(time.Until(end))
			defer timer.Stop()
			expired = timer.C

			if !time.Now().Before(end) {
				return os.ErrDeadlineExceeded
			}
		}

		select {
		case <-changed:
		case <-expired:
			return os.ErrDeadlineExceeded
		}
	}
}

type conn struct {
	network       *Network
	local, remote string
	in, out       *half
}

func (c *conn) Read(p []byte) (n int, err error) {
	err = c.in.await(&c.in.readBefore, func() (bool, error) {
		if c.in.readerGone {
			return false, net.ErrClosed
		}

		if cut, _ := c.network.isCut(c.in.from, c.in.to); cut {
			return false, nil
		}

		if len(c.in.buf) == 0 && c.in.writerGone {
			return false, io.EOF
		}

		if len(c.in.buf) == 0 {
			return false, nil
		}

		n = copy(p, c.in.buf)
		c.in.buf = c.in.buf[n:]
		c.in.kickLocked()

		return true, nil
	})

	return n, err
}

func (c *conn) Write(p []byte) (n int, err error) {
	for n < len(p) {
		err = c.out.await(&c.out.writeBefore, func() (bool, error) {
			if c.out.writerGone {
				return false, net.ErrClosed
			}

			cut, _ := c.network.isCut(c.out.from, c.out.to)
			if c.out.readerGone && !cut {
				return false, errors.New("connection reset")
			}

			room := min(64<<10-len(c.out.buf), len(p)-n)
			if room == 0 {
				return false, nil
			}

			c.out.buf = append(c.out.buf, p[n:n+room]...)
			n += room
			c.out.kickLocked()

			return true, nil
		})
		if err != nil {
			return n, err
		}
	}

	return n, nil
}

func (n *Network) remove(c *conn) {
	n.mu.Lock()
	defer n.mu.Unlock()

	delete(n.conns, c)
}

func (c *conn) Close() error {
	c.network.remove(c)
	c.in.change(func() { c.in.readerGone = true })
	c.out.change(func() { c.out.writerGone = true })

	return nil
}

func (c *conn) LocalAddr() net.Addr  { return addr(c.local) }
func (c *conn) RemoteAddr() net.Addr { return addr(c.remote) }

func (c *conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

func (c *conn) SetReadDeadline(t time.Time) error {
	c.in.change(func() { c.in.readBefore = t })

	return nil
}

func (c *conn) SetWriteDeadline(t time.Time) error {
	c.out.change(func() { c.out.writeBefore = t })

	return nil
}
