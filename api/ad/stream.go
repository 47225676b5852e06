package ad

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/roster-mesh/roster/api/response"
	"github.com/roster-mesh/roster/api/view"
	"github.com/roster-mesh/roster/directory/index"
	"github.com/roster-mesh/roster/directory/strictjson"
)

// A stream is one client's events. It is for the goroutine of its call.
type stream struct {
	cfg    *WatchConfig
	w      http.ResponseWriter
	rc     *http.ResponseController
	query  index.Query
	opt    view.Options
	show   index.Viewer
	stale  bool   // it may be stale
	filter string // the caller and the filters

	changed <-chan struct{}   // closed when policy decides otherwise than for watcher
	suffix  string            // the end of event ids: the filters and the policy
	mark    index.ResumeToken // after which the stream begins
	why     string            // of the next reset
	watcher *index.Watcher
	shown   int // registrations since the reset
	buf     []byte
}

// notePolicy remembers the version of policy that decides, before it is asked.
func (st *stream) notePolicy() {
	st.changed = st.cfg.Policy.Changed()
	st.suffix = fingerprint(st.cfg.Policy.Generation(), st.filter)
}

// open begins to watch after a mark.
func (st *stream) open(after index.ResumeToken) {
	st.watcher = st.cfg.Reader.View.Watch(st.query, st.show, after)
	st.watcher.Until(st.changed)
}

// restart starts the stream over, with a reset, if policy's decisions have changed. It
// reports whether they have.
func (st *stream) restart() bool {
	select {
	case <-st.changed:
	default:
		return false
	}

	st.watcher.Close()
	st.why = "policy"
	st.notePolicy()
	st.open(index.ResumeToken{})

	return true
}

// run sends events until ctx ends, or the client is too slow or gone, and returns why.
func (st *stream) run(ctx context.Context) error {
	checked := time.Now() // whether the node is stale
	for {
		if err := st.flush(); err != nil {
			return err
		}

		// If beat alone ends, no event came in time, and a heartbeat is due.
		beat, cancel := context.WithTimeout(ctx, heartbeat)
		events, err := st.watcher.Next(beat)
		cancel()

		switch {
		case ctx.Err() != nil:
			return st.end(context.Cause(ctx))
		case st.restart():
			continue
		case errors.Is(err, index.ErrBehind):
			return st.end(errSlow)
		case err != nil:
			st.appendHeartbeat()
		}

		for i := range events {
			st.appendEvent(&events[i])
		}

		// A busy stream sends no heartbeats, so staleness is checked by the clock.
		if now := time.Now(); now.Sub(checked) >= heartbeat {
			checked = now

			if !st.stale && st.cfg.Heard() > st.cfg.MaxStale {
				return st.end(errStale)
			}
		}
	}
}

// maxBuffer bounds the memory that a quiet stream keeps of a busy moment, in bytes.
const maxBuffer = 64 << 10

// flush sends the buffer. It fails if the client doesn't accept it in time.
func (st *stream) flush() error {
	if len(st.buf) == 0 {
		return nil
	}

	_ = st.rc.SetWriteDeadline(time.Now().Add(response.WriteTime)) // if the connection has deadlines
	_, err := st.w.Write(st.buf)

	st.buf = st.buf[:0]

	// The buffer of a burst is not kept for as long as the stream lasts.
	if cap(st.buf) > maxBuffer {
		st.buf = nil
	}

	err = errors.Join(err, st.rc.Flush())
	_ = st.rc.SetWriteDeadline(time.Time{}) // HTTP/2 ends a stream at its deadline, even if nothing is sent

	return err
}

// appendHeartbeat appends a comment, and the id to resume from.
func (st *stream) appendHeartbeat() {
	st.buf = append(st.buf, ": nothing new\n"...)
	st.appendID(st.watcher.ResumeToken())
	st.buf = append(st.buf, '\n')
}

// end tells the client why its stream ends, if it still listens.
func (st *stream) end(why error) error {
	if errors.Is(why, context.Canceled) {
		return why // the client ended it
	}

	st.beginEvent("end", index.ResumeToken{})
	st.buf = append(strictjson.AppendText(append(st.buf, '{'), "why", why.Error()), "}\n\n"...)

	return errors.Join(why, st.flush())
}

func (st *stream) appendID(m index.ResumeToken) {
	if !m.IsZero() {
		st.buf = append(st.buf, "id: "+m.String()+"."+st.suffix+"\n"...)
	}
}

func (st *stream) beginEvent(kind string, m index.ResumeToken) {
	st.buf = append(st.buf, "event: "+kind+"\n"...)
	st.appendID(m)
	st.buf = append(st.buf, "data: "...)
}

// appendEvent appends one event. Its data is JSON on one line.
func (st *stream) appendEvent(event *index.Event) {
	st.beginEvent(string(event.Kind), event.Resume)
	data := st.buf

	switch event.Kind {
	case index.EventReset:
		// An empty id has the client forget its last one, which has no use any more.
		data = append(data[:len(data)-len("data: ")], "id\ndata: "...)
		st.shown = 0
		data = append(strictjson.AppendText(append(data, '{'), "why", st.why), '}')
	case index.EventCurrent:
		data = append(strictjson.AppendUint(append(data, '{'), "agents", uint64(st.shown)), '}')
	case index.EventRemoved:
		st.shown--
		data = strictjson.AppendText(append(data, '{'), "agent", event.Entry.Agent)
		data = strictjson.AppendText(data, "href", st.cfg.Reader.Render.Href(event.Entry))
		data = strictjson.AppendText(data, "rid", event.Entry.RID.String())
		data = strictjson.AppendText(data, "origin", event.Entry.Origin.Name())
		data = append(strictjson.AppendText(data, "why", event.Reason), '}')
	default:
		if event.Kind == index.EventAdded {
			st.shown++
		}

		data = st.cfg.Reader.Render.AppendItem(data, event.Entry, st.opt)
	}

	st.buf = append(data, '\n', '\n')
}
