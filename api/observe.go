package api

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/roster-mesh/roster/api/request"
	"github.com/roster-mesh/roster/directory/problem"
)

// observe is the outermost layer: the request's id, a log line, the hook for metrics, and
// a problem instead of a broken connection if a handler panics. Neither queries nor bodies
// are logged.
func (s *Server) observe(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		growStack(len(r.URL.Path))

		call := &request.Call{RequestID: problem.RequestID(r), Level: slog.LevelInfo, Arrived: began}
		r = r.WithContext(request.With(r.Context(), call))
		call.Request = r

		rec := &recorder{ResponseWriter: w, slot: &call.Slot}
		rec.Header().Set("X-Request-Id", call.RequestID)
		rec.Header().Set("X-Content-Type-Options", "nosniff")

		// The report comes after the answer to a panic, even if that panics again.
		defer func() {
			defer func() { s.report(call, rec, time.Since(began)) }()
			s.recoverFrom(rec, call, recover())
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
		if w.status == 0 {
			w.status = clientGone
		}

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
	s.logCall(call, w.status, w.bytes, took)
	call.Span.Answered(methodLabel(call.Method), call.Route, w.status)

	s.cfg.Observe(methodLabel(call.Method), call.Route, w.status, took)
}

// A recorder remembers the status and the size of an answer, and releases the call's slot
// when it begins.
type recorder struct {
	http.ResponseWriter
	slot   interface{ Release() }
	status int
	bytes  int64
}

// WriteHeader implements http.ResponseWriter. An interim status is sent and not remembered:
// the call goes on.
func (r *recorder) WriteHeader(status int) {
	if status < http.StatusOK {
		r.ResponseWriter.WriteHeader(status)
		return
	}

	r.status = cmp.Or(r.status, status)

	// A slot is for work: a client that reads slowly must not hold one.
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
