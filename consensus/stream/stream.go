package stream

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net"
	"sync"
	"time"

	"github.com/roster-mesh/roster/consensus/message"
)

var errCut = errors.New("the connection to the leader is cut")

// A Stream is the sender's end. Its methods are safe for concurrent use.
type Stream struct {
	conn  net.Conn
	bound time.Duration // of writing a frame

	out    sync.Mutex // held while a frame is written
	broken bool       // guarded by out: whether that has failed

	mu      sync.Mutex
	last    uint32
	waiting map[uint32]chan answer // each holds one; nil once the stream is cut
	heard   time.Time              // when the last answer came
}

// An answer is the answer to a question: a body, or that the other end never read the
// question, or neither if the stream was cut.
type answer struct {
	body   []byte
	unread bool
}

// New returns a stream over a connection. bound bounds the writing of a frame.
func New(conn net.Conn, bound time.Duration) *Stream {
	return &Stream{conn: conn, bound: bound, waiting: map[uint32]chan answer{}}
}

// Ask sends a question, which is a frame, and returns its answer. message.ErrNotLeader
// means that it was not read, OutcomeUnknown that it may have been.
func (s *Stream) Ask(ctx context.Context, frame []byte) ([]byte, error) {
	got := make(chan answer, 1)

	s.mu.Lock()
	if s.waiting == nil {
		s.mu.Unlock()
		return nil, fmt.Errorf("%w: %w", message.ErrNotLeader, errCut)
	}

	s.last++
	number := s.last

	// The question is known before it is sent, because its answer may come at once.
	s.waiting[number] = got
	s.mu.Unlock()
	began := time.Now()
	s.send(number, frame)

	select {
	case a := <-got:
		switch {
		case a.unread:
			return nil, fmt.Errorf("%w: it is stopping", message.ErrNotLeader)
		case a.body == nil:
			return nil, message.Unknown(errCut)
		}

		return a.body, nil
	case <-ctx.Done():
		s.giveUp(number, began)
		return nil, message.Unknown(context.Cause(ctx))
	}
}

// send writes a question. After a failure no more are written, but answers and the
// goodbye frame are still read.
func (s *Stream) send(number uint32, frame []byte) {
	s.out.Lock()
	defer s.out.Unlock()

	if s.broken {
		return
	}

	err := s.conn.SetWriteDeadline(time.Now().Add(s.bound))
	if err == nil {
		err = writeFrame(s.conn, number, frame)
	}

	if err != nil {
		s.broken = true

		// An error is the stream's end.
		_ = s.conn.SetReadDeadline(time.Now().Add(s.bound))
	}
}

// giveUp forgets a question without a caller, and cuts the stream if no answer has come
// since: the other end may be gone.
func (s *Stream) giveUp(number uint32, began time.Time) {
	s.mu.Lock()
	delete(s.waiting, number)
	silent := s.heard.Before(began)
	s.mu.Unlock()

	if silent {
		s.Cut()
	}
}

// Run hands out answers until the stream is cut.
func (s *Stream) Run() {
	defer s.Cut()

	r := bufio.NewReader(s.conn)
	for {
		number, body, err := readFrame(r)
		if err != nil {
			return
		}

		if number == goodbye {
			if len(body) == 4 {
				s.end(binary.BigEndian.Uint32(body))
			}

			return
		}

		s.mu.Lock()
		asked := s.waiting[number]
		delete(s.waiting, number)
		s.heard = time.Now()
		s.mu.Unlock()

		if asked != nil {
			asked <- answer{body: body}
		}
	}
}

// Cut cuts the stream: for waiting questions it is unknown whether they were read.
func (s *Stream) Cut() { s.end(math.MaxUint32) }

// end ends the stream after the last question that was read, and answers all that wait.
func (s *Stream) end(last uint32) {
	s.mu.Lock()
	waiting := s.waiting
	s.waiting = nil
	s.mu.Unlock()

	for number, asked := range waiting {
		asked <- answer{unread: number > last}
	}

	_ = s.conn.Close()
}

// IsLive reports whether questions may be asked over the stream.
func (s *Stream) IsLive() bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.waiting != nil
}
