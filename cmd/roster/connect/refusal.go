package connect

import (
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"time"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/cmd/roster/cli"
)

// In TLS 1.3 the server judges the client's certificate after the client has finished the
// handshake. The request that the client sends meanwhile can break the connection before
// the client reads the server's alert. The request then fails with a broken connection,
// which doesn't say why.

// probeTimeout bounds each step of the connection that looks for an alert.
const probeTimeout = 3 * time.Second

// A refusalTransport finds out whether a connection broke because the server refused the
// client certificate, and then returns the server's alert as the error.
type refusalTransport struct{ *http.Transport }

// RoundTrip implements http.RoundTripper.
func (t refusalTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.Transport.RoundTrip(r)
	if err == nil || r.Context().Err() != nil || explainsItself(err) {
		return resp, err
	}

	if alert := t.probe(r); alert != nil {
		return nil, alert
	}

	return nil, err
}

// explainsItself reports whether an error already says why the connection failed.
func explainsItself(err error) bool {
	var (
		certificate *tls.CertificateVerificationError
		server      *apiclient.ServerError
		failure     *cli.Failure
		operation   *net.OpError
	)

	return errors.As(err, &certificate) || errors.As(err, &server) || errors.As(err, &failure) ||
		errors.As(err, &operation) && (operation.Op == "dial" || operation.Op == "remote error")
}

// probe makes a connection, sends nothing, and returns the alert with which the server ends
// it; nil if no alert comes in time.
func (t refusalTransport) probe(r *http.Request) error {
	port := r.URL.Port()
	if port == "" {
		port = "443"
	}

	dialer := tls.Dialer{NetDialer: &net.Dialer{Timeout: probeTimeout}, Config: t.TLSClientConfig}

	conn, err := dialer.DialContext(r.Context(), "tcp", net.JoinHostPort(r.URL.Hostname(), port))
	if err != nil {
		return nil
	}

	defer func() { _ = conn.Close() }()

	_ = conn.SetReadDeadline(time.Now().Add(probeTimeout))
	_, err = conn.Read(make([]byte, 1))

	var operation *net.OpError
	if errors.As(err, &operation) && operation.Op == "remote error" {
		return err
	}

	return nil
}
