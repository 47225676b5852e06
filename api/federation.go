package api

import (
	"bytes"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/roster-mesh/roster/directory"
)

// federation hands a request to the handler of the federation, which knows
// itself who may call. What it refuses becomes the problem body of all surfaces
// here (AD-033).
func (s *Server) federation(w http.ResponseWriter, c *call) error {
	p := &plainRefusal{ResponseWriter: w}
	s.cfg.Federation.ServeHTTP(p, c.Request)
	if p.status == 0 {
		return nil
	}
	e := p.refusal()
	if e.Problem == directory.Unauthenticated {
		return s.challenge("", e)
	}
	return e
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

// maxPlain bounds how much of a refusal is kept, in bytes.
const maxPlain = 4 << 10

// A plainRefusal passes an answer on, but keeps a refusal: plain text, or a
// problem with no more than its type and detail.
type plainRefusal struct {
	http.ResponseWriter
	status int // of the refusal that is kept
	text   bytes.Buffer
}

func (p *plainRefusal) WriteHeader(status int) {
	if status >= 400 {
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

// refusal is what was refused, and why.
func (p *plainRefusal) refusal() *directory.Error {
	e := &directory.Error{Problem: generalProblem[p.status], Detail: strings.TrimSpace(p.text.String())}
	switch {
	case e.Problem != "":
	case p.status < 500:
		e.Problem = directory.BadRequest
	default:
		e.Problem = directory.Internal
	}
	if p.Header().Get("Content-Type") != "application/problem+json" {
		return e
	}
	var told struct {
		Type   string `json:"type"`
		Detail string `json:"detail"`
	}
	if err := json.Unmarshal(p.text.Bytes(), &told); err != nil {
		e.Detail = "" // too long to be kept whole
		return e
	}
	e.Detail = told.Detail
	if problem := directory.Problem(strings.TrimPrefix(told.Type, "/problems/")); rulings[problem].status == p.status {
		e.Problem = problem
	}
	return e
}

// Flush sends what was written so far.
func (p *plainRefusal) Flush() { _ = http.NewResponseController(p.ResponseWriter).Flush() }

// Unwrap is for http.ResponseController.
func (p *plainRefusal) Unwrap() http.ResponseWriter { return p.ResponseWriter }
