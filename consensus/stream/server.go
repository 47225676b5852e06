package stream

import (
	"bufio"
	"context"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/consensus/transport"
)

// A Server answers the streams that other members open to this one.
type Server struct {
	Parallel  int           // questions of one stream that are answered at a time
	WriteTime time.Duration // bound of writing a frame
	CloseTime time.Duration // bound of waiting for the other end to close
	// Answer returns the answer to a member's question as a frame.
	Answer func(from spiffeid.ID, question []byte) (frame []byte)
	// Occupy counts the answers under way on a connection up or down.
	Occupy func(conn net.Conn, by int)
	// IsMember reports whether the questions of a sender are still answered.
	IsMember func(from spiffeid.ID) bool

	mu      sync.Mutex
	served  map[net.Conn]chan struct{} // closed once no more is answered
	drained bool
}

// A question is a frame that was read.
type question struct {
	number uint32
	body   []byte
}

// Serve answers the frames of a stream until it ends, and closes the connection.
func (s *Server) Serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()

	out := &frameWriter{conn: conn, bound: s.WriteTime}
	last := uint32(0)

	if done := s.begin(conn); done != nil {
		defer s.end(conn, done)

		last = s.answerAll(conn, out)
	}

	out.write(goodbye, binary.BigEndian.AppendUint32(NewFrame(4), last))
	s.awaitClose(conn)
}

// answerAll answers questions until the stream ends, and returns the number of the last that
// it has read.
func (s *Server) answerAll(conn net.Conn, out *frameWriter) (last uint32) {
	from, _ := transport.PeerOf(conn)
	questions := make(chan question)

	var underWay sync.WaitGroup
	for range s.Parallel {
		underWay.Go(func() {
			for q := range questions {
				out.write(q.number, s.Answer(from, q.body))
				s.Occupy(conn, -1)
			}
		})
	}

	r := bufio.NewReader(conn)
	for {
		number, body, err := readFrame(r)
		// The sender may have left the domain since the frame before.
		if err != nil || number == goodbye || !s.IsMember(from) {
			break
		}

		// The frame counts as read from here on, and the goodbye frame says so.
		last = number

		// It counts before it is handed over, so that no eviction cuts its answer off.
		s.Occupy(conn, 1)
		questions <- question{number, body}
	}

	// Answers that are under way precede the goodbye frame.
	close(questions)
	underWay.Wait()

	return last
}

// awaitClose reads on until the other end closes, within a bound: unread bytes at the
// close of a connection reset it, and the goodbye frame may be lost.
func (s *Server) awaitClose(conn net.Conn) {
	if err := conn.SetReadDeadline(time.Now().Add(s.CloseTime)); err == nil {
		_, _ = io.Copy(io.Discard, conn)
	}
}

// begin notes a stream that is answered from now on; it returns nil once drained.
func (s *Server) begin(conn net.Conn) (done chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.drained {
		return nil
	}

	if s.served == nil {
		s.served = map[net.Conn]chan struct{}{}
	}

	done = make(chan struct{})
	s.served[conn] = done

	return done
}

func (s *Server) end(conn net.Conn, done chan struct{}) {
	close(done)

	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.served, conn)
}

// Drain lets the questions that were read be answered, within ctx, and no others. The goodbye
// frame says which was the last: a write that was not done must be sent elsewhere.
func (s *Server) Drain(ctx context.Context) {
	s.mu.Lock()
	served := s.served
	s.served = nil
	s.drained = true
	s.mu.Unlock()

	for conn := range served {
		// An error is the stream's own end.
		_ = conn.SetReadDeadline(time.Unix(1, 0))
	}

	for _, done := range served {
		select {
		case <-done:
		case <-ctx.Done():
			return
		}
	}
}

// A frameWriter writes whole frames of several goroutines.
type frameWriter struct {
	conn  net.Conn
	bound time.Duration
	mu    sync.Mutex
}

// write writes a frame. It closes the connection if that fails, because half a frame may be
// written.
func (w *frameWriter) write(number uint32, frame []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()

	err := w.conn.SetWriteDeadline(time.Now().Add(w.bound))
	if err == nil {
		err = writeFrame(w.conn, number, frame)
	}

	if err != nil {
		_ = w.conn.Close()
	}
}
