package api

import (
	"bytes"
	"net/http"
	"strings"

	"github.com/roster-mesh/roster/directory"
)

// federation hands a request to the handler of the federation, which knows
// itself who may call. What it refuses in plain text becomes a problem body here
// (AD-033).
func (s *Server) federation(w http.ResponseWriter, c *call) error {
	p := &plainRefusal{ResponseWriter: w}
	s.cfg.Federation.ServeHTTP(p, c.Request)
	if p.status == 0 {
		return nil
	}
	problem, ok := generalProblem[p.status]
	switch {
	case ok:
	case p.status < 500:
		problem = directory.BadRequest
	default:
		problem = directory.Internal
	}
	detail := strings.TrimSpace(p.text.String())
	if problem == directory.Unauthenticated {
		return s.challenge("", &directory.Error{Problem: problem, Detail: detail})
	}
	return &directory.Error{Problem: problem, Detail: detail}
}

// generalProblem is the problem that a status alone tells.
var generalProblem = map[int]directory.Problem{
	http.StatusUnauthorized:          directory.Unauthenticated,
	http.StatusForbidden:             directory.Forbidden,
	http.StatusNotFound:              directory.NotFound,
	http.StatusMethodNotAllowed:      MethodNotAllowed,
	http.StatusRequestEntityTooLarge: directory.TooLarge,
	http.StatusUnsupportedMediaType:  MediaType,
	http.StatusTooManyRequests:       directory.RateLimited,
	http.StatusBadGateway:            Upstream,
	http.StatusServiceUnavailable:    directory.Unavailable,
	http.StatusGatewayTimeout:        Timeout,
}

// maxPlain bounds how much of a plain refusal is shown, in bytes.
const maxPlain = 1 << 10

// A plainRefusal passes an answer on, but keeps a refusal that isn't a problem
// body.
type plainRefusal struct {
	http.ResponseWriter
	status int // of the refusal that is kept
	text   bytes.Buffer
}

func (p *plainRefusal) WriteHeader(status int) {
	if status >= 400 && p.Header().Get("Content-Type") != "application/problem+json" {
		p.status = status
		return
	}
	p.ResponseWriter.WriteHeader(status)
}

func (p *plainRefusal) Write(b []byte) (int, error) {
	if p.status == 0 {
		return p.ResponseWriter.Write(b)
	}
	p.text.Write(b[:min(len(b), maxPlain-p.text.Len())])
	return len(b), nil
}

// Flush sends what was written so far.
func (p *plainRefusal) Flush() { _ = http.NewResponseController(p.ResponseWriter).Flush() }

// Unwrap is for http.ResponseController.
func (p *plainRefusal) Unwrap() http.ResponseWriter { return p.ResponseWriter }
