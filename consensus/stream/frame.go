package stream

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"

	"github.com/roster-mesh/roster/consensus/message"
)

// A frame is a number and a length, of four bytes each, and a body. The sender of requests
// counts its frames from 1; an answer has its request's number. Number goodbye ends a stream:
// it holds the number of the last request that was read.
const (
	frameHead = 8
	goodbye   = 0
)

var errBadFrame = errors.New("malformed frame")

// NewFrame returns a frame with an empty body and room for so many bytes. The body is appended
// to it.
func NewFrame(room int) []byte { return make([]byte, frameHead, frameHead+room) }

// writeFrame writes a frame that NewFrame has made.
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
