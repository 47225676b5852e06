package gateway

import (
	"bytes"
	"fmt"
	"io"
	"strconv"

	"github.com/roster-mesh/roster/directory/sse"
)

// minRetry bounds from below the wait, in milliseconds, that a server may ask for before its stream
// is resumed: it can't have this node ask it without pause.
const minRetry = 100

// newEventBody returns the events of body that follow the one with the id lastID, which may be "", in the
// form that the MCP library reads: it knows LF alone, no byte order mark, and no field without a colon. It
// also forgets the id of the last event if a resumed stream brings none.
func newEventBody(body io.ReadCloser, most int64, lastID string) *eventStream {
	b := &eventStream{Closer: body, from: sse.NewReader(body, int(most), lastID), most: most, rewrite: plainEvent}
	if lastID != "" {
		b.ready = fmt.Appendf(nil, "id: %s\n\n", lastID)
	}

	return b
}

func plainEvent(event *sse.Event) ([]byte, error) {
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
