// Package sse reads server-sent events (HTML standard, 9.2.6). It needs the standard library
// alone, because the Go client links it.
package sse

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// ErrTooLong is the error of an event that is larger than the reader's bound.
var ErrTooLong = errors.New("an event is too long")

// An Event is one block of a stream, up to an empty line.
type Event struct {
	Name string // of the field event; empty if there is none
	// ID is the id of the last event that had one, this one included.
	ID      string
	HasData bool
	Data    []byte // the values of the fields data, joined by LF
	// Others are all lines but those of data, comments too, as they came and each with LF.
	Others []byte
}

// A Reader reads a stream of events. It is for one goroutine.
type Reader struct {
	from     *bufio.Reader
	most     int    // bytes of an event
	id       string // of the last event that had one
	begun    bool   // the stream's first byte was read
	returned bool   // the last line ended with CR: a LF that follows belongs to its end
}

// NewReader returns a reader of events of at most so many bytes. lastID is the id of the
// event after which the stream begins.
func NewReader(r io.Reader, most int, lastID string) *Reader {
	return &Reader{from: bufio.NewReader(r), most: most, id: lastID}
}

// Next returns the next block, as soon as it has ended. One without data only advances the
// id. A block that the end of the stream cuts off is dropped: then the error is the stream's,
// io.EOF at its end.
func (r *Reader) Next() (*Event, error) {
	event, id := &Event{}, r.id

	for room := r.most; ; {
		line, err := r.line(room)
		if err != nil {
			return nil, err
		}

		// The id counts once its block is whole: a broken stream goes on after the block before.
		if len(line) == 0 {
			r.id, event.ID = id, id
			return event, nil
		}

		room -= len(line)
		name, value, _ := bytes.Cut(line, []byte{':'})
		value = bytes.TrimPrefix(value, []byte{' '})

		if string(name) == "data" {
			event.addData(value)
			continue
		}

		event.Others = append(append(event.Others, line...), '\n')

		switch string(name) {
		case "event":
			event.Name = string(value)
		case "id":
			// An id with a NUL is ignored (HTML, 9.2.6).
			if bytes.IndexByte(value, 0) < 0 {
				id = string(value)
			}
		}
	}
}

// LastID returns the id of the last event that had one.
func (r *Reader) LastID() string { return r.id }

func (e *Event) addData(value []byte) {
	if e.HasData {
		e.Data = append(e.Data, '\n')
	}

	e.HasData = true
	e.Data = append(e.Data, value...)
}

// byteOrderMark may lead a stream; it belongs to no line.
var byteOrderMark = []byte("\xef\xbb\xbf")

// begin drops a leading byte order mark. It waits for more than the first byte only if that begins
// a mark.
func (r *Reader) begin() {
	r.begun = true

	if first, err := r.from.Peek(1); err != nil || first[0] != byteOrderMark[0] {
		return
	}

	if first, err := r.from.Peek(len(byteOrderMark)); err == nil && bytes.Equal(first, byteOrderMark) {
		_, _ = r.from.Discard(len(first)) // they are in the buffer
	}
}

// line returns the next line, which CR, LF or both end, without its end. It doesn't wait for
// a LF after CR.
func (r *Reader) line(room int) (line []byte, err error) {
	if !r.begun {
		r.begin()
	}

	for {
		b, err := r.from.ReadByte()
		after := r.returned
		r.returned = b == '\r'

		switch {
		case err != nil:
			return nil, err
		case b == '\n' && after:
		case b == '\n', b == '\r':
			return line, nil
		case len(line) >= room:
			return nil, ErrTooLong
		default:
			line = append(line, b)
		}
	}
}
