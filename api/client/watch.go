package client

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/directory/sse"
)

// idleTimeout is the longest time in which a stream may bring nothing, heartbeats included.
const idleTimeout = 3 * wire.Heartbeat

// maxEvent bounds an event, in bytes: an item of a lookup is smaller.
const maxEvent = 1 << 20

// errIdle is the end of a stream on which nothing comes any more.
var errIdle = fmt.Errorf("nothing came for %s, not even a heartbeat", idleTimeout)

// A Watch is a stream of the changes of a lookup's answer. It is for one goroutine,
// and must be closed.
type Watch struct {
	Header http.Header // of the answer

	ctx    context.Context // of the stream
	body   io.ReadCloser
	close  func()
	events *sse.Reader
}

// Kinds of events of a watch.
const (
	EventReset   = "reset"   // forget all items: the present state follows
	EventAdded   = "added"   // a registration that matches
	EventUpdated = "updated" // a registration that was shown has changed
	EventRemoved = "removed" // a registration that was shown no longer matches, or has ended
	EventCurrent = "current" // the present state is complete
	EventEnd     = "end"     // the directory ends the stream
	EventLine    = "line"    // of FollowAudit: a line of the audit log
	EventFault   = "fault"   // of FollowAudit: lines don't follow each other, for the reason Why
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
	Why     string   // of reset, removed, end and fault
}

// Watch follows the answer of a lookup with these filters, its pages aside: the
// state after a reset event, then each change. With the ID of an event of an
// earlier Watch it resumes after that event, or begins again with a reset if the
// node can't: there is never a gap. ctx ends the stream.
func (c *Client) Watch(ctx context.Context, opt LookupOptions, lastID string) (*Watch, error) {
	opt.Count = 0
	opt.Page = 0

	return c.stream(ctx, withQuery("/ad/watch", opt.query()), lastID)
}

// stream opens a stream of events.
func (c *Client) stream(ctx context.Context, target, lastID string) (*Watch, error) {
	q := &request{
		method: http.MethodGet, target: target, header: http.Header{},
		repeat: idempotent, unbounded: true,
	}
	q.header.Set("Accept", wire.MediaEvents)

	if lastID != "" {
		q.header.Set("Last-Event-ID", lastID)
	}

	ctx, end := context.WithCancelCause(ctx)

	// The stream has no time limit, so its silence is bounded: idleReader resets the timer.
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

	w.events = sse.NewReader(idleReader{w.body, quiet}, maxEvent, lastID)

	return w, nil
}

// Next waits for the next event. It returns io.EOF when the directory has ended
// the stream; the last event says why.
func (w *Watch) Next() (*WatchEvent, error) {
	for {
		read, err := w.events.Next()
		if err != nil {
			return nil, w.cause(err)
		}

		if !read.HasData { // a heartbeat
			continue
		}

		event := &WatchEvent{Kind: cmp.Or(read.Name, "message"), ID: read.ID, Data: read.Data}
		if err := event.parse(); err != nil {
			return nil, w.cause(err)
		}

		return event, nil
	}
}

// ID returns the id with which Watch resumes after the last event, which heartbeats
// advance; empty before the state is complete.
func (w *Watch) ID() string { return w.events.LastID() }

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
