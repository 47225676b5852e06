package gateway

import (
	"bufio"
	"bytes"
	"io"

	"github.com/go-json-experiment/json/jsontext"
)

// results turns a stream of JSON-RPC responses into one of their results, event by
// event. An error ends it as an event of that name.
func results(stream io.ReadCloser) io.ReadCloser {
	return &resultReader{from: bufio.NewReader(stream), Closer: stream}
}

type resultReader struct {
	io.Closer
	from     *bufio.Reader
	returned bool // the last line ended with CR: a LF that follows is of that end
	ready    []byte
	err      error
}

// maxEvent bounds the bytes of an event.
const maxEvent = 1 << 20

// Read implements io.Reader: it returns as soon as there is an event.
func (r *resultReader) Read(data []byte) (int, error) {
	for len(r.ready) == 0 {
		if r.err != nil {
			return 0, r.err
		}

		r.ready, r.err = r.event()
	}

	n := copy(data, r.ready)
	r.ready = r.ready[n:]

	return n, nil
}

// event returns the next event with its data, which may be of several lines, replaced by
// the result. Its other fields are passed on. An event that the stream's end cuts off is
// dropped (HTML, 9.2.6). With an error the stream ends, io.EOF beside the event.
func (r *resultReader) event() (event []byte, err error) {
	var data [][]byte
	for room := maxEvent; ; {
		line, err := r.line(room)
		if err != nil {
			return nil, err
		}

		if len(line) == 0 {
			break
		}

		room -= len(line)
		if value, ok := bytes.CutPrefix(line, []byte("data:")); ok {
			data = append(data, bytes.TrimPrefix(value, []byte(" ")))
		} else if !bytes.Equal(line, []byte("data")) {
			event = append(append(event, line...), '\n')
		}
	}

	if data == nil {
		return append(event, '\n'), nil
	}

	result, err := resultOf(bytes.Join(data, []byte{'\n'}))
	if err != nil {
		return append(append([]byte("event: error\ndata: "), outputOf(nil, err)...), "\n\n"...), io.EOF
	}

	value := jsontext.Value(result)
	if err := value.Compact(); err != nil { // its lines would be others than data
		return nil, err
	}

	return append(append(append(event, "data: "...), value...), "\n\n"...), nil
}

// line returns the next line, which CR, LF or both end, without its end.
func (r *resultReader) line(room int) (line []byte, err error) {
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
			return nil, refuse(RuleSize, nil, "an event has over %d bytes", maxEvent)
		default:
			line = append(line, b)
		}
	}
}
