package api

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
	"github.com/go-json-experiment/json/jsontext"

	"github.com/roster-mesh/roster/directory"
)

// silence is how long a client bears a stream without a byte, heartbeats too.
const silence = 3 * heartbeat

// maxEventLine bounds a line of a stream of events, in bytes: an item of a lookup
// is smaller.
const maxEventLine = 1 << 20

// errSilent is the end of a stream on which nothing comes any more.
var errSilent = fmt.Errorf("nothing came for %s, not even a heartbeat", silence)

// A Watch is a stream of what changes in a lookup's answer. It is for one
// goroutine, and must be closed.
type Watch struct {
	Header http.Header // of the answer

	ctx    context.Context // of the stream
	body   io.Closer
	close  func()
	events eventReader
}

// A WatchEvent is one event of a Watch.
type WatchEvent struct {
	Kind string         // reset, added, updated, removed, current or end
	ID   string         // what Watch takes to go on behind it; the last one that was sent
	Data jsontext.Value // as it came: one JSON object

	Agent   *Registration // of added and updated: an item of a lookup
	Removed *Removal      // of removed
	Why     string        // of reset, removed and end
}

// A Removal is what a Watch tells of a registration that went.
type Removal struct {
	Agent  string `json:"agent"`
	Href   string `json:"href"`
	RID    string `json:"rid"`
	Origin string `json:"origin"`
	Why    string `json:"why"` // removed, expired or hidden
}

// Watch follows what a lookup with these filters answers, its pages aside: the
// state behind a reset event, then each change. With the ID of an event of an
// earlier Watch it goes on behind that, or begins anew with a reset where the node
// can't: there is never a gap. ctx ends the stream.
func (c *Client) Watch(ctx context.Context, opt LookupOptions, lastID string) (*Watch, error) {
	opt.Count, opt.Page = 0, 0
	ctx, end := context.WithCancelCause(ctx)
	quiet := time.AfterFunc(silence, func() { end(errSilent) })
	w := &Watch{ctx: ctx, close: func() {
		quiet.Stop()
		end(nil)
	}}
	resp, err := c.stream(ctx, withQuery("/ad/watch", opt.query()), lastID) //nolint:bodyclose // the Watch closes it
	if err != nil {
		err = w.why(err)
		w.close()
		return nil, err
	}
	w.Header, w.body = resp.Header, resp.Body
	w.events = eventReader{r: bufio.NewReaderSize(lively{resp.Body, quiet}, 16<<10), id: lastID}
	return w, nil
}

// stream sends the request of a stream and takes its header.
func (c *Client) stream(ctx context.Context, target, lastID string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+target, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "text/event-stream")
	if lastID != "" {
		req.Header.Set("Last-Event-ID", lastID)
	}
	resp, err := c.patient().Do(req)
	if err != nil {
		return nil, err
	}
	if media := resp.Header.Get("Content-Type"); resp.StatusCode == http.StatusOK && strings.HasPrefix(media, "text/event-stream") {
		return resp, nil
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode < 300 {
		return nil, fmt.Errorf("%w: it is no stream of events but %q", ErrAnswer, resp.Header.Get("Content-Type"))
	}
	return nil, refusalOf(resp)
}

// Next waits for the next event. It returns io.EOF when the directory has ended
// the stream; the last event says why.
func (w *Watch) Next() (*WatchEvent, error) {
	e, err := w.events.next()
	if err == nil {
		err = e.read()
	}
	if err != nil {
		return nil, w.why(err)
	}
	return e, nil
}

// ID returns what Watch takes to go on behind what was read, which heartbeats
// carry on; empty before the state is complete.
func (w *Watch) ID() string { return w.events.id }

// Close ends the stream.
func (w *Watch) Close() error {
	w.close()
	return w.body.Close()
}

// why returns what ended the stream, rather than what that did to the reading.
func (w *Watch) why(err error) error {
	if cause := context.Cause(w.ctx); cause != nil {
		return cause
	}
	return err
}

// read takes what is known of an event's data out of it.
func (e *WatchEvent) read() (err error) {
	switch e.Kind {
	case string(directory.EventAdded), string(directory.EventUpdated):
		e.Agent = &Registration{}
		err = json.Unmarshal(e.Data, e.Agent)
	case string(directory.EventRemoved):
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

// A lively reader puts a timer off whenever something comes.
type lively struct {
	r     io.Reader
	quiet *time.Timer
}

func (l lively) Read(b []byte) (int, error) {
	n, err := l.r.Read(b)
	if n > 0 {
		l.quiet.Reset(silence)
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
	e, id := &WatchEvent{Kind: "message"}, r.id
	for {
		line, err := r.line()
		if err != nil {
			return nil, err
		}
		if len(line) == 0 {
			if r.id = id; e.Data != nil {
				e.ID = id
				return e, nil
			}
			e = &WatchEvent{Kind: "message"}
			continue
		}
		name, value, _ := strings.Cut(string(line), ":")
		value = strings.TrimPrefix(value, " ")
		switch name {
		case "event":
			e.Kind = value
		case "data":
			if e.Data != nil {
				e.Data = append(e.Data, '\n')
			}
			if e.Data = append(e.Data, value...); len(e.Data) > maxEventLine {
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
			return nil, err // what has no end is no line
		}
	}
}
