package gateway

import (
	"errors"
	"io"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/roster-mesh/roster/directory/sse"
)

// maxEvent bounds the bytes of an event.
const maxEvent = 1 << 20

// results turns a stream of JSON-RPC responses into one of their results, event by
// event. An error ends it as an event of that name.
func results(stream io.ReadCloser) io.ReadCloser {
	return &resultReader{from: sse.NewReader(stream, maxEvent, ""), Closer: stream}
}

type resultReader struct {
	io.Closer
	from  *sse.Reader
	ready []byte
	err   error
}

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

// event returns the next event with its data replaced by the result. Its other fields are
// passed on. With an error the stream ends, io.EOF beside the event.
func (r *resultReader) event() ([]byte, error) {
	event, err := r.from.Next()
	if errors.Is(err, sse.ErrTooLong) {
		return nil, refuse(RuleSize, nil, "an event has over %d bytes", maxEvent)
	}

	if err != nil {
		return nil, err
	}

	out := event.Others
	if !event.HasData {
		return append(out, '\n'), nil
	}

	result, err := resultOf(event.Data)
	if err != nil {
		return append(append([]byte("event: error\ndata: "), outputOf(nil, err)...), "\n\n"...), io.EOF
	}

	value := jsontext.Value(result)

	// Each line break in the value would begin another field of the event.
	if err := value.Compact(); err != nil {
		return nil, err
	}

	return append(append(append(out, "data: "...), value...), "\n\n"...), nil
}
