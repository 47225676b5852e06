package listener

import (
	"crypto/tls"
	"log/slog"
	"net/http"
	"time"
)

// Timeouts of connections.
const (
	// HeaderTimeout bounds the TLS handshake, and the arrival of a request's header.
	HeaderTimeout = 10 * time.Second

	// IdleTimeout is how long a connection without a request stays open.
	IdleTimeout = 2 * time.Minute

	// answerTimeout is from the end of a request's header to that of its answer, over the
	// longest wait that a request may ask for. Event streams last as long as their client
	// reads; api bounds each of their writes.
	answerTimeout = 2 * time.Minute
)

// maxHeader is net/http's own bound in bytes; the handler answers 431 from 16 KiB on.
const maxHeader = 64 << 10

// Buffers of an HTTP/2 connection, in bytes. Bytes that no handler has read yet are in no
// pool, so a connection may not have net/http's 1 MiB of them.
const (
	maxFrame  = 16 << 10
	maxUnread = 256 << 10 // of all streams of a connection
)

// NewServer returns an HTTP server with the timeouts of this package. It speaks plain
// HTTP if config is nil.
func NewServer(handler http.Handler, config *tls.Config, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           handler,
		TLSConfig:         config,
		ReadHeaderTimeout: HeaderTimeout,
		WriteTimeout:      answerTimeout,
		IdleTimeout:       IdleTimeout,
		MaxHeaderBytes:    maxHeader,
		HTTP2: &http.HTTP2Config{
			MaxReadFrameSize:              maxFrame,
			MaxReceiveBufferPerConnection: maxUnread,
			MaxReceiveBufferPerStream:     maxUnread,
			WriteByteTimeout:              HeaderTimeout, // of a client that reads nothing, not even control frames
		},
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}

// LeaveWhile has the answers of a server ask its clients, while leaving reports true, to use
// another connection: Connection: close in HTTP/1.1, GOAWAY in HTTP/2. An idle connection stays
// open, because a request may be on its way.
func LeaveWhile(server *http.Server, leaving func() bool) {
	next := server.Handler
	server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if leaving() {
			w.Header().Set("Connection", "close") // in HTTP/2, net/http sends GOAWAY for it
		}

		next.ServeHTTP(w, r)
	})
}
