package api

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"slices"
	"time"

	"github.com/roster-mesh/roster/api/request"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/problem"
)

// observe is the outermost layer: the request's id, a log line, the hook for metrics, and
// a problem instead of a broken connection if a handler panics. Neither queries nor bodies
// are logged.
func (s *Server) observe(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		growStack(len(r.URL.Path))

		call := &request.Call{RequestID: problem.RequestID(r), Level: slog.LevelInfo, Answers: s.answers}
		r = r.WithContext(request.With(r.Context(), call))
		call.Request = r

		rec := &recorder{ResponseWriter: w, slot: &call.Slot}
		rec.Header().Set("X-Request-Id", call.RequestID)
		rec.Header().Set("X-Content-Type-Options", "nosniff")
		defer func() {
			s.recoverFrom(rec, call, recover())
			s.report(call, rec, time.Since(began))
		}()

		next.ServeHTTP(rec, r)
	})
}

// recoverFrom answers a call whose handler panicked.
func (s *Server) recoverFrom(w *recorder, call *request.Call, p any) {
	if p == nil {
		return
	}

	if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(p)
	}

	s.log.Error("handler panicked", "request_id", call.RequestID, "route", call.Route,
		"panic", fmt.Sprint(p), "stack", string(debug.Stack()))

	if w.status != 0 {
		panic(http.ErrAbortHandler) // so that the client doesn't take half an answer for a whole one
	}

	s.fail(w, call, fmt.Errorf("panic: %v", p))
}

// report logs a call that was answered, and tells metrics.
func (s *Server) report(call *request.Call, w *recorder, took time.Duration) {
	ctx := call.Request.Context()
	if level := levelOf(call, w.status); s.log.Enabled(ctx, level) {
		attrs := []slog.Attr{slog.String("method", call.Method)}
		if call.Route != "" {
			attrs = append(attrs, slog.String("route", call.Route))
		}

		attrs = append(attrs, slog.Int("status", w.status), slog.Int64("bytes", w.bytes),
			slog.Float64("took_ms", float64(took.Microseconds())/1000), slog.String("request_id", call.RequestID))
		if !call.Anonymous() {
			attrs = append(attrs, slog.String("caller", call.Identity.String()))
		}

		s.log.LogAttrs(ctx, level, "request", attrs...)
	}

	if s.cfg.Observe != nil {
		s.cfg.Observe(call.Method, call.Route, w.status, took)
	}
}

// levelOf is the level of a call's log line: the route's if it succeeded, and else Info.
// Calls that the audit log has are quiet, and so are those that were refused by a rate
// limit or under overload, which metrics count: a caller that floods the node must not
// flood its log.
func levelOf(call *request.Call, status int) slog.Level {
	switch {
	case status == http.StatusTooManyRequests || call.Shed:
		return quiet
	case status >= http.StatusBadRequest:
		return notable
	case call.Audited:
		return quiet
	}

	return call.Level
}

// A recorder remembers the status and the size of an answer, and releases the call's slot
// when it begins.
type recorder struct {
	http.ResponseWriter
	slot   interface{ Release() }
	status int
	bytes  int64
}

// WriteHeader implements http.ResponseWriter.
func (r *recorder) WriteHeader(status int) {
	if r.status == 0 || r.status < 200 {
		r.status = status
	}

	r.slot.Release()
	r.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (r *recorder) Write(data []byte) (int, error) {
	if r.status == 0 {
		r.WriteHeader(http.StatusOK)
	}

	n, err := r.ResponseWriter.Write(data)
	r.bytes += int64(n)

	return n, err
}

// Flush sends what was written so far.
func (r *recorder) Flush() { _ = r.FlushError() }

// FlushError is Flush for http.ResponseController.
func (r *recorder) FlushError() error { return http.NewResponseController(r.ResponseWriter).Flush() }

// Unwrap is for http.ResponseController.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// Limits of a request in bytes; the node's http.Server has higher ones.
const (
	maxURI    = 8 << 10
	maxHeader = 16 << 10
)

var knownMethods = []string{"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT"}

// limitSize refuses requests that are too large or of an unknown method before anything
// else is decided about them.
func (s *Server) limitSize(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		request.BoundBodyTime(w, r)

		if err := checkSize(r); err != nil {
			s.fail(w, request.Of(r.Context()), err)
			return
		}

		next.ServeHTTP(w, r)
	})
}

func checkSize(r *http.Request) error {
	size := 0
	for name, values := range r.Header {
		for _, v := range values {
			size += len(name) + len(": \r\n") + len(v)
		}
	}

	switch {
	case len(r.RequestURI) > maxURI:
		return directory.Refuse(problem.URITooLong, "The URI has %d bytes; at most %d are allowed.", len(r.RequestURI),
			maxURI)
	case size > maxHeader:
		return directory.Refuse(problem.HeaderTooLarge, "The header has %d bytes; at most %d are allowed.", size,
			maxHeader)
	case !slices.Contains(knownMethods, r.Method):
		return directory.Refuse(problem.NotImplemented, "Method %q is not implemented.", r.Method)
	}

	return nil
}
