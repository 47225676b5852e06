package mcp

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"strings"

	"github.com/roster-mesh/roster/api/request"
	"github.com/roster-mesh/roster/api/response"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/problem"
)

// A capture is an answer that is kept instead of sent.
type capture struct {
	header http.Header
	status int
	body   bytes.Buffer
	cut    bool // the answer is longer than maxCapture
	// hold takes memory for more bytes; nil if the answer is counted elsewhere. refused is its error.
	hold    func(bytes int64) error
	refused error
}

// maxCapture bounds an answer that is kept, in bytes. Only an agent's may be longer.
const maxCapture = 16 << 20

func newCapture() *capture { return &capture{header: http.Header{}} }

// Header implements http.ResponseWriter.
func (a *capture) Header() http.Header { return a.header }

// WriteHeader implements http.ResponseWriter.
func (a *capture) WriteHeader(status int) {
	a.status = cmp.Or(a.status, status)
}

// Write implements http.ResponseWriter.
func (a *capture) Write(b []byte) (int, error) {
	a.WriteHeader(http.StatusOK)

	if a.body.Len()+len(b) > maxCapture {
		a.cut = true
		return 0, errLongAnswer
	}

	if a.hold != nil {
		if err := a.hold(int64(len(b))); err != nil {
			a.refused = directory.Refuse(directory.AgentFailed,
				"the agent's answer was not read to its end; the agent may have acted: %v", err)

			return 0, a.refused
		}
	}

	return a.body.Write(b)
}

// Flush implements http.Flusher, which the handler of a stream needs. Nothing is sent before the end.
func (a *capture) Flush() {}

// serve has handler answer r. A handler that aborts its answer panics, which would end
// the process on a goroutine that is not net/http's.
func (a *capture) serve(handler http.Handler, r *http.Request) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = cmp.Or(a.refused, fmt.Errorf("the answer was cut off: %v", p))
		}
	}()
	handler.ServeHTTP(a, r)

	if a.cut {
		return errLongAnswer
	}

	return a.refused
}

var errLongAnswer = directory.Refuse(directory.AgentFailed,
	"the agent's answer has more than the %d bytes that a tool's result may have", maxCapture)

// sdkProblems are the problems of the SDK's refusals, which are plain text.
var sdkProblems = map[int]directory.Problem{
	http.StatusBadRequest:            directory.BadRequest,
	http.StatusForbidden:             directory.Forbidden,
	http.StatusNotFound:              directory.NotFound,
	http.StatusRequestEntityTooLarge: directory.TooLarge,
	http.StatusUnsupportedMediaType:  problem.MediaType,
}

// forward sends the SDK's answer: JSON as it is, and a plain-text refusal as a problem.
// An answer may be refused for its size only if nothing was changed.
func (a *capture) forward(w http.ResponseWriter, call *request.Call, unchanged bool) error {
	if a.status == 0 || a.status < 300 && a.body.Len() == 0 {
		w.WriteHeader(max(a.status, http.StatusAccepted))
		return nil
	}

	if !request.IsJSON(a.header.Get("Content-Type")) {
		text := strings.TrimSpace(a.body.String())

		name, known := sdkProblems[a.status]
		if !known {
			return fmt.Errorf("the MCP library answered %d: %s", a.status, text)
		}

		return directory.Refuse(name, "%s", text)
	}

	// The library's other fields are of an answer that is written anew here.
	maps.DeleteFunc(a.header, func(name string, _ []string) bool { return !strings.HasPrefix(name, "Mcp-") })
	maps.Copy(w.Header(), a.header)

	if a.status == http.StatusOK && unchanged {
		return response.Answer(w, call, "application/json", a.body.Bytes())
	}

	response.Write(w, call.Request, a.status, "application/json", a.body.Bytes())

	return nil
}
