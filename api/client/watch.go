package client

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/roster-mesh/roster/api/wire"
)

// idleTimeout is the longest time in which a stream may bring nothing, heartbeats included.
const idleTimeout = 3 * wire.Heartbeat

// maxEventLine bounds a line of a stream of events, in bytes: an item of a lookup
// is smaller.
const maxEventLine = 1 << 20

// errIdle is the end of a stream on which nothing comes any more.
var errIdle = fmt.Errorf("nothing came for %s, not even a heartbeat", idleTimeout)

// A Watch is a stream of the changes of a lookup's answer. It is for one goroutine,
// and must be closed.
type Watch struct {
	Header http.Header // of the answer

	ctx    context.Context // of the stream
	body   io.ReadCloser
	close  func()
	events eventReader
}

// Kinds of events of a watch.
const (
	EventReset   = "reset"   // forget all items: the present state follows
	EventAdded   = "added"   // a registration that matches
	EventUpdated = "updated" // a registration that was shown has changed
	EventRemoved = "removed" // a registration that was shown no longer matches, or has ended
	EventCurrent = "current" // the present state is complete
	EventEnd     = "end"     // the directory ends the stream
)

// A WatchEvent is one event of a Watch.
type WatchEvent struct {
	// Kind is one of the kinds above; ignore others.
	Kind string
	// ID is where Watch resumes after this event.
	ID string
	// Data is the event's JSON object as it came.
	Data []byte

	Item    *Item    // of added and updated
	Removed *Removal // of removed
	Why     string   // of reset, removed and end
}

// Watch follows the answer of a lookup with these filters, its pages aside: the
// state after a reset event, then each change. With the ID of an event of an
// earlier Watch it resumes after that event, or begins again with a reset if the
// node can't: there is never a gap. ctx ends the stream.
func (c *Client) Watch(ctx context.Context, opt LookupOptions, lastID string) (*Watch, error) {
	opt.Count = 0
	opt.Page = 0
	q := &request{
		method: http.MethodGet, target: withQuery("/ad/watch", opt.query()), header: http.Header{},
		repeat: idempotent, unbounded: true,
	}
	q.header.Set("Accept", wire.MediaEvents)

	if lastID != "" {
		q.header.Set("Last-Event-ID", lastID)
	}

	ctx, end := context.WithCancelCause(ctx)
	quiet := time.AfterFunc(idleTimeout, func() { end(errIdle) })
	w := &Watch{ctx: ctx, close: func() {
		quiet.Stop()
		end(nil)
	}}

	err := c.send(ctx, q, func(resp *http.Response) error {
		media := resp.Header.Get("Content-Type")
		if resp.StatusCode != http.StatusOK || !strings.HasPrefix(media, wire.MediaEvents) {
			defer func() { _ = resp.Body.Close() }()
			return refusalOf(resp)
		}

		w.Header = resp.Header
		w.body = resp.Body

		return nil
	})
	if err != nil {
		err = w.cause(err)
		w.close()

		return nil, err
	}

	w.events = eventReader{r: bufio.NewReaderSize(idleReader{w.body, quiet}, 16<<10), id: lastID}

	return w, nil
}

// Next waits for the next event. It returns io.EOF when the directory has ended
// the stream; the last event says why.
func (w *Watch) Next() (*WatchEvent, error) {
	event, err := w.events.next()
	if err == nil {
		err = event.parse()
	}

	if err != nil {
		return nil, w.cause(err)
	}

	return event, nil
}

// ID returns the id with which Watch resumes after the last event, which heartbeats
// advance; empty before the state is complete.
func (w *Watch) ID() string { return w.events.id }

// Close ends the stream.
func (w *Watch) Close() error {
	w.close()
	return w.body.Close()
}

// cause returns why the stream ended, rather than its effect on the reader.
func (w *Watch) cause(err error) error {
	if cause := context.Cause(w.ctx); cause != nil {
		return cause
	}

	return err
}

// parse reads the fields of an event from its data.
func (e *WatchEvent) parse() (err error) {
	switch e.Kind {
	case EventAdded, EventUpdated:
		e.Item = &Item{}
		err = json.Unmarshal(e.Data, e.Item)
	case EventRemoved:
		e.Removed = &Removal{}
		err = json.Unmarshal(e.Data, e.Removed)
		e.Why = e.Removed.Why
	default:
		var data struct {
			Why string `json:"why"`
		}
		err = json.Unmarshal(e.Data, &data)
		e.Why = data.Why
	}

	if err != nil {
		return fmt.Errorf("the event %q is not what a directory sends: %w", e.Kind, err)
	}

	return nil
}

// An idleReader resets a timer with every byte that comes.
type idleReader struct {
	r     io.Reader
	quiet *time.Timer
}

func (l idleReader) Read(b []byte) (int, error) {
	n, err := l.r.Read(b)
	if n > 0 {
		l.quiet.Reset(idleTimeout)
	}

	return n, err
}

// An eventReader reads an event stream (the HTML standard, 9.2.6). Lines end with
// LF or CRLF here; no server writes CR alone.
type eventReader struct {
	r  *bufio.Reader
	id string // the last event's
}

var errLongEvent = errors.New("an event is larger than a directory's can be")

// next reads up to the next event that has data.
func (r *eventReader) next() (*WatchEvent, error) {
	event, id := &WatchEvent{Kind: "message"}, r.id
	for {
		line, err := r.line()
		if err != nil {
			return nil, err
		}

		if len(line) == 0 {
			if r.id = id; event.Data != nil {
				event.ID = id
				return event, nil
			}

			event = &WatchEvent{Kind: "message"}

			continue
		}

		name, value, _ := strings.Cut(string(line), ":")

		value = strings.TrimPrefix(value, " ")
		switch name {
		case "event":
			event.Kind = value
		case "data":
			if event.Data != nil {
				event.Data = append(event.Data, '\n')
			}

			if event.Data = append(event.Data, value...); len(event.Data) > maxEventLine {
				return nil, errLongEvent
			}
		case "id":
			if !strings.ContainsRune(value, 0) {
				id = value
			}
		}
	}
}

// line reads one line without its end.
func (r *eventReader) line() ([]byte, error) {
	var line []byte
	for {
		part, err := r.r.ReadSlice('\n')

		line = append(line, part...)
		switch {
		case len(line) > maxEventLine:
			return nil, errLongEvent
		case err == nil:
			return bytes.TrimSuffix(bytes.TrimSuffix(line, []byte{'\n'}), []byte{'\r'}), nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err // a line must have an end
		}
	}
}
