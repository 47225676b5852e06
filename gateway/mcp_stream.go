package gateway

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/roster-mesh/roster/directory/sse"
)

// minRetry bounds from below the wait, in milliseconds, that a server may ask for before its stream
// is resumed: it can't have this node ask it without pause.
const minRetry = 100

// An eventBody is a stream of events in the form that the MCP library reads: it knows LF alone, no
// byte order mark, and no field without a colon. It also forgets the id of the last event if a
// resumed stream brings none.
type eventBody struct {
	io.Closer
	from  *sse.Reader
	most  int64
	ready []byte
	err   error
}

// newEventBody returns the events of body that follow the one with the id lastID, which may be "".
func newEventBody(body io.ReadCloser, most int64, lastID string) *eventBody {
	b := &eventBody{Closer: body, from: sse.NewReader(body, int(most), lastID), most: most}
	if lastID != "" {
		b.ready = fmt.Appendf(nil, "id: %s\n\n", lastID)
	}

	return b
}

// Read implements io.Reader: it returns as soon as there is an event.
func (b *eventBody) Read(data []byte) (int, error) {
	for len(b.ready) == 0 {
		if b.err != nil {
			return 0, b.err
		}

		b.ready, b.err = b.event()
	}

	n := copy(data, b.ready)
	b.ready = b.ready[n:]

	return n, nil
}

func (b *eventBody) event() ([]byte, error) {
	event, err := b.from.Next()
	if errors.Is(err, sse.ErrTooLong) {
		return nil, refuse(RuleSize, nil, "an event has over %d bytes", b.most)
	}

	if err != nil {
		return nil, err
	}

	var out []byte
	if event.ID != "" {
		out = fmt.Appendf(out, "id: %s\n", event.ID)
	}

	if event.Name != "" {
		out = fmt.Appendf(out, "event: %s\n", event.Name)
	}

	for line := range bytes.Lines(event.Others) {
		value, is := bytes.CutPrefix(bytes.TrimSpace(line), []byte("retry:"))
		if wait, err := strconv.ParseUint(string(bytes.TrimSpace(value)), 10, 31); is && err == nil {
			out = fmt.Appendf(out, "retry: %d\n", max(wait, minRetry))
		}
	}

	if event.HasData {
		out = fmt.Appendf(out, "data: %s\n", bytes.ReplaceAll(event.Data, []byte{'\n'}, []byte("\ndata: ")))
	}

	return append(out, '\n'), nil
}
