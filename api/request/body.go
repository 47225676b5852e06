package request

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

// MaxBody bounds a request's body in bytes, unless its route says otherwise (AD-042).
const MaxBody = wire.MaxBody

// BodyTime is how long a body may take; it may take longer, up to maxBodyTime, while it
// comes at bodyRate.
const (
	BodyTime    = 30 * time.Second
	bodyRate    = 1 << 10 // bytes per second
	maxBodyTime = 20 * time.Minute
)

// A timedBody is a request's body with a deadline that moves with its progress, whether
// the handler reads it, or net/http to get to the next request.
type timedBody struct {
	io.ReadCloser
	rc      *http.ResponseController
	began   time.Time
	allowed time.Duration
	read    int64
}

// BoundBodyTime bounds the time that r's body takes, if the connection has deadlines.
func BoundBodyTime(w http.ResponseWriter, r *http.Request) {
	if r.Body == nil || r.Body == http.NoBody {
		return
	}

	body := &timedBody{ReadCloser: r.Body, rc: http.NewResponseController(w), began: time.Now(), allowed: BodyTime}
	_ = body.rc.SetReadDeadline(body.began.Add(body.allowed))
	r.Body = body
}

// Read implements io.Reader.
func (t *timedBody) Read(b []byte) (int, error) {
	n, err := t.ReadCloser.Read(b)

	t.read += int64(n)
	if err == io.EOF {
		_ = t.rc.SetReadDeadline(time.Time{})
		return n, err
	}

	if allowed := min(time.Duration(t.read/bodyRate)*time.Second, maxBodyTime); allowed > t.allowed {
		t.allowed = allowed + time.Second
		_ = t.rc.SetReadDeadline(t.began.Add(t.allowed))
	}

	return n, err
}

// HasNoBody tells whether the handler of a request reads no body.
func HasNoBody(r *http.Request) bool {
	return r.Method != http.MethodPost && r.Method != http.MethodPut
}

// ReadBody reads a body of at most MaxBody bytes, and then waits until the call may be
// worked on. A body must be declared as JSON and not be compressed (AD-046); an empty
// one may be declared as anything (AD-057).
func ReadBody(w http.ResponseWriter, c *Call) ([]byte, error) { return ReadUpTo(w, c, MaxBody) }

// ReadUpTo is ReadBody with another bound.
func ReadUpTo(w http.ResponseWriter, call *Call, limit int64) ([]byte, error) {
	coding := strings.Join(call.Header.Values("Content-Encoding"), ", ")
	if coding != "" && !strings.EqualFold(coding, "identity") {
		return nil, &problem.Refusal{
			Err: directory.Refuse(problem.MediaType,
				"Content-Encoding %.100q is not supported for a body. Send it without a content encoding.", coding),
			Header: http.Header{"Accept-Encoding": {"identity"}}, // RFC 9110, 12.5.3
		}
	}

	body, err := io.ReadAll(http.MaxBytesReader(w, call.Body, limit))
	if err != nil {
		if problem.Explain(err).Err.Problem == directory.Internal {
			err = directory.Refuse(directory.BadRequest, "The body could not be read to its end: %w", err)
		}

		return nil, err
	}

	if mediaType := call.Header.Get("Content-Type"); len(body) > 0 && !IsJSON(mediaType) {
		return nil, directory.Refuse(problem.MediaType,
			"Content-Type %.100q is not supported. Send JSON as application/json.", mediaType)
	}

	return body, call.Slot.TakeFor(call.Context(), len(body) == 0)
}

// IsJSON tells whether a media type is JSON, or of a format that is JSON.
func IsJSON(contentType string) bool {
	if contentType == "application/json" { // the usual one, without parsing
		return true
	}

	media, _, err := mime.ParseMediaType(contentType)

	return err == nil && (media == "application/json" || strings.HasSuffix(media, "+json"))
}

// ReadObject reads a body that is a JSON object. Unknown members are refused.
func ReadObject(w http.ResponseWriter, c *Call, into any) error {
	body, err := ReadBody(w, c)
	if err != nil {
		return err
	}

	return ParseObject(body, into)
}

// ReadForeignObject is ReadObject of a body that another domain sends. Unknown members
// are ignored, because that domain may run a later release (FORM-004).
func ReadForeignObject(w http.ResponseWriter, c *Call, into any) error {
	body, err := ReadBody(w, c)
	if err != nil {
		return err
	}

	return parseObject(body, into)
}

// ParseObject is ReadObject of a body that was read.
func ParseObject(body []byte, into any) error {
	return parseObject(body, into, json.RejectUnknownMembers(true))
}

func parseObject(body []byte, into any, options ...json.Options) error {
	if _, err := directory.ParseObject(body); err != nil {
		return err
	}

	if err := json.Unmarshal(body, into, options...); err != nil {
		return directory.Refuse(directory.BadRequest, "The body doesn't match the schema of this route: %w", err)
	}

	return nil
}
