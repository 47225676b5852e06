package api

import (
	"io"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/problem"
)

// A request's body has at most so many bytes (AD-042), and comes in this time, or at this
// rate, and then in a longer time.
const (
	maxBody     = wire.MaxBody
	bodyTime    = 30 * time.Second
	bodyRate    = 1 << 10 // bytes per second
	maxBodyTime = 20 * time.Minute
)

// An arriving is a request's body that comes as fast as it must, whoever reads it: the
// handler, or net/http for the sake of the next request, once it was answered without.
type arriving struct {
	io.ReadCloser
	rc    *http.ResponseController
	began time.Time
	until time.Duration
	have  int64
}

// arrive bounds the time that r's body takes, where the connection has deadlines.
func arrive(w http.ResponseWriter, r *http.Request) {
	if r.Body == nil || r.Body == http.NoBody {
		return
	}
	a := &arriving{ReadCloser: r.Body, rc: http.NewResponseController(w), began: time.Now(), until: bodyTime}
	_ = a.rc.SetReadDeadline(a.began.Add(a.until))
	r.Body = a
}

// Read implements io.Reader.
func (a *arriving) Read(b []byte) (int, error) {
	n, err := a.ReadCloser.Read(b)
	a.have += int64(n)
	if err == io.EOF {
		_ = a.rc.SetReadDeadline(time.Time{})
		return n, err
	}
	if until := min(time.Duration(a.have/bodyRate)*time.Second, maxBodyTime); until > a.until {
		a.until = until + time.Second
		_ = a.rc.SetReadDeadline(a.began.Add(a.until))
	}
	return n, err
}

// readBody reads a bounded body. Where there is one it must say that it is JSON,
// and not be compressed (AD-046); an empty one may say what it likes (AD-057).
func readBody(w http.ResponseWriter, c *call) ([]byte, error) { return readUpTo(w, c, maxBody) }

func readUpTo(w http.ResponseWriter, c *call, most int64) ([]byte, error) {
	if coding := strings.Join(c.Header.Values("Content-Encoding"), ", "); coding != "" && !strings.EqualFold(coding, "identity") {
		return nil, &problem.Refusal{
			Err:    directory.Refuse(problem.MediaType, "The body's Content-Encoding is %.100q; send it as it is.", coding),
			Header: http.Header{"Accept-Encoding": {"identity"}}, // RFC 9110, 12.5.3
		}
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, c.Body, most))
	if err != nil {
		if problem.Explain(err).Err.Problem == directory.Internal {
			err = directory.Refuse(directory.BadRequest, "The body could not be read to its end: %w", err)
		}
		return nil, err
	}
	if len(body) > 0 && !isJSON(c.Header.Get("Content-Type")) {
		return nil, directory.Refuse(problem.MediaType, "The body's Content-Type is %.100q; send JSON as application/json.", c.Header.Get("Content-Type"))
	}
	kind := c.who.work
	if len(body) == 0 && c.who.bare != unshed {
		kind = c.who.bare
	}
	return body, c.server.startWork(c, kind)
}

func isJSON(contentType string) bool {
	if contentType == "application/json" { // as nearly everything that is sent
		return true
	}
	media, _, err := mime.ParseMediaType(contentType)
	return err == nil && (media == "application/json" || strings.HasSuffix(media, "+json"))
}

// readRequest reads a JSON object whose members are all known.
func readRequest(w http.ResponseWriter, c *call, into any) error {
	body, err := readBody(w, c)
	if err != nil {
		return err
	}
	return parseRequest(body, into)
}

// readForeignRequest reads a JSON object that another domain sends. Members that are
// not known are ignored: its release may be a later one (FORM-004).
func readForeignRequest(w http.ResponseWriter, c *call, into any) error {
	body, err := readBody(w, c)
	if err != nil {
		return err
	}

	if _, err := directory.ParseObject(body); err != nil {
		return err
	}

	if err := json.Unmarshal(body, into); err != nil {
		return directory.Refuse(directory.BadRequest, "The body is not what this route takes: %w", err)
	}

	return nil
}

// parseRequest is readRequest of a body that was read.
func parseRequest(body []byte, into any) error {
	if _, err := directory.ParseObject(body); err != nil {
		return err
	}
	if err := json.Unmarshal(body, into, json.RejectUnknownMembers(true)); err != nil {
		return directory.Refuse(directory.BadRequest, "The body is not what this route takes: %w", err)
	}
	return nil
}
