package consensus

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"sync"
	"time"

	"github.com/roster-mesh/roster/consensus/message"
)

// A frame is a number and a length, of four bytes each, and a body. The sender of requests
// counts its frames from 1; an answer has its request's number. Number goodbye ends a line: it
// holds the number of the last request that was read.
const (
	frameHead = 8
	goodbye   = 0
)

var (
	errStreamCut = errors.New("the connection to the leader is cut")
	errBadFrame  = errors.New("malformed frame")
)

// newFrame returns a frame without anything in it, with room for so much.
func newFrame(room int) []byte { return make([]byte, frameHead, frameHead+room) }

// writeFrame writes a frame that newFrame has made.
func writeFrame(w io.Writer, number uint32, frame []byte) error {
	binary.BigEndian.PutUint32(frame, number)
	binary.BigEndian.PutUint32(frame[4:], uint32(len(frame)-frameHead))
	_, err := w.Write(frame)

	return err
}

func readFrame(r *bufio.Reader) (number uint32, body []byte, err error) {
	var head [frameHead]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}

	size := binary.BigEndian.Uint32(head[4:])
	if size > message.MaxBody {
		return 0, nil, errBadFrame
	}

	body = make([]byte, size)
	_, err = io.ReadFull(r, body)

	return binary.BigEndian.Uint32(head[:]), body, err
}

// A writeStream is a member's connection to its leader for writes: each message is a
// frame, answered by a frame, in any order (ADR 0021).
type writeStream struct {
	conn  net.Conn
	to    Member
	bound time.Duration // of writing a frame

	former time.Time // since when to leads no more; zero while it leads. openStreams.dialing guards it

	out    sync.Mutex // held while a frame is written
	broken bool       // guarded by out: whether that has failed

	mu      sync.Mutex
	last    uint32
	waiting map[uint32]chan streamAnswer // each holds one; nil once the line is cut
	heard   time.Time                    // when the last answer came
}

// A streamAnswer is the answer to a question: a body, or that the other end never read
// the question, or neither if the stream was cut.
type streamAnswer struct {
	body   []byte
	unread bool
}

func newWriteStream(conn net.Conn, to Member, bound time.Duration) *writeStream {
	return &writeStream{conn: conn, to: to, bound: bound, waiting: map[uint32]chan streamAnswer{}}
}

// ask sends a question, which is a frame, and returns its answer. message.ErrNotLeader
// means that it was not read, OutcomeUnknown that it may have been.
func (l *writeStream) ask(ctx context.Context, frame []byte) ([]byte, error) {
	answer := make(chan streamAnswer, 1)
	l.mu.Lock()
	if l.waiting == nil {
		l.mu.Unlock()
		return nil, fmt.Errorf("%w: %w", message.ErrNotLeader, errStreamCut)
	}

	l.last++
	number := l.last
	l.waiting[number] = answer
	l.mu.Unlock()
	began := time.Now()
	l.send(number, frame)

	select {
	case a := <-answer:
		switch {
		case a.unread:
			return nil, fmt.Errorf("%w: it is stopping", message.ErrNotLeader)
		case a.body == nil:
			return nil, message.Unknown(errStreamCut)
		}

		return a.body, nil
	case <-ctx.Done():
		l.giveUp(number, began)
		return nil, message.Unknown(context.Cause(ctx))
	}
}

// send writes a question. After a failure no more are written, but answers and the
// goodbye frame are still read.
func (l *writeStream) send(number uint32, frame []byte) {
	l.out.Lock()
	defer l.out.Unlock()

	if l.broken {
		return
	}

	err := l.conn.SetWriteDeadline(time.Now().Add(l.bound))
	if err == nil {
		err = writeFrame(l.conn, number, frame)
	}

	if err != nil {
		l.broken = true
		_ = l.conn.SetReadDeadline(time.Now().Add(l.bound)) // an error is the line's end
	}
}

// giveUp forgets a question without a caller, and cuts the stream if no answer has come
// since: the other end may be gone.
func (l *writeStream) giveUp(number uint32, began time.Time) {
	l.mu.Lock()
	delete(l.waiting, number)
	silent := l.heard.Before(began)
	l.mu.Unlock()

	if silent {
		l.cut()
	}
}

// run hands out answers until the stream is cut.
func (l *writeStream) run() {
	defer l.cut()

	r := bufio.NewReader(l.conn)
	for {
		number, body, err := readFrame(r)
		if err != nil {
			return
		}

		if number == goodbye {
			if len(body) == 4 {
				l.end(binary.BigEndian.Uint32(body))
			}

			return
		}

		l.mu.Lock()
		answer := l.waiting[number]
		delete(l.waiting, number)
		l.heard = time.Now()
		l.mu.Unlock()

		if answer != nil {
			answer <- streamAnswer{body: body}
		}
	}
}

// cut cuts the stream: for waiting questions it is unknown whether they were read.
func (l *writeStream) cut() { l.end(math.MaxUint32) }

// end ends the stream after the last question that was read, and answers all that wait.
func (l *writeStream) end(last uint32) {
	l.mu.Lock()
	waiting := l.waiting
	l.waiting = nil
	l.mu.Unlock()

	for number, answer := range waiting {
		answer <- streamAnswer{unread: number > last}
	}

	_ = l.conn.Close()
}

// live reports whether questions may be asked over the stream.
func (l *writeStream) live() bool {
	l.mu.Lock()
	defer l.mu.Unlock()

	return l.waiting != nil
}
