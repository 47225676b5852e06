package api

import (
	"context"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/roster-mesh/roster/directory"
)

func contextWith(r *http.Request, c *call) context.Context {
	return context.WithValue(r.Context(), callKey{}, c)
}

// A recorder remembers what was answered.
type recorder struct {
	http.ResponseWriter
	status int
	bytes  int64
}

func (r *recorder) WriteHeader(status int) {
	if r.status == 0 || r.status < 200 {
		r.status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

func (r *recorder) Write(b []byte) (int, error) {
	if r.status == 0 {
		r.WriteHeader(http.StatusOK)
	}
	n, err := r.ResponseWriter.Write(b)
	r.bytes += int64(n)
	return n, err
}

// Flush sends what was written so far; handlers that stream ask for it.
func (r *recorder) Flush() { _ = r.FlushError() }

// FlushError is Flush for http.ResponseController.
func (r *recorder) FlushError() error { return http.NewResponseController(r.ResponseWriter).Flush() }

// Unwrap is for http.ResponseController.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// write sends a whole body, compressed where the client wants that and it is
// worth while, or for HEAD its header.
func write(w http.ResponseWriter, r *http.Request, status int, contentType string, body []byte) {
	h := w.Header()
	h.Set("Content-Type", contentType)
	vary(h, contentType)
	if compresses(r, contentType, body) {
		h.Set("Content-Encoding", "gzip")
		if r.Method == http.MethodHead {
			w.WriteHeader(status) // how long it would be isn't worth finding out
			return
		}
		body = compress(body)
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // the client is gone if it fails
	}
}

// rooms has the memory of bodies that were sent.
var rooms = sync.Pool{New: func() any { return new([]byte) }}

// maxRoom bounds what one body leaves behind.
const maxRoom = 64 << 10

// roomFor returns memory for the body of c's answer, and what gives it back once that
// is sent. HTTP/2 may still read a body after Write has failed, so that none of its
// bodies has memory that another one had.
func roomFor(c *call) (room *[]byte, release func()) {
	if c.ProtoMajor != 1 {
		return new([]byte), func() {}
	}
	room = rooms.Get().(*[]byte)
	return room, func() {
		if cap(*room) <= maxRoom {
			rooms.Put(room)
		}
	}
}

// A request's body has at most so many bytes (AD-042), and comes in this time, or at this
// rate, and then in a longer time.
const (
	maxBody     = directory.MaxDocument
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
		return nil, &refusal{
			err:    directory.Refuse(MediaType, "The body's Content-Encoding is %.100q; send it as it is.", coding),
			header: http.Header{"Accept-Encoding": {"identity"}}, // RFC 9110, 12.5.3
		}
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, c.Body, most))
	if err != nil {
		if explain(err).err.Problem == directory.Internal {
			err = directory.Refuse(directory.BadRequest, "The body could not be read to its end: %w", err)
		}
		return nil, err
	}
	if len(body) == 0 || isJSON(c.Header.Get("Content-Type")) {
		return body, nil
	}
	return nil, directory.Refuse(MediaType, "The body's Content-Type is %.100q; send JSON as application/json.", c.Header.Get("Content-Type"))
}

func isJSON(contentType string) bool {
	if contentType == "application/json" { // as nearly everything that is sent
		return true
	}
	media, _, err := mime.ParseMediaType(contentType)
	return err == nil && (media == "application/json" || strings.HasSuffix(media, "+json"))
}

// appendStrings appends a JSON array of strings.
func appendStrings(b []byte, ss []string) []byte {
	b = append(b, '[')
	for i, s := range ss {
		if i > 0 {
			b = append(b, ',')
		}
		b = directory.AppendString(b, s)
	}
	return append(b, ']')
}

// list appends a JSON array of what each item appends.
func list[T any](b []byte, items []T, each func([]byte, T) []byte) []byte {
	b = append(b, '[')
	for i, item := range items {
		if i > 0 {
			b = append(b, ',')
		}
		b = each(b, item)
	}
	return append(b, ']')
}
