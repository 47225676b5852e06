package response

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/roster-mesh/roster/api/request"
)

// WriteTime is how long a client may take to accept a piece of an answer, and its end.
const WriteTime = 10 * time.Second

// Write sends a whole body, compressed if the client accepts that and it gains
// something; for HEAD, its header alone.
func Write(w http.ResponseWriter, r *http.Request, status int, contentType string, body []byte) {
	header := w.Header()
	header.Set("Content-Type", contentType)
	vary(header, contentType)

	if Compresses(r, contentType, body) {
		header.Set("Content-Encoding", "gzip")

		if r.Method == http.MethodHead {
			w.WriteHeader(status) // without a length: that would cost a compression
			return
		}

		body = Compress(body)
	}

	header.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)

	if r.Method != http.MethodHead {
		writeBody(w, body)
	}
}

const (
	buffered  = 4 << 10  // bytes of an answer that net/http keeps until the handler flushes them or returns
	pieceSize = 16 << 10 // how much of an answer a client accepts within WriteTime
)

// writeBody writes a body in pieces, each with a time of its own: a client that reads nothing loses its
// answer soon, and a slow one may take long.
func writeBody(w http.ResponseWriter, body []byte) {
	if len(body) <= buffered {
		_, _ = w.Write(body) // an error means that the client is gone
		return
	}

	rc := http.NewResponseController(w)

	for piece := range slices.Chunk(body, pieceSize) {
		_ = rc.SetWriteDeadline(time.Now().Add(WriteTime)) // if the connection has deadlines

		if _, err := w.Write(piece); err != nil {
			return
		}
	}
}

// Answer is Write of a 200 that may be large: its memory is counted until the client
// has read it.
func Answer(w http.ResponseWriter, call *request.Call, contentType string, body []byte) error {
	release, err := call.Pools.HoldAnswer(call.Caller(), len(body))
	if err != nil {
		return err
	}
	defer release()

	Write(w, call.Request, http.StatusOK, contentType, body)

	return nil
}

// Status answers an operator with a current state as JSON.
func Status(w http.ResponseWriter, call *request.Call, status any) error {
	body, err := json.Marshal(status)
	if err != nil {
		return fmt.Errorf("encoding a status: %w", err)
	}

	NoStore(w)
	Write(w, call.Request, http.StatusOK, "application/json", append(body, '\n'))

	return nil
}

// NoContent answers that a change was made.
func NoContent(w http.ResponseWriter) error {
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// buffers holds the memory of bodies that were sent.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// maxBuffer bounds the memory that is kept of one body, in bytes.
const maxBuffer = 64 << 10

// Buffer returns memory for the body of c's answer, and a function that gives it back
// once the answer is sent. HTTP/2 may still read a body after Write has failed, so its
// bodies don't share memory.
func Buffer(c *request.Call) (buffer *[]byte, release func()) {
	if c.ProtoMajor != 1 {
		return new([]byte), func() {}
	}

	buffer = buffers.Get().(*[]byte)

	return buffer, func() {
		if cap(*buffer) <= maxBuffer {
			buffers.Put(buffer)
		}
	}
}

// Empty answers with a status and no body.
func Empty(w http.ResponseWriter, status int) error {
	w.Header().Set("Content-Length", "0")
	w.WriteHeader(status)

	return nil
}
