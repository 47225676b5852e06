package main

import (
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"time"
)

// In TLS 1.3 the client has finished the handshake when the server judges its
// certificate, and what it sends meanwhile can make the connection break before
// the server's alert is read. So a request that fails with a broken connection
// says nothing of the reason.

// askTimeout bounds each part of finding out.
const askTimeout = 3 * time.Second

// A frank transport finds out whether a broken connection was a refused client
// certificate.
type frank struct{ *http.Transport }

// RoundTrip implements http.RoundTripper.
func (f frank) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := f.Transport.RoundTrip(r)
	var op *net.OpError
	var certificate *tls.CertificateVerificationError
	if err == nil || r.Context().Err() != nil || errors.As(err, &certificate) || errors.As(err, &op) && (op.Op == "dial" || op.Op == "remote error") {
		return resp, err
	}
	if alert := f.ask(r); alert != nil {
		return nil, alert
	}
	return nil, err
}

// ask connects once more, sends nothing, and returns the alert with which the
// server ends the connection; nil if it doesn't in time.
func (f frank) ask(r *http.Request) error {
	d := tls.Dialer{NetDialer: &net.Dialer{Timeout: askTimeout}, Config: f.TLSClientConfig}
	port := r.URL.Port()
	if port == "" {
		port = "443"
	}
	conn, err := d.DialContext(r.Context(), "tcp", net.JoinHostPort(r.URL.Hostname(), port))
	if err != nil {
		return nil
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetReadDeadline(time.Now().Add(askTimeout))
	_, err = conn.Read(make([]byte, 1))
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "remote error" {
		return err
	}
	return nil
}
