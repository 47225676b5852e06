package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/directory/index"
	"github.com/roster-mesh/roster/directory/strictjson"
)

// The pace of a stream of events.
const (
	// heartbeat is how often something is sent at least, so that both ends and what
	// lies between know that the other one is there.
	heartbeat = wire.Heartbeat
	// writeTime is how long a client may take to make room for what is sent.
	writeTime = 10 * time.Second
	// retryTime is what a browser is asked to wait before it comes again.
	retryTime = 2 * time.Second
)

// The reasons for which the directory itself ends a stream: member why of its
// last event, end. The client comes again with Last-Event-ID, for credential with
// a newer one, for stopping and stale rather at another node.
const (
	EndSlow       = "slow"       // the client takes events more slowly than there are changes
	EndCredential = "credential" // the certificate by which the client was known has expired
	EndStopping   = "stopping"   // the node stops
	EndStale      = "stale"      // the leader was not heard for longer than default reads allow
)

var (
	errCredential = errors.New(EndCredential)
	errStopping   = errors.New(EndStopping)
	errStale      = errors.New(EndStale)
)

// watchParams are the parameters that a watch knows: a lookup's without its
// places in a listing.
var watchParams = []string{
	"agent", "protocol", "cap_name", "cap_type", "tag", "origin", "scope", "status", "language", "brief", "consistency",
}

// watch answers GET /ad/watch: what GET /ad/l answers for the same filters, and
// how it changes from then on, as server-sent events (the HTML standard, 9.2).
//
// added and updated have a lookup's item as data; removed has href, agent, rid,
// origin and why: removed, expired (by its origin's clock, at its deadline) or
// hidden (it is there, and no longer asked for or no longer for this caller).
// Applied in order to an empty set they make it what a lookup answers. A new
// deadline alone is no event, so that refreshes are none: expires_at is as of the
// item's last event, and what it names ends when removed comes, not before.
//
// A stream begins with reset: what the client has is to be forgotten, its last id
// too, and what is there follows as added, up to current. From there on every
// event has an id, and so has a heartbeat. A client that sends the last one as
// Last-Event-ID goes on behind it, with no reset, no gap and nothing twice: at the
// same node, while that runs, for the same filters and the same caller, and while
// the node still has the changes since: the last 16384, and for five minutes
// behind the last watcher. Everywhere else it gets reset and the state; the id says
// which node's it is, so nothing is ever taken for what it isn't. Where policy decides
// anew what the caller may see, the stream itself begins anew, with reset.
//
// The last event of a stream that the directory ends is end, whose why says the
// reason.
func (s *Server) watch(w http.ResponseWriter, c *call) error {
	st, err := s.newStream(w, c)
	if err != nil {
		return err
	}
	leave, err := s.watches.enter(callerOf(c))
	if err != nil {
		return err
	}
	defer leave()
	if !c.credential.Proof.IsZero() { // it holds for a minute, and the stream for as long as the token
		if err := s.cfg.Spend(c.Context(), c.credential.Proof, c.credential.ProofUntil); err != nil {
			return err
		}
	}
	ctx, cancel := s.watchContext(c)
	defer cancel()
	st.query.Charge = s.spendSlowly(ctx, c, Reads)
	st.open(st.mark)
	defer func() { st.watcher.Close() }()

	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // some proxies collect what is not to be collected
	st.buf = fmt.Appendf(nil, "retry: %d\n\n", retryTime.Milliseconds())
	err = st.run(ctx)
	s.log.Debug("a watch has ended", "request_id", c.requestID, "caller", c.id.String(), "why", err)
	return nil // the client knows, or is gone
}

// watchContext ends with the request, with the credential that came with it, and
// when the node stops.
func (s *Server) watchContext(c *call) (context.Context, context.CancelFunc) {
	ctx, end := context.WithCancelCause(c.Context())
	cancel := func() {}
	if until := c.credential.Until; !until.IsZero() {
		ctx, cancel = context.WithDeadlineCause(ctx, until, errCredential)
	}
	detach := context.AfterFunc(s.watches.stopping, func() { end(errStopping) })
	return ctx, func() {
		detach()
		cancel()
		end(nil)
	}
}

// A stream is one client's events.
type stream struct {
	server  *Server
	w       http.ResponseWriter
	rc      *http.ResponseController
	query   index.Query
	look    look
	stale   bool // it may be
	show    index.Viewer
	changed <-chan struct{} // closed when policy's answers are others than watcher's
	filters string          // by whom and for what
	asked   string          // filters, and by which policy: the end of the events' ids
	mark    index.ResumeToken
	why     string // of the next reset
	watcher *index.Watcher
	told    int // registrations since the reset
	buf     []byte
}

// newStream reads what a request asks to watch.
func (s *Server) newStream(w http.ResponseWriter, c *call) (*stream, error) {
	values, err := c.params.decode(watchParams)
	if err != nil {
		return nil, err
	}
	st := &stream{server: s, w: w, rc: http.NewResponseController(w), look: look{registrant: !c.id.IsZero()}, stale: values.Get("consistency") == "stale"}
	if st.query, err = index.ParseQuery(values); err != nil {
		return nil, err
	}
	if st.look.brief, err = parseBrief(values["brief"]); err != nil {
		return nil, err
	}
	st.show, st.filters, st.why = s.showTo(c), c.id.String()+"\n"+values.Encode(), "new"
	st.judged()
	last := c.Header.Get("Last-Event-ID")
	if last != "" {
		st.why = "lost"
	}
	if mark, asked, ok := cutLast(last, "."); ok && asked == st.asked {
		st.mark = index.ParseResumeToken(mark)
	}
	return st, nil
}

// judged notes which policy decides what is shown from here on, before it is asked.
func (st *stream) judged() {
	policy := st.server.cfg.Policy
	st.changed = policy.Changed()
	st.asked = hash8(fmt.Appendf(nil, "%d\n%s", policy.Generation(), st.filters))
}

// open begins to watch behind a mark.
func (st *stream) open(behind index.ResumeToken) {
	st.watcher = st.server.cfg.View.Watch(st.query, st.show, behind)
	st.watcher.Until(st.changed)
}

// anew has the client forget what it was told, where policy's answers are others
// than those by which that was shown. It reports whether they are.
func (st *stream) anew() bool {
	select {
	case <-st.changed:
	default:
		return false
	}
	st.watcher.Close()
	st.why = "policy"
	st.judged()
	st.open(index.ResumeToken{})
	return true
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// run sends events until ctx ends, or the client is too slow or gone, and returns
// why.
func (st *stream) run(ctx context.Context) error {
	judged := time.Now()
	for {
		if err := st.flush(); err != nil {
			return err
		}
		beat, cancel := context.WithTimeout(ctx, heartbeat)
		events, err := st.watcher.Next(beat)
		cancel()
		switch {
		case ctx.Err() != nil:
			return st.end(context.Cause(ctx))
		case st.anew():
			continue
		case errors.Is(err, index.ErrBehind):
			return st.end(errors.New(EndSlow))
		case err != nil:
			st.beat()
		}
		for i := range events {
			st.event(&events[i])
		}
		if now := time.Now(); now.Sub(judged) >= heartbeat {
			if judged = now; !st.stale && st.server.cfg.Registry.Heard() > st.server.cfg.MaxStale {
				return st.end(errStale)
			}
		}
	}
}

// flush sends what was collected. It fails where the client makes no room for it.
func (st *stream) flush() error {
	if len(st.buf) == 0 {
		return nil
	}
	_ = st.rc.SetWriteDeadline(time.Now().Add(writeTime)) // where the connection has deadlines
	_, err := st.w.Write(st.buf)
	st.buf = st.buf[:0]
	if cap(st.buf) > maxStreamBuffer {
		st.buf = nil
	}
	err = errors.Join(err, st.rc.Flush())
	_ = st.rc.SetWriteDeadline(time.Time{}) // HTTP/2 ends a stream at its deadline, quiet or not
	return err
}

// maxStreamBuffer bounds what a quiet stream keeps of a busy moment, in bytes.
const maxStreamBuffer = 64 << 10

// beat says that nothing is to say, and where the client is.
func (st *stream) beat() {
	st.buf = append(st.buf, ": nothing new\n"...)
	st.id(st.watcher.ResumeToken())
	st.buf = append(st.buf, '\n')
}

// end tells the client why its stream ends, if it still listens.
func (st *stream) end(why error) error {
	if errors.Is(why, context.Canceled) {
		return why // it was the client
	}
	st.begin("end", index.ResumeToken{})
	st.buf = append(strictjson.AppendText(append(st.buf, '{'), "why", why.Error()), "}\n\n"...)
	return errors.Join(why, st.flush())
}

func (st *stream) id(m index.ResumeToken) {
	if !m.IsZero() {
		st.buf = append(st.buf, "id: "+m.String()+"."+st.asked+"\n"...)
	}
}

func (st *stream) begin(kind string, m index.ResumeToken) {
	st.buf = append(st.buf, "event: "+kind+"\n"...)
	st.id(m)
	st.buf = append(st.buf, "data: "...)
}

// event writes one event. Its data is JSON on one line.
func (st *stream) event(e *index.Event) {
	st.begin(string(e.Kind), e.Resume)
	s, b := st.server, st.buf
	switch e.Kind {
	case index.EventReset:
		b = append(b[:len(b)-len("data: ")], "id\ndata: "...) // the one that the client has is of no use any more
		st.told = 0
		b = append(strictjson.AppendText(append(b, '{'), "why", st.why), '}')
	case index.EventCurrent:
		b = append(strictjson.AppendUint(append(b, '{'), "agents", uint64(st.told)), '}')
	case index.EventRemoved:
		st.told--
		b = strictjson.AppendText(append(b, '{'), "agent", e.Entry.Agent)
		b = strictjson.AppendText(b, "href", s.href(e.Entry))
		b = strictjson.AppendText(b, "rid", e.Entry.RID.String())
		b = strictjson.AppendText(b, "origin", e.Entry.Origin.Name())
		b = append(strictjson.AppendText(b, "why", e.Reason), '}')
	default:
		if e.Kind == index.EventAdded {
			st.told++
		}
		b = s.appendItem(b, e.Entry, st.look)
	}
	st.buf = append(b, '\n', '\n')
}
