package api

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/roster-mesh/roster/api/request"
	"github.com/roster-mesh/roster/directory"
)

// logCall logs a call: one that succeeded at the level of its route, and one that was
// refused at Info, or higher if the fault is the node's. Calls that the audit log has are
// quiet. Of refused ones a few are logged, and the others by their number: a caller that
// floods the node must not flood its log.
func (s *Server) logCall(call *request.Call, status int, bytes int64, took time.Duration) {
	level, message := call.Level, "request"

	switch {
	case status >= http.StatusBadRequest:
		level, message = s.refusalLevel(call, status)
	case call.Audited:
		level = quiet
	}

	ctx := call.Request.Context()
	if !s.log.Enabled(ctx, level) {
		return
	}

	// Only a line that would be written counts against the rate of refusals.
	before := 0

	if status >= http.StatusBadRequest && level > quiet {
		var logged bool
		if before, logged = s.refusals.take(call, status); !logged {
			return
		}
	}

	attrs := []slog.Attr{slog.String("method", methodLabel(call.Method))}
	if call.Route != "" {
		attrs = append(attrs, slog.String("route", call.Route))
	}

	attrs = append(attrs, slog.Int("status", status), slog.Int64("bytes", bytes),
		slog.Float64("took_ms", float64(took.Microseconds())/1000), slog.String("request_id", call.RequestID))
	if !call.Anonymous() {
		attrs = append(attrs, slog.String("caller", call.Identity.String()))
	}

	if before > 0 {
		attrs = append(attrs, slog.Int("repeated", before))
	}

	// The cause of a node's fault is for its operator. A caller's mistake is explained in the answer.
	if level > notable && call.Refusal != nil {
		refused := call.Refusal.Err

		attrs = append(attrs, slog.String("problem", string(refused.Problem)), slog.String("detail", refused.Detail))
		if refused.Err != nil {
			attrs = append(attrs, slog.Any("err", refused.Err))
		}
	}

	s.log.LogAttrs(ctx, level, message, attrs...)
}

// refusalLevel returns the level and the message of a call that was refused. The overload
// logs those that it sheds itself. A node that stops leaves callers to the other nodes.
func (s *Server) refusalLevel(call *request.Call, status int) (slog.Level, string) {
	switch {
	case status == http.StatusInternalServerError:
		return slog.LevelError, "request failed"
	case call.Refusal != nil && call.Refusal.Err.Problem == directory.Overloaded:
		return quiet, "request"
	case status == http.StatusServiceUnavailable && s.draining.Load():
		return notable, "request"
	case status > http.StatusNotImplemented:
		return slog.LevelWarn, "request not answered"
	}

	return notable, "request"
}

const (
	refusalsEach  = 2                // calls of one status that are logged in a second
	refusalsEvery = 10 * time.Second // after which the number of the others is logged

	repeatedFor = time.Hour // for which a read that is refused alike is not logged again
	repeatsMost = 1024      // reads that are remembered
)

// A refusalLog decides which refused calls are logged one by one, and logs how many others
// there were. It is safe for concurrent use.
type refusalLog struct {
	log *slog.Logger

	mu       sync.Mutex // guards the fields below
	byStatus map[int]*refusalCount
	byRead   map[refusedRead]*repetition
}

// A refusedRead is a read that a caller may repeat for ever, as pollers do.
type refusedRead struct {
	caller, route string
	status        int
}

// A repetition counts the refusals of a read since one was logged.
type repetition struct {
	logged  time.Time
	skipped int
}

// A refusalCount counts the refused calls with one status.
type refusalCount struct {
	second  time.Time // in which logged were logged
	logged  int
	omitted int // since their number was logged last
}

func newRefusalLog(log *slog.Logger) *refusalLog {
	return &refusalLog{log: log, byStatus: map[int]*refusalCount{}, byRead: map[refusedRead]*repetition{}}
}

// take reports whether a refused call is to be logged. It is not if the same read of the same
// caller was refused alike, and logged, within the last hour; before is how many such
// refusals were not logged before this one.
func (l *refusalLog) take(call *request.Call, status int) (before int, logged bool) {
	l.mu.Lock()
	defer l.mu.Unlock()

	now := time.Now()
	key := refusedRead{call.Identity.String(), call.Route, status}

	// Changes, faults of the node and anonymous reads are not compared with earlier ones.
	read := call.Method == http.MethodGet || call.Method == http.MethodHead
	if !read || status >= http.StatusInternalServerError || call.Anonymous() {
		return 0, l.allow(status, now)
	}

	known := l.byRead[key]
	if known != nil && now.Sub(known.logged) < repeatedFor {
		known.skipped++
		return 0, false
	}

	// A refusal that the rate keeps out is counted there, and may be logged the next time.
	if !l.allow(status, now) {
		return 0, false
	}

	if known != nil {
		before = known.skipped
	} else if len(l.byRead) >= repeatsMost {
		l.forget()
	}

	l.byRead[key] = &repetition{logged: now}

	return before, true
}

// forget drops the reads that are remembered. Their refusals that were not logged yet are
// counted with the others.
func (l *refusalLog) forget() {
	for key, known := range l.byRead {
		if known.skipped > 0 {
			l.omit(key.status, known.skipped)
		}
	}

	clear(l.byRead)
}

// allow reports whether a call that was refused with a status may be logged, and counts it
// if not.
func (l *refusalLog) allow(status int, now time.Time) bool {
	count := l.count(status)
	if now.Sub(count.second) >= time.Second {
		count.second = now
		count.logged = 0
	}

	if count.logged < refusalsEach {
		count.logged++
		return true
	}

	l.omit(status, 1)

	return false
}

// omit counts refused calls that are not logged, whose number is logged later.
func (l *refusalLog) omit(status, calls int) {
	count := l.count(status)
	if count.omitted == 0 {
		time.AfterFunc(refusalsEvery, func() { l.report(status) })
	}

	count.omitted += calls
}

func (l *refusalLog) count(status int) *refusalCount {
	count := l.byStatus[status]
	if count == nil {
		count = &refusalCount{}
		l.byStatus[status] = count
	}

	return count
}

// report logs how many refused calls with one status were not logged.
func (l *refusalLog) report(status int) {
	l.mu.Lock()
	count := l.byStatus[status]
	omitted := count.omitted
	count.omitted = 0
	l.mu.Unlock()

	l.log.LogAttrs(context.Background(), notable, "requests refused, not logged one by one",
		slog.Int("status", status), slog.Int("count", omitted))
}
