package connect

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"strings"
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

// A refusalTransport finds out why a connection broke: because the server refused the client
// certificate, or because the port is not that of a directory's API.
type refusalTransport struct{ *http.Transport }

// RoundTrip implements http.RoundTripper.
func (t refusalTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.Transport.RoundTrip(r)

	// After the end of the context, the error is an effect of that.
	if err == nil || r.Context().Err() != nil {
		return resp, err
	}

	if speaksNoTLS(err) {
		return nil, wrongPort(r, "no TLS is spoken there")
	}

	if explainsItself(err) {
		// The error names the cause, and a probe would only delay it.
		return nil, err
	}

	alert := err
	if !isAlert(err) {
		// A connection that sends no request can still read the alert.
		if alert = t.probe(r); alert == nil {
			return nil, err
		}
	}

	if t.isOtherPort(r, alert) {
		return nil, wrongPort(r, "another protocol is spoken there")
	}

	return nil, alert
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
		errors.As(err, &operation) && operation.Op == "dial"
}

// isAlert reports whether an error is an alert of the server.
func isAlert(err error) bool {
	var operation *net.OpError
	return errors.As(err, &operation) && operation.Op == "remote error"
}

// speaksNoTLS reports whether something answered, but not by TLS.
func speaksNoTLS(err error) bool {
	return errors.Is(err, http.ErrSchemeMismatch) || errors.As(err, new(tls.RecordHeaderError))
}

// alertNoProtocol is the text of the alert of a server that speaks none of the client's
// application protocols (RFC 7301, 3.2).
const alertNoProtocol = "no application protocol"

// memberProtocol is spoken at listen.cluster alone (consensus/transport.ProtocolRaft).
const memberProtocol = "roster-raft/1"

// isOtherPort reports whether the server that sent the alert is not a directory's API.
func (t refusalTransport) isOtherPort(r *http.Request, alert error) bool {
	if strings.Contains(alert.Error(), alertNoProtocol) {
		return true
	}

	// Only a cluster port accepts the protocol of members; an API refuses it.
	config := t.TLSClientConfig.Clone()
	config.NextProtos = []string{memberProtocol}

	conn, err := dial(r, config)
	if err != nil {
		return false
	}

	defer func() { _ = conn.Close() }()

	return conn.ConnectionState().NegotiatedProtocol == memberProtocol
}

// wrongPort is the failure of a request to a port that is not the API's.
func wrongPort(r *http.Request, why string) error {
	return wrongPortError{cli.Failed(cli.ExitUnavailable, "%s is not the directory's API port: %s", portOf(r), why).
		WithHint("--address (or ROSTER_ADDRESS) must be the node's listen.api, 8400 by default, or its public_url.")}
}

// A wrongPortError is an apiclient.ErrWrongServer.
type wrongPortError struct{ error }

// Unwrap returns the failure.
func (e wrongPortError) Unwrap() error { return e.error }

// Is implements the method that errors.Is calls.
func (wrongPortError) Is(kind error) bool { return kind == apiclient.ErrWrongServer }

func portOf(r *http.Request) string {
	if port := r.URL.Port(); port != "" {
		return port
	}

	return "443"
}

// probe makes a connection, sends nothing, and returns the alert with which the server ends
// it; nil if no alert comes in time.
func (t refusalTransport) probe(r *http.Request) error {
	conn, err := dial(r, t.TLSClientConfig)
	if isAlert(err) {
		return err
	}

	if err != nil {
		return nil
	}

	defer func() { _ = conn.Close() }()

	// A server that accepts the certificate sends nothing, so the read must end by itself.
	_ = conn.SetReadDeadline(time.Now().Add(probeTimeout))

	if _, err = conn.Read(make([]byte, 1)); isAlert(err) {
		return err
	}

	return nil
}

// dial makes a connection to the server of a request.
func dial(r *http.Request, config *tls.Config) (*tls.Conn, error) {
	ctx, cancel := context.WithTimeout(r.Context(), probeTimeout)
	defer cancel()

	dialer := tls.Dialer{Config: config}

	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(r.URL.Hostname(), portOf(r)))
	if err != nil {
		return nil, err
	}

	return conn.(*tls.Conn), nil // as tls.Dialer promises
}
