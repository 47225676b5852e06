package consensus

import (
	"bufio"
	"context"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// A switchboard has a member's lines to those that lead or led, and the lines at
// which it answers others.
type switchboard struct {
	dialing chan struct{} // holds one: who may change own
	own     map[spiffeid.ID]*line

	mu     sync.Mutex
	served map[net.Conn]chan struct{} // closed once no more is answered; nil once drained
}

func newSwitchboard() switchboard {
	return switchboard{dialing: make(chan struct{}, 1), own: map[spiffeid.ID]*line{}, served: map[net.Conn]chan struct{}{}}
}

// lineTo returns the line to a member, which is opened where there is none.
func (s *Store) lineTo(ctx context.Context, to Member) (*line, error) {
	b := &s.lines
	select {
	case b.dialing <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-b.dialing }()
	if l := b.own[to.ID]; l != nil {
		if l.to == to && l.live() {
			return l, nil
		}
		l.cut() // the member has moved: nobody would ask over it again
	}
	conn, err := s.cluster.connect(ctx, to.Address, protoLine)
	if err != nil {
		return nil, err
	}
	l := newLine(conn, to, s.cfg.Timing.Write)
	b.own[to.ID] = l
	s.loops.Go(l.run) // it ends with the connection, which the cluster closes at the latest
	return l, nil
}

// lineLoop answers the lines that others open.
func (s *Store) lineLoop() {
	for {
		conn, err := s.cluster.lines.Accept()
		if err != nil {
			return
		}
		s.loops.Go(func() { s.serveLine(conn) })
	}
}

// serveLine answers what comes over a line until that ends.
func (s *Store) serveLine(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	var out sync.Mutex
	send := func(number uint32, frame []byte) {
		out.Lock()
		defer out.Unlock()
		if err := conn.SetWriteDeadline(time.Now().Add(s.cfg.Timing.Write)); err == nil {
			err = writeFrame(conn, number, frame)
			if err == nil {
				return
			}
		}
		_ = conn.Close() // half a frame may be out
	}
	last := uint32(0)
	bye := func() {
		send(goodbye, binary.BigEndian.AppendUint32(newFrame(4), last))
		s.linger(conn)
	}
	from, done := s.lines.begin(conn)
	if done == nil {
		bye()
		return
	}
	defer s.lines.end(conn, done)
	type question struct {
		number uint32
		body   []byte
	}
	var underWay sync.WaitGroup
	questions := make(chan question)
	for range 2 * maxMessages { // who asks has half as many under way
		underWay.Go(func() {
			for q := range questions {
				send(q.number, s.answerLine(from, q.body))
				s.cluster.occupy(conn, -1)
			}
		})
	}
	r := bufio.NewReader(conn)
	for {
		number, body, err := readFrame(r)
		if err != nil || number == goodbye || !s.cluster.isMember(from) { // it may have left since the frame before
			break
		}
		last = number
		s.cluster.occupy(conn, 1)
		questions <- question{number, body}
	}
	close(questions)
	underWay.Wait()
	bye()
}

// linger reads on until the other end closes, within a bound: what nobody has read
// when a connection is closed resets it, and the goodbye may be lost on its way.
func (s *Store) linger(conn net.Conn) {
	if err := conn.SetReadDeadline(time.Now().Add(s.cfg.Timing.Heartbeat)); err == nil {
		_, _ = io.Copy(io.Discard, conn)
	}
}

// begin notes a line that is answered from now on; nil where none is any more.
func (b *switchboard) begin(conn net.Conn) (from spiffeid.ID, done chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.served == nil {
		return from, nil
	}
	from, _ = peerOf(conn)
	done = make(chan struct{})
	b.served[conn] = done
	return from, done
}

func (b *switchboard) end(conn net.Conn, done chan struct{}) {
	close(done)
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.served, conn)
}

// drain lets what was read be answered, within ctx, and says which was the last:
// a write that was not done must come back to be done elsewhere.
func (b *switchboard) drain(ctx context.Context) {
	b.mu.Lock()
	served := b.served
	b.served = nil
	b.mu.Unlock()
	for conn := range served {
		_ = conn.SetReadDeadline(time.Unix(1, 0)) // an error is the line's own end
	}
	for _, done := range served {
		select {
		case <-done:
		case <-ctx.Done():
			return
		}
	}
}

// drain lets what members have asked be answered, within a bound.
func (s *Store) drain(bound time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	s.lines.drain(ctx)
	if err := s.cluster.http.Shutdown(ctx); err != nil {
		s.log.Debug("answers to members are cut off", "error", err)
	}
}
