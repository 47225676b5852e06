package api

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"sync"

	"github.com/go-json-experiment/json"

	"github.com/roster-mesh/roster/directory/strictjson"
)

func contextWith(r *http.Request, c *call) context.Context {
	return context.WithValue(r.Context(), callKey{}, c)
}

// A recorder remembers what was answered.
type recorder struct {
	http.ResponseWriter
	status int
	bytes  int64
	began  func() // is told that the answer begins
}

func (r *recorder) WriteHeader(status int) {
	if r.status == 0 || r.status < 200 {
		r.status = status
	}
	r.began()
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

// appendStrings appends a JSON array of strings.
func appendStrings(b []byte, ss []string) []byte { return list(b, ss, strictjson.AppendString) }

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

// sendStatus answers with what is so now, as JSON.
func sendStatus(w http.ResponseWriter, c *call, status any) error {
	body, err := json.Marshal(status)
	if err != nil {
		return fmt.Errorf("encoding a status: %w", err)
	}
	w.Header().Set("Cache-Control", "no-store")
	write(w, c.Request, http.StatusOK, "application/json", append(body, '\n'))
	return nil
}
