package federation

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

// A wire is a network in memory that can be cut. A cut is silent, as real ones
// are: what is written stays on its way, and dialling hangs.
type wire struct {
	mu        sync.Mutex
	listeners map[string]*wireListener
	conns     map[*wireConn]struct{}
	cut       func(a, b string) bool
	changed   chan struct{} // closed and replaced when cut changes
}

func newWire() *wire {
	return &wire{
		listeners: map[string]*wireListener{}, conns: map[*wireConn]struct{}{},
		cut: func(a, b string) bool { return false }, changed: make(chan struct{}),
	}
}

// setCut cuts the network between the addresses of which cut says so; nil heals.
func (w *wire) setCut(cut func(a, b string) bool) {
	if cut == nil {
		cut = func(a, b string) bool { return false }
	}
	w.mu.Lock()
	w.cut = cut
	close(w.changed)
	w.changed = make(chan struct{})
	conns := slices.Collect(maps.Keys(w.conns))
	w.mu.Unlock()
	for _, c := range conns {
		c.in.kick()
		c.out.kick()
	}
}

func (w *wire) isCut(a, b string) (bool, chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cut(a, b), w.changed
}

type wireAddr string

func (wireAddr) Network() string  { return "wire" }
func (a wireAddr) String() string { return string(a) }

type wireListener struct {
	w       *wire
	address string
	waiting chan net.Conn
	closed  chan struct{}
	once    sync.Once
}

func (w *wire) listen(address string) *wireListener {
	l := &wireListener{w: w, address: address, waiting: make(chan net.Conn, 64), closed: make(chan struct{})}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.listeners[address] = l
	return l
}

func (l *wireListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.waiting:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *wireListener) Close() error {
	l.once.Do(func() {
		l.w.mu.Lock()
		delete(l.w.listeners, l.address)
		l.w.mu.Unlock()
		close(l.closed)
	})
	return nil
}

func (l *wireListener) Addr() net.Addr { return wireAddr(l.address) }

// dialFrom returns the dial function of the node at that address.
func (w *wire) dialFrom(self string) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, address string) (net.Conn, error) {
		for {
			cut, changed := w.isCut(self, address)
			if !cut {
				break
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		l := w.listeners[address]
		if l == nil {
			return nil, fmt.Errorf("%s: connection refused", address)
		}
		there, here := newWireHalf(w, self, address), newWireHalf(w, address, self)
		a := &wireConn{w: w, local: self, remote: address, in: here, out: there}
		b := &wireConn{w: w, local: address, remote: self, in: there, out: here}
		w.conns[a], w.conns[b] = struct{}{}, struct{}{}
		select {
		case l.waiting <- b:
			return a, nil
		default:
			return nil, fmt.Errorf("%s: nobody accepts", address)
		}
	}
}

// A wireHalf carries bytes one way, and holds up to 64 KiB.
type wireHalf struct {
	w        *wire
	from, to string

	mu          sync.Mutex
	buf         []byte
	writerGone  bool
	readerGone  bool
	changed     chan struct{}
	readBefore  time.Time
	writeBefore time.Time
}

func newWireHalf(w *wire, from, to string) *wireHalf {
	return &wireHalf{w: w, from: from, to: to, changed: make(chan struct{})}
}

func (h *wireHalf) kick() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.kickLocked()
}

func (h *wireHalf) kickLocked() {
	close(h.changed)
	h.changed = make(chan struct{})
}

// await calls try until it is done or the deadline has passed.
func (h *wireHalf) await(deadline *time.Time, try func() (done bool, err error)) error {
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

type wireConn struct {
	w             *wire
	local, remote string
	in, out       *wireHalf
}

func (c *wireConn) Read(p []byte) (n int, err error) {
	err = c.in.await(&c.in.readBefore, func() (bool, error) {
		if c.in.readerGone {
			return false, net.ErrClosed
		}
		if cut, _ := c.w.isCut(c.in.from, c.in.to); cut {
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

func (c *wireConn) Write(p []byte) (n int, err error) {
	for n < len(p) {
		err = c.out.await(&c.out.writeBefore, func() (bool, error) {
			if c.out.writerGone {
				return false, net.ErrClosed
			}
			cut, _ := c.w.isCut(c.out.from, c.out.to)
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

func (c *wireConn) Close() error {
	c.w.mu.Lock()
	delete(c.w.conns, c)
	c.w.mu.Unlock()
	c.in.mu.Lock()
	c.in.readerGone = true
	c.in.kickLocked()
	c.in.mu.Unlock()
	c.out.mu.Lock()
	c.out.writerGone = true
	c.out.kickLocked()
	c.out.mu.Unlock()
	return nil
}

func (c *wireConn) LocalAddr() net.Addr  { return wireAddr(c.local) }
func (c *wireConn) RemoteAddr() net.Addr { return wireAddr(c.remote) }

func (c *wireConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

func (c *wireConn) SetReadDeadline(t time.Time) error {
	c.in.mu.Lock()
	defer c.in.mu.Unlock()
	c.in.readBefore = t
	c.in.kickLocked()
	return nil
}

func (c *wireConn) SetWriteDeadline(t time.Time) error {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	c.out.writeBefore = t
	c.out.kickLocked()
	return nil
}
