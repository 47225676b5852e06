package gossip

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/roster-mesh/roster/directory/contain"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// MaxHead bounds one head of an exchange, in bytes: with ext and crit of the largest size.
const MaxHead = 12 << 10

// The bounds of a memberlist stream.
const (
	maxState    = 256 << 10 // members of a push/pull
	maxHeads    = 256
	maxAllHeads = 256 << 10 // bytes of all heads
)

var errState = errors.New("state too large")

// An exchange is a memberlist stream: one message each way. Each message is framed, so that
// it is complete and checked before memberlist reads any of it. After a push/pull follow the
// sender's heads that the receiver may have. Heads don't travel in memberlist's own user
// state, because its merge doesn't pass on the sender.
type exchange struct {
	*secured
	t       *transport
	release func()
	closing sync.Once
	in      *bytes.Reader // memberlist's goroutine reads; nil before the first read
	err     error
}

var _ net.Conn = (*exchange)(nil)

func (t *transport) newExchange(s *secured, release func()) *exchange {
	return &exchange{secured: s, t: t, release: release}
}

// Read implements net.Conn: it returns the other end's message, and then io.EOF.
func (e *exchange) Read(data []byte) (int, error) {
	if e.in == nil {
		var msg []byte
		if msg, e.err = e.receive(); e.err != nil {
			msg = nil
		}

		e.in = bytes.NewReader(msg)
	}

	if e.err != nil {
		return 0, e.err
	}

	return e.in.Read(data)
}

func (e *exchange) receive() ([]byte, error) {
	msg, err := readSized(e.secured, 4, maxState)
	if err != nil {
		return nil, e.refuse(err)
	}

	// Paid before it is parsed, so that a flood costs no more than its bytes.
	if err := e.t.pay(e.id, len(msg)); err != nil {
		return nil, err
	}

	err = e.t.cfg.Panics.Run(contain.Gossip, func() error { return e.t.filter.stream(e.id, msg) })
	if err != nil {
		return nil, e.refuse(err)
	}

	if msg[0] != wirePushPull {
		return msg, nil
	}

	heads, err := readHeads(e.secured)
	if err != nil {
		return nil, e.refuse(err)
	}

	if len(heads) == 0 {
		return msg, nil
	}

	size := 0
	for _, h := range heads {
		size += len(h)
	}

	if err := e.t.pay(e.id, size); err != nil {
		return nil, err
	}

	e.t.take(e.id, news{heads: heads})

	return msg, nil
}

// pay waits until that number of bytes is within a node's pace. Streams and links share
// one pace, because a node could otherwise evade the limit of its links by streams.
func (t *transport) pay(id spiffeid.ID, bytes int) error {
	t.mu.Lock()
	contact, err := t.contact(id)
	t.mu.Unlock()

	if err != nil {
		return err
	}

	return contact.pay(t.ctx, bytes)
}

func (e *exchange) refuse(err error) error {
	switch {
	case errors.Is(err, errState):
		e.t.cfg.Refused("too_large")
	case errors.Is(err, errWire) || errors.Is(err, errClaim):
		e.t.cfg.Refused(reasonOf(err))
	}

	return err
}

// Write implements net.Conn. memberlist writes a whole message at once.
func (e *exchange) Write(data []byte) (int, error) {
	buf := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(data)), uint32(len(data)))

	buf = append(buf, data...)
	if len(data) > 0 && data[0] == wirePushPull {
		buf = appendHeads(buf, e.t.heads(e.id.TrustDomain()))
	}

	if _, err := e.secured.Write(buf); err != nil {
		return 0, err
	}

	return len(data), nil
}

// Close implements net.Conn.
func (e *exchange) Close() error {
	e.closing.Do(func() {
		_ = e.SetDeadline(time.Now().Add(writeTimeout))
		_ = e.Conn.Close()
		e.t.drop(e.raw)
		e.release()
	})

	return nil
}

// appendHeads frames heads: a count of two bytes, and each head with a length of two bytes.
// It omits heads that exceed the bounds.
func appendHeads(buf []byte, heads [][]byte) []byte {
	fit := make([][]byte, 0, len(heads))

	size := 0
	for _, data := range heads {
		if len(data) <= MaxHead && len(fit) < maxHeads && size+len(data) <= maxAllHeads {
			fit = append(fit, data)
			size += len(data)
		}
	}

	buf = binary.BigEndian.AppendUint16(buf, uint16(len(fit)))
	for _, h := range fit {
		buf = append(binary.BigEndian.AppendUint16(buf, uint16(len(h))), h...)
	}

	return buf
}

func readHeads(r io.Reader) ([][]byte, error) {
	var count [2]byte
	if _, err := io.ReadFull(r, count[:]); err != nil {
		return nil, err
	}

	n := int(binary.BigEndian.Uint16(count[:]))
	if n > maxHeads {
		return nil, errState
	}

	heads := make([][]byte, 0, n)

	left := maxAllHeads
	for range n {
		data, err := readSized(r, 2, min(MaxHead, left))
		if err != nil {
			return nil, err
		}

		left -= len(data)
		heads = append(heads, data)
	}

	return heads, nil
}

// readSized reads a length of that width and a body of that length. It allocates memory as
// bytes arrive, because the length is not trusted.
func readSized(r io.Reader, width, limit int) ([]byte, error) {
	size := make([]byte, 4)
	if _, err := io.ReadFull(r, size[4-width:]); err != nil {
		return nil, err
	}

	n := int64(binary.BigEndian.Uint32(size))
	if n > int64(limit) {
		return nil, errState
	}

	var buf bytes.Buffer
	if _, err := io.CopyN(&buf, r, n); err != nil {
		return nil, err
	}

	return buf.Bytes(), nil
}
