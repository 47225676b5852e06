package operator

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/roster-mesh/roster/api/request"
	"github.com/roster-mesh/roster/api/response"
	"github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/strictjson"
)

// Bounds of the audit log's route.
const (
	maxAuditLines     = 1000 // on a page
	maxAuditFollowers = 16   // at the node
	maxAuditFilter    = 2048 // bytes
)

// auditParams are the parameters of the audit log's route.
var auditParams = []string{"since", "who", "what", "after", "limit", "follow"}

// A Trail is a node's audit log.
type Trail interface {
	Read(context.Context, directory.AuditQuery) (directory.AuditPage, error)
	// Head returns the number of the last line and its hash.
	Head() (number uint64, head directory.Hash)
	// Grown returns a channel that is closed once there are more lines.
	Grown() <-chan struct{}
}

// An Audit answers questions about the node's audit log.
type Audit struct {
	node      string
	trail     Trail
	followers chan struct{} // has a place for each
	stopping  chan struct{}
	stop      func()
}

// NewAudit returns an Audit of a node's trail.
func NewAudit(node string, trail Trail) *Audit {
	a := &Audit{
		node:      node,
		trail:     trail,
		followers: make(chan struct{}, maxAuditFollowers),
		stopping:  make(chan struct{}),
	}
	a.stop = sync.OnceFunc(func() { close(a.stopping) })

	return a
}

// Drain ends the streams of followers.
func (a *Audit) Drain() { a.stop() }

// Read answers GET /v1/operator/audit with a page of the log, or with a stream of its
// lines.
func (a *Audit) Read(w http.ResponseWriter, call *request.Call) error {
	query, follow, err := parseAuditQuery(call)
	if err != nil {
		return err
	}

	if follow && call.Method != http.MethodHead {
		return a.follow(w, call, query)
	}

	page, err := a.trail.Read(call.Context(), query)
	if err != nil {
		return err
	}

	response.NoStore(w)

	return response.Answer(w, call, "application/json", append(a.appendPage(nil, page), '\n'))
}

func parseAuditQuery(call *request.Call) (query directory.AuditQuery, follow bool, err error) {
	values, err := call.Params.Decode(auditParams)
	if err != nil {
		return query, false, err
	}

	query.Who, query.What = values.Get("who"), values.Get("what")
	if len(query.Who) > maxAuditFilter || len(query.What) > maxAuditFilter {
		return query, false, directory.Refuse(directory.BadQuery, "who and what have at most %d bytes", maxAuditFilter)
	}

	if text := values.Get("since"); text != "" {
		if query.Since, err = directory.ParseInstant(text); err != nil {
			return query, false, directory.Refuse(directory.BadQuery,
				"since must be a time such as 2026-01-02T15:04:05Z, got %.64q", text)
		}
	}

	if text := values.Get("after"); text != "" {
		if query.After, err = strconv.ParseUint(text, 10, 64); err != nil {
			return query, false, directory.Refuse(directory.BadQuery, "after must be a line's number, got %.64q", text)
		}
	}

	query.Limit = maxAuditLines
	if text := values.Get("limit"); text != "" {
		query.Limit, err = strconv.Atoi(text)
		if err != nil || query.Limit < 1 || query.Limit > maxAuditLines {
			return query, false, directory.Refuse(directory.BadQuery, "limit must be 1 to %d, got %.64q", maxAuditLines,
				text)
		}
	}

	switch text := values.Get("follow"); text {
	case "", "false":
	case "true":
		follow = true
	default:
		return query, false, directory.Refuse(directory.BadQuery, "follow must be true or false, got %.64q", text)
	}

	return query, follow, nil
}

// appendPage appends a wire.AuditPage. Lines are passed on as they were written, so that
// their hashes hold.
func (a *Audit) appendPage(data []byte, page directory.AuditPage) []byte {
	data = strictjson.AppendText(append(data, '{'), "node", a.node)

	data = strictjson.AppendRaw(data, "lines", []byte("["))
	for i, line := range page.Lines {
		if i > 0 {
			data = append(data, ',')
		}

		data = append(data, line...)
	}

	data = append(data, ']')

	if page.Last > 0 {
		data = strictjson.AppendUint(data, "first", page.First)
		data = strictjson.AppendUint(data, "last", page.Last)
		data = strictjson.AppendText(data, "head", page.Head.String())
	}

	if !page.Prev.IsZero() {
		data = strictjson.AppendText(data, "prev", page.Prev.String())
	}

	data = strictjson.AppendRaw(data, "more", strconv.AppendBool(nil, page.More))

	if len(page.Faults) > 0 {
		data = strictjson.AppendRaw(data, "faults", strictjson.AppendStrings(nil, page.Faults))
	}

	return append(data, '}')
}

var (
	errAuditStopping = errors.New("the node is stopping")
	errAuditUntil    = errors.New("the credential has expired")
)

// follow streams the selected lines as they are written, as server-sent events: line;
// fault, if lines don't follow each other; and end, with the reason as why. Without since
// and after it begins with the next line. A client resumes after the number n of the last
// line that it got.
func (a *Audit) follow(w http.ResponseWriter, call *request.Call, query directory.AuditQuery) error {
	select {
	// A follower reads the disk for as long as it stays, so few may follow at once.
	case a.followers <- struct{}{}:
		defer func() { <-a.followers }()
	default:
		return directory.Refuse(directory.Unavailable,
			"%d callers follow the audit log of this node, the most that may; read its pages", maxAuditFollowers)
	}

	if query.After == 0 && query.Since.IsZero() {
		query.After, _ = a.trail.Head()
	}

	w.Header().Set("Content-Type", wire.MediaEvents)
	response.NoStore(w)

	events := auditEvents{w: w, rc: http.NewResponseController(w)}
	if why := a.stream(call, query, &events); why != nil {
		events.end(why)
	}

	return nil // the client got the reason, or is gone
}

// stream sends lines until the client is gone, which is no error, or the stream has to end.
func (a *Audit) stream(call *request.Call, query directory.AuditQuery, events *auditEvents) error {
	ctx := call.Context()

	if until := call.Credential.Until; !until.IsZero() {
		var cancel context.CancelFunc

		ctx, cancel = context.WithDeadlineCause(ctx, until, errAuditUntil)
		defer cancel()
	}

	beat := time.NewTicker(wire.Heartbeat)
	defer beat.Stop()

	for {
		// The channel is taken before the lines are read, so each later line closes it.
		grown := a.trail.Grown()

		page, err := a.trail.Read(ctx, query)
		if err != nil {
			return endOf(ctx, err)
		}

		query.After = max(query.After, page.Last)

		if events.page(page) != nil {
			return nil
		}

		if page.More {
			continue
		}

		select {
		case <-grown:
		case <-beat.C:
			if events.heartbeat() != nil {
				return nil
			}
		case <-a.stopping:
			return errAuditStopping
		case <-ctx.Done():
			return endOf(ctx, nil)
		}
	}
}

// endOf returns the reason for the end of a stream; nil if the client ended it.
func endOf(ctx context.Context, err error) error {
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errAuditUntil):
		return cause
	case cause != nil:
		return nil
	}

	return err
}

// auditEvents writes server-sent events.
type auditEvents struct {
	w  http.ResponseWriter
	rc *http.ResponseController
}

func (e *auditEvents) page(page directory.AuditPage) error {
	var data []byte

	for _, line := range page.Lines {
		data = append(data, "event: line\ndata: "...)
		data = append(append(data, line...), '\n', '\n')
	}

	for _, text := range page.Faults {
		data = append(data, "event: fault\ndata: {"...)
		data = append(strictjson.AppendText(data, "why", text), "}\n\n"...)
	}

	if data == nil {
		return nil
	}

	return e.send(data)
}

func (e *auditEvents) heartbeat() error { return e.send([]byte(": nothing new\n\n")) }

func (e *auditEvents) end(why error) {
	data := strictjson.AppendText([]byte("event: end\ndata: {"), "why", why.Error())
	_ = e.send(append(data, "}\n\n"...)) // else the client is gone
}

// send fails if the client doesn't accept the events in time.
func (e *auditEvents) send(data []byte) error {
	_ = e.rc.SetWriteDeadline(time.Now().Add(response.WriteTime)) // if the connection has deadlines
	_, err := e.w.Write(data)
	err = errors.Join(err, e.rc.Flush())

	// HTTP/2 ends a stream at its deadline, even if nothing is sent.
	_ = e.rc.SetWriteDeadline(time.Time{})

	return err
}
