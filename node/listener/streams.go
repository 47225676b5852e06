package listener

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
)

// strangersStreams is how many requests a client without a certificate may have on a connection of
// HTTP/2: net/http starts a goroutine for each before a handler decides anything.
const strangersStreams = 16

// BoundStreams bounds the requests of strangers' connections of HTTP/2 (rule S15). The other settings of a
// server are made before.
func BoundStreams(server *http.Server) error {
	// net/http has one bound for all connections of a server, and sets HTTP/2 up as it begins to serve.
	if err := server.ServeTLS(noListener{}, "", ""); !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("set up HTTP/2: %w", err)
	}

	serve := server.TLSNextProto["h2"]
	if serve == nil {
		return nil // GODEBUG=http2server=0
	}

	settings := *server.HTTP2
	settings.MaxConcurrentStreams = strangersStreams

	strangers := &http.Server{
		ReadHeaderTimeout: server.ReadHeaderTimeout,
		WriteTimeout:      server.WriteTimeout,
		IdleTimeout:       server.IdleTimeout,
		MaxHeaderBytes:    server.MaxHeaderBytes,
		HTTP2:             &settings,
		ConnState:         server.ConnState,
		ErrorLog:          server.ErrorLog,
	}

	server.TLSNextProto["h2"] = func(settings *http.Server, conn *tls.Conn, handler http.Handler) {
		// This runs after the handshake, so the client's certificate is known.
		if len(conn.ConnectionState().PeerCertificates) == 0 {
			settings = strangers
		}

		serve(settings, conn, handler)
	}

	return nil
}

// A noListener is a listener that is closed.
type noListener struct{}

func (noListener) Accept() (net.Conn, error) { return nil, net.ErrClosed }
func (noListener) Close() error              { return nil }
func (noListener) Addr() net.Addr            { return &net.TCPAddr{} }
