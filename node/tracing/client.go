package tracing

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"

	"github.com/roster-mesh/roster/directory/egress"
)

var errQueueFull = errors.New("the queue is full: the collector is too slow, or trace.sample too high")

// maxAnswer bounds the collector's answer in bytes.
const maxAnswer = 64 << 10

// A client posts batches to a collector by OTLP/HTTP. If the collector is not reached or
// asks for it, the client retries within retryTime.
type client struct {
	otlptrace.Client
	transport *http.Transport
}

func newClient(endpoint string, roots *x509.CertPool) *client {
	dialer := &net.Dialer{Timeout: exportTimeout / 2, Control: egress.Control(egress.Anywhere)}
	transport := &http.Transport{
		DialContext:            dialer.DialContext,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots},
		MaxConnsPerHost:        1,
		IdleConnTimeout:        time.Minute,
		MaxResponseHeaderBytes: maxAnswer,
	}

	return &client{transport: transport, Client: otlptracehttp.NewClient(
		otlptracehttp.WithEndpointURL(endpoint),
		// Of the library's environment variables, those of the endpoint, the encoding and TLS are
		// the configuration's.
		otlptracehttp.WithEncoding(otlptracehttp.EncodingProtobuf),
		otlptracehttp.WithTLSClientConfig(nil),
		otlptracehttp.WithMaxResponseSize(maxAnswer),
		otlptracehttp.WithRetry(otlptracehttp.RetryConfig{Enabled: true, InitialInterval: retryTime / 16,
			MaxInterval: retryTime / 2, MaxElapsedTime: retryTime}),
		otlptracehttp.WithHTTPClient(&http.Client{
			Transport:     &retriedTransport{transport},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}))}
}

// Stop implements otlptrace.Client.
func (c *client) Stop(ctx context.Context) error {
	err := c.Client.Stop(ctx)
	c.transport.CloseIdleConnections()

	return err
}

// A retriedTransport marks each failure as temporary. OTLP asks a client to retry if the
// collector is not reached; the library does so after timeouts only.
type retriedTransport struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t *retriedTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.RoundTripper.RoundTrip(req)
	if err != nil {
		return nil, temporaryError{err}
	}

	return resp, nil
}

type temporaryError struct{ error }

// Temporary is asked by the library.
func (temporaryError) Temporary() bool { return true }

func (e temporaryError) Unwrap() error { return e.error }

// partialSuccess is the text of the library's error of a batch that was taken in part; its
// type is internal.
var partialSuccess = regexp.MustCompile(`\((\d+) spans rejected\)$`)

// rejectedSpans returns how many spans of a batch the collector rejected, by the error of
// the export; false if the batch failed altogether.
func rejectedSpans(err error) (count uint64, ok bool) {
	match := partialSuccess.FindStringSubmatch(err.Error())
	if match == nil {
		return 0, false
	}

	count, err = strconv.ParseUint(match[1], 10, 64)

	return count, err == nil
}
