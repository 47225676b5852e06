package gateway

import (
	"errors"
	"io"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/roster-mesh/roster/directory/sse"
)

// maxEvent bounds the bytes of an event.
const maxEvent = 1 << 20

// An eventStream is a stream of events that are rewritten one by one.
type eventStream struct {
	io.Closer
	from    *sse.Reader
	most    int64                            // bytes of an event
	rewrite func(*sse.Event) ([]byte, error) // with an error the stream ends, io.EOF beside the last event
	ready   []byte
	err     error
}

// Read implements io.Reader: it returns as soon as there is an event.
func (s *eventStream) Read(data []byte) (int, error) {
	for len(s.ready) == 0 {
		if s.err != nil {
			return 0, s.err
		}

		s.ready, s.err = s.event()
	}

	n := copy(data, s.ready)
	s.ready = s.ready[n:]

	return n, nil
}

func (s *eventStream) event() ([]byte, error) {
	event, err := s.from.Next()
	if errors.Is(err, sse.ErrTooLong) {
		return nil, refuse(RuleSize, nil, "an event has over %d bytes", s.most)
	}

	if err != nil {
		return nil, err
	}

	return s.rewrite(event)
}

// results turns a stream of JSON-RPC responses into one of their results, event by
// event. An error ends it as an event of that name.
func results(stream io.ReadCloser) io.ReadCloser {
	return &eventStream{Closer: stream, from: sse.NewReader(stream, maxEvent, ""), most: maxEvent, rewrite: resultIn}
}

// resultIn returns an event with its data replaced by the result. Its other fields are passed on.
func resultIn(event *sse.Event) ([]byte, error) {
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
