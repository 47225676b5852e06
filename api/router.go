package api

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gorilla/mux"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/problem"
)

// A handler answers one route. What it returns is answered by fail.
type handler func(w http.ResponseWriter, c *call) error

// A call is one request on its way through the server.
type call struct {
	*http.Request
	server    *Server
	requestID string
	route     string             // as the table has it; empty while none is found
	vars      map[string]string  // of the path, percent-decoded once
	params    params             // of the query
	id        directory.Identity // who calls; set where the route asks
	// credential is how id was shown.
	credential Credential
	// commissions is whether id may change what others own; asked once at most.
	commissions func() bool
	// asked is whether a tool's request was made within this call, and so paced.
	asked     atomic.Bool
	who       access // of the route
	leaveSlot func() // gives back the slot that it is worked on in; nil without one
	shed      bool   // the answer is that the node is overloaded
	// decided are the policies that decided last, and audited is whether the trail
	// has what became of the call.
	decided []string
	audited bool
}

type callKey struct{}

// callOf returns the request's call, which observe has put there.
func callOf(r *http.Request) *call { return r.Context().Value(callKey{}).(*call) }

// A resource is all rows of one path.
type resource struct {
	path  string
	rows  map[string]row // by method
	allow string
}

// resources groups the table by path. Literal segments go before variables:
// /ad/r/{id}/record before /ad/r/{origin}/{id}.
func resources(rows []row) []*resource {
	byPath := map[string]*resource{}
	for _, r := range rows {
		res := byPath[r.path]
		if res == nil {
			res = &resource{path: r.path, rows: map[string]row{}}
			byPath[r.path] = res
		}
		res.rows[r.method] = r
		if r.method == http.MethodGet && !r.who.stream {
			res.rows[http.MethodHead] = r
		}
	}
	for _, res := range byPath {
		methods := append(slices.Collect(maps.Keys(res.rows)), http.MethodOptions)
		slices.Sort(methods)
		res.allow = strings.Join(methods, ", ")
	}
	variable := regexp.MustCompile(`\{[^}]*\}`)
	order := func(r *resource) string { return variable.ReplaceAllString(r.path, "\xff") }
	return slices.SortedFunc(maps.Values(byPath), func(a, b *resource) int { return strings.Compare(order(a), order(b)) })
}

// route makes the router of the table. Paths are matched as they were sent, so
// that an encoded slash stays within its segment, and nothing is redirected. Those
// without a variable, which are most requests', are not searched for.
func (s *Server) route() http.Handler {
	nothing := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.fail(w, callOf(r), directory.Refuse(directory.NotFound, "There is nothing at this path."))
	})
	literal, routers := map[string]*resource{}, map[string]*mux.Router{}
	for _, res := range resources(s.table()) {
		if !strings.Contains(res.path, "{") {
			literal[res.path] = res
			continue
		}
		first := firstSegment(res.path)
		m := routers[first]
		if m == nil {
			m = mux.NewRouter().UseEncodedPath().SkipClean(true)
			m.NotFoundHandler = nothing
			routers[first] = m
		}
		m.Path(res.path).HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.dispatch(w, r, res) })
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := r.URL.EscapedPath()
		if res := literal[path]; res != nil {
			s.dispatch(w, r, res)
		} else if m := routers[firstSegment(path)]; m != nil {
			m.ServeHTTP(w, r)
		} else {
			nothing(w, r)
		}
	})
}

// firstSegment is what each of few routers is for: a router tries its patterns one by one.
func firstSegment(path string) string {
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return first
}

// dispatch answers a request to a resource that exists.
func (s *Server) dispatch(w http.ResponseWriter, r *http.Request, res *resource) {
	c := callOf(r)
	c.route = res.path
	if r.Method == http.MethodOptions {
		w.Header().Set("Allow", res.allow)
		w.WriteHeader(http.StatusNoContent)
		return
	}
	row, ok := res.rows[r.Method]
	if !ok {
		s.fail(w, c, &problem.Refusal{
			Err:    directory.Refuse(problem.MethodNotAllowed, "%s doesn't go here; the methods are %s.", r.Method, res.allow),
			Header: http.Header{"Allow": {res.allow}},
		})
		return
	}
	if err := s.serve(w, r, row); err != nil {
		s.refused(c, row, err)
		s.fail(w, c, err)
	}
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request, row row) error {
	c := callOf(r)
	c.Request = r
	c.vars = map[string]string{}
	for name, raw := range mux.Vars(r) {
		value, err := url.PathUnescape(raw)
		if err != nil {
			return directory.Refuse(directory.BadRequest, "The path is not well encoded.")
		}
		c.vars[name] = value
	}
	c.params = parseParams(r.URL.RawQuery)
	if err := s.admit(w, c, row.who); err != nil {
		return err
	}
	if row.who.level == levelReader {
		if err := s.reading(w, c); err != nil {
			return err
		}
	}

	c.who = row.who
	defer c.stopWork()
	if hasNoBody(c.Request) { // else once that is read
		if err := s.startWork(c, row.who.work); err != nil {
			return err
		}
	}
	return row.do(w, c)
}

// Limits of a request; the node's http.Server has bounds of its own above them.
const (
	maxURI    = 8 << 10
	maxHeader = 16 << 10
)

var knownMethods = []string{"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT"}

// limit refuses what is too large or unknown before anything looks at it.
func (s *Server) limit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		arrive(w, r)
		size := 0
		for name, values := range r.Header {
			for _, v := range values {
				size += len(name) + len(": \r\n") + len(v)
			}
		}
		switch {
		case len(r.RequestURI) > maxURI:
			s.fail(w, callOf(r), directory.Refuse(problem.URITooLong, "The URI has %d bytes; at most %d are allowed.", len(r.RequestURI), maxURI))
		case size > maxHeader:
			s.fail(w, callOf(r), directory.Refuse(problem.HeaderTooLarge, "The header fields have %d bytes; at most %d are allowed.", size, maxHeader))
		case !slices.Contains(knownMethods, r.Method):
			s.fail(w, callOf(r), directory.Refuse(problem.NotImplemented, "The method %q is not known here.", r.Method))
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// observe is the outermost layer: the request's id, a log line, the hook for
// metrics, and a problem body instead of a torn connection when a handler
// panics. Neither queries nor bodies are logged.
func (s *Server) observe(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		stretch(len(r.URL.Path))
		c := &call{server: s, requestID: problem.RequestID(r)}
		r = r.WithContext(contextWith(r, c))
		c.Request = r
		rec := &recorder{ResponseWriter: w, began: c.stopWork}
		rec.Header().Set("X-Request-Id", c.requestID)
		rec.Header().Set("X-Content-Type-Options", "nosniff")
		defer func() {
			if p := recover(); p != nil {
				if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
					panic(p)
				}
				s.log.Error("handler panicked", "request_id", c.requestID, "route", c.route, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
				if rec.status != 0 {
					panic(http.ErrAbortHandler) // half an answer is out: the client must not take it for a whole one
				}
				s.fail(rec, c, fmt.Errorf("panic: %v", p))
			}
			took := time.Since(began)
			if level := levelOf(c, rec.status); s.log.Enabled(r.Context(), level) {
				s.log.LogAttrs(r.Context(), level, "request",
					slog.String("method", r.Method), slog.String("route", c.route), slog.Int("status", rec.status),
					slog.Int64("bytes", rec.bytes), slog.Duration("took", took),
					slog.String("request_id", c.requestID), slog.String("caller", c.id.String()))
			}
			if s.cfg.Observe != nil {
				s.cfg.Observe(r.Method, c.route, rec.status, took)
			}
		}()
		next.ServeHTTP(rec, r)
	})
}

// levelOf is the level of a request's log line. Reads that succeed are many, and
// metrics count them; so are changes and invocations, and the audit trail has each.
// Requests over a rate or shed under overload are counted too: a caller that floods
// the node must not flood its log.
func levelOf(c *call, status int) slog.Level {
	if status == http.StatusTooManyRequests || c.shed {
		return slog.LevelDebug
	}
	if (c.Method == http.MethodGet || c.Method == http.MethodHead || c.audited) && status < 400 {
		return slog.LevelDebug
	}
	return slog.LevelInfo
}
