package mesh

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// A conn is one end of a wire.
type conn struct {
	wire          *wire
	side          int
	local, remote net.Addr
	writing       chan struct{} // held by the Write under way: Writes do not mix
}

func newConn(w *wire, side int, local, remote net.Addr) *conn {
	return &conn{wire: w, side: side, local: local, remote: remote, writing: make(chan struct{}, 1)}
}

func (c *conn) in() *way  { return &c.wire.ways[1-c.side] }
func (c *conn) out() *way { return &c.wire.ways[c.side] }

// Read waits for bytes, the other end's close (io.EOF), or the deadline.
func (c *conn) Read(data []byte) (n int, err error) {
	in := c.in()
	err = c.await("read", func(now time.Time) (bool, error) {
		switch {
		case c.wire.closed[c.side]:
			return true, net.ErrClosed
		case past(in.readBy, now):
			return true, os.ErrDeadlineExceeded
		case len(data) == 0:
			return true, nil
		case len(in.arrived) > 0:
			n = copy(data, in.arrived)
			in.arrived = in.arrived[n:]
			in.size -= n
			c.wire.wake() // there is room for a Write

			return true, nil
		case in.end != nil:
			return true, in.end
		case in.deaf:
			return true, io.EOF
		}

		return c.wire.failed != nil, c.wire.failed
	}, func() time.Time { return sooner(in.readBy, c.wire.turn(1-c.side)) })

	return n, err
}

// Write waits until there is room for all of p, or the deadline.
func (c *conn) Write(data []byte) (n int, err error) {
	c.writing <- struct{}{}
	defer func() { <-c.writing }()
	in, out := c.in(), c.out()
	err = c.await("write", func(now time.Time) (bool, error) {
		switch {
		case c.wire.closed[c.side]:
			return true, net.ErrClosed
		case past(out.writeBy, now):
			return true, os.ErrDeadlineExceeded
		case c.wire.failed != nil:
			return true, c.wire.failed
		case errors.Is(in.end, syscall.ECONNRESET):
			return true, syscall.ECONNRESET
		case out.shut, in.end != nil && c.wire.closed[1-c.side]:
			return true, syscall.EPIPE
		}

		sent, err := c.fill(now, data[n:])
		n += sent

		return n == len(data) || err != nil, err
	}, func() time.Time { return sooner(out.writeBy, c.wire.turn(1-c.side)) })

	return n, err
}

// fill sends as much of p as there is room for.
func (c *conn) fill(now time.Time, data []byte) (n int, err error) {
	out := c.out()
	for len(data) > n && out.size < window {
		if out.link.Reset > 0 && out.rng.Float64() < out.link.Reset {
			c.wire.failed = syscall.ECONNRESET
			err = c.wire.failed

			break
		}

		size := min(len(data)-n, segment, window-out.size)
		out.send(now, data[n:n+size])
		n += size
	}

	if n > 0 || err != nil {
		c.wire.wake()
	}

	return n, err
}

// await calls try, under the wire's lock, until it is done: again at each change
// and at the time that next names.
func (c *conn) await(op string, try func(now time.Time) (bool, error), next func() time.Time) error {
	w := c.wire
	for {
		w.mu.Lock()
		now := time.Now()
		w.settle(now)
		done, err := try(now)
		changed, at := w.changed, next()
		w.mu.Unlock()

		switch {
		case errors.Is(err, io.EOF):
			return err
		case err != nil:
			return &net.OpError{Op: op, Net: c.local.Network(), Source: c.local, Addr: c.remote, Err: err}
		case done:
			return nil
		}

		waitFor(changed, at.Sub(now), !at.IsZero())
	}
}

// waitFor waits for a change, and if bounded for at most d.
func waitFor(changed <-chan struct{}, d time.Duration, bounded bool) {
	if !bounded {
		<-changed
		return
	}

	t := time.NewTimer(d)
	defer t.Stop()

	select {
	case <-changed:
	case <-t.C:
	}
}

func past(deadline, now time.Time) bool { return !deadline.IsZero() && !deadline.After(now) }

// Close ends both ways. Written bytes still arrive.
func (c *conn) Close() error {
	if c.wire.hangUp(c.side, io.EOF) {
		c.wire.net.forget(c.wire)
	}

	return nil
}

func (c *conn) SetDeadline(t time.Time) error {
	return c.change(func(time.Time) { c.in().readBy, c.out().writeBy = t, t })
}

func (c *conn) SetReadDeadline(t time.Time) error {
	return c.change(func(time.Time) { c.in().readBy = t })
}

func (c *conn) SetWriteDeadline(t time.Time) error {
	return c.change(func(time.Time) { c.out().writeBy = t })
}

func (c *conn) change(f func(now time.Time)) error {
	w := c.wire
	w.mu.Lock()
	defer w.mu.Unlock()

	if w.closed[c.side] {
		return &net.OpError{Op: "set", Net: c.local.Network(), Source: c.local, Addr: c.remote, Err: net.ErrClosed}
	}

	now := time.Now()
	w.settle(now)
	f(now)
	w.wake()

	return nil
}

func (c *conn) LocalAddr() net.Addr  { return c.local }
func (c *conn) RemoteAddr() net.Addr { return c.remote }

// A listener hands out the connections that were dialled to one address.
type listener struct {
	net   *Network
	host  string
	addr  net.Addr
	queue chan *conn
	done  chan struct{}
	once  sync.Once
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case <-l.done:
		return nil, &net.OpError{Op: "accept", Net: l.addr.Network(), Addr: l.addr, Err: net.ErrClosed}
	default:
	}

	select {
	case c := <-l.queue:
		return c, nil
	case <-l.done:
		return nil, &net.OpError{Op: "accept", Net: l.addr.Network(), Addr: l.addr, Err: net.ErrClosed}
	}
}

// Close lets Accept return, and resets connections that weren't accepted.
func (l *listener) Close() error {
	l.net.mu.Lock()
	defer l.net.mu.Unlock()
	l.net.end(l)

	return nil
}

func (l *listener) Addr() net.Addr { return l.addr }

// end closes a listener. The caller holds mu.
func (n *Network) end(listener *listener) {
	listener.once.Do(func() {
		delete(n.listeners, listener.addr.String())
		close(listener.done)

		for len(listener.queue) > 0 {
			select {
			case c := <-listener.queue:
				c.wire.abort(c.side)
			default: // an Accept took it
			}
		}
	})
}
