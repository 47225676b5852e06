package problem

import (
	"net/http"

	"github.com/roster-mesh/roster/directory"
)

// Routes serves mux, the routes of an internal listener, and gives each request its id. It
// refuses a request that came through an intermediary (RFC 9110, 7.6.3): only the nodes and
// programs that the listener is for connect to it, and themselves. For a path or a method
// that mux doesn't have, it writes a problem in place of mux's plain text.
func Routes(mux *http.ServeMux, base string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if w.Header().Get(HeaderRequestID) == "" {
			w.Header().Set(HeaderRequestID, RequestID(r))
		}

		if r.Header.Get("Via") != "" {
			Write(w, base, directory.Refuse(directory.Forbidden,
				"this request came through an intermediary (Via), which may not use this listener"))

			return
		}

		handler, pattern := mux.Handler(r)
		if pattern != "" {
			mux.ServeHTTP(w, r)
			return
		}

		// Only mux knows whether the method or the path is wrong.
		refused := &outcome{header: http.Header{}}
		handler.ServeHTTP(refused, r)
		Write(w, base, refused.problem(r))
	})
}

// An outcome keeps the status and the header of an answer, and drops its body.
type outcome struct {
	header http.Header
	status int
}

func (o *outcome) Header() http.Header         { return o.header }
func (o *outcome) WriteHeader(status int)      { o.status = status }
func (o *outcome) Write(b []byte) (int, error) { return len(b), nil }

func (o *outcome) problem(r *http.Request) error {
	if o.status != http.StatusMethodNotAllowed {
		return directory.Refuse(directory.NotFound, "there is nothing at %.200q", r.URL.Path)
	}

	return &Refusal{
		Err:    directory.Refuse(MethodNotAllowed, "%.200q doesn't have the method %.40q", r.URL.Path, r.Method),
		Header: http.Header{"Allow": o.header["Allow"]},
	}
}
