package tracing

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/roster-mesh/roster/directory/egress"
)

var (
	errQueueFull = errors.New("the queue is full: the collector is too slow, or trace.sample too high")
	errRejected  = errors.New("the collector rejected spans")
)

// maxAnswer bounds the collector's answer in bytes.
const maxAnswer = 64 << 10

// A client posts batches to a collector. It is OTLP/HTTP with protobuf: the library's own client
// links the gRPC library (ADR 0036).
type client struct {
	endpoint string
	http     *http.Client
	rejected atomic.Uint64 // spans of accepted batches
}

func newClient(endpoint string, roots *x509.CertPool) *client {
	dialer := &net.Dialer{Timeout: exportTimeout / 2, Control: egress.Control(egress.Anywhere)}

	return &client{endpoint: endpoint, http: &http.Client{
		Transport: &http.Transport{
			DialContext:            dialer.DialContext,
			TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots},
			MaxConnsPerHost:        1,
			IdleConnTimeout:        time.Minute,
			MaxResponseHeaderBytes: maxAnswer,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Start implements otlptrace.Client.
func (c *client) Start(context.Context) error { return nil }

// Stop implements otlptrace.Client.
func (c *client) Stop(context.Context) error {
	c.http.CloseIdleConnections()
	return nil
}

// UploadTraces implements otlptrace.Client. If the collector is not reached or asks for it, it retries
// within retryTime.
func (c *client) UploadTraces(ctx context.Context, spans []*tracepb.ResourceSpans) error {
	// An ExportTraceServiceRequest has the same encoding, but its package links gRPC.
	body, err := proto.Marshal(&tracepb.TracesData{ResourceSpans: spans})
	if err != nil {
		return err
	}

	rejected, err := backoff.Retry(ctx, func() (uint64, error) { return c.post(ctx, body) },
		backoff.WithMaxElapsedTime(retryTime))
	c.rejected.Add(rejected)

	return err
}

// post sends a batch once, and returns how many of its spans the collector rejected.
func (c *client) post(ctx context.Context, body []byte) (rejected uint64, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.endpoint, bytes.NewReader(body))
	if err != nil {
		return 0, backoff.Permanent(err)
	}

	req.Header.Set("Content-Type", "application/x-protobuf")
	req.Header.Set("User-Agent", "roster")

	resp, err := c.http.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()

	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return 0, err
	}

	switch resp.StatusCode {
	case http.StatusOK:
		return rejectedSpans(answer), nil
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable,
		http.StatusGatewayTimeout: // to be retried by OTLP
		if wait, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && wait > 0 {
			return 0, backoff.RetryAfter(wait)
		}

		return 0, fmt.Errorf("the collector answered %d", resp.StatusCode)
	}

	return 0, backoff.Permanent(fmt.Errorf("the collector answered %d", resp.StatusCode))
}

// rejectedSpans reads from an ExportTraceServiceResponse how many spans were rejected:
// partial_success.rejected_spans. It is 0 if the answer is not such a message.
func rejectedSpans(answer []byte) uint64 {
	partial, _ := protowire.ConsumeBytes(field(answer, 1, protowire.BytesType))
	count, n := protowire.ConsumeVarint(field(partial, 1, protowire.VarintType))

	if n < 0 {
		return 0
	}

	return count
}

// field returns a message from the value of its first field of a number and type on; nil if there is
// none.
func field(message []byte, number protowire.Number, kind protowire.Type) []byte {
	for len(message) > 0 {
		num, typ, tag := protowire.ConsumeTag(message)
		if tag < 0 {
			return nil
		}

		if num == number && typ == kind {
			return message[tag:]
		}

		value := protowire.ConsumeFieldValue(num, typ, message[tag:])
		if value < 0 {
			return nil
		}

		message = message[tag+value:]
	}

	return nil
}
