package workload

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

const (
	service    = "/SpiffeWorkloadAPI/"
	prefixSize = 5       // of a message: a flag and its length
	maxMessage = 4 << 20 // gRPC's own default limit
)

// A Code is a gRPC status code.
type Code uint32

// The codes for which the specification defines a client's behaviour
// (SPIFFE Workload API, 4.4), and those that this client sets.
const (
	Canceled         Code = 1
	Unknown          Code = 2
	InvalidArgument  Code = 3
	PermissionDenied Code = 7
	Unimplemented    Code = 12
	Internal         Code = 13
	Unavailable      Code = 14
)

// An Error is the status with which a call failed. The code is Unavailable when no
// response arrived.
type Error struct {
	Code    Code
	Message string
	cause   error
}

func (e *Error) Error() string {
	name := map[Code]string{
		Canceled: "canceled", InvalidArgument: "invalid argument", PermissionDenied: "permission denied",
		Unimplemented: "not implemented", Internal: "internal error", Unavailable: "unavailable",
	}[e.Code]
	if name == "" {
		name = "status " + strconv.Itoa(int(e.Code))
	}

	return name + ": " + e.Message
}

// Unwrap returns the network's error, if one is the cause.
func (e *Error) Unwrap() error { return e.cause }

func failed(code Code, format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	return &Error{Code: code, Message: err.Error(), cause: errors.Unwrap(err)}
}

// call sends one request message to a method and calls each for every message of the
// response, until the response ends or each returns an error. The error of each is
// returned unchanged; every other error is an *Error.
func (c *Client) call(ctx context.Context, method string, request []byte, each func(message []byte) error) error {
	// The stream is reset when each gives up before the response ends.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+method, bytes.NewReader(frame(request)))
	if err != nil {
		return failed(Internal, "%w", err)
	}

	req.Header.Set("Content-Type", "application/grpc")
	req.Header.Set("TE", "trailers")
	req.Header.Set("workload.spiffe.io", "true") // SPIFFE Workload Endpoint, 6

	resp, err := c.http.Do(req)
	if err != nil {
		return interrupted(ctx, err)
	}

	defer func() { _ = resp.Body.Close() }()

	if err := checkHead(resp); err != nil {
		return err
	}

	for {
		message, err := readFrame(resp.Body)
		switch {
		case errors.Is(err, io.EOF):
			return outcome(resp.Trailer)
		case err != nil:
			return interrupted(ctx, err)
		}

		if err := each(message); err != nil {
			return err
		}
	}
}

// interrupted classifies an error of the transport.
func interrupted(ctx context.Context, err error) error {
	var status *Error
	switch {
	case errors.As(err, &status):
		return status
	case ctx.Err() != nil:
		return failed(Canceled, "%w", err)
	}

	// url.Error repeats method and URL, which are the same for every call.
	if wrapped := (*url.Error)(nil); errors.As(err, &wrapped) {
		err = wrapped.Err
	}

	return failed(Unavailable, "%w", err)
}

// checkHead returns an error unless messages follow. A call that fails at once may
// have its status in the headers ("Trailers-Only").
func checkHead(resp *http.Response) error {
	if resp.Header.Get("grpc-status") != "" {
		if err := outcome(resp.Header); err != nil {
			return err
		}
	}

	if resp.StatusCode != http.StatusOK {
		return failed(Unavailable, "the endpoint answered with HTTP status %s", resp.Status)
	}

	if mediaType := resp.Header.Get("Content-Type"); !strings.HasPrefix(mediaType, "application/grpc") {
		return failed(Unknown, "the endpoint is not a gRPC server: content type %q", mediaType)
	}

	return nil
}

// outcome reads the outcome of a call: nil when it is OK.
func outcome(trailer http.Header) error {
	text := trailer.Get("grpc-status")
	if text == "0" {
		return nil
	}

	code, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return failed(Unavailable, "the response ended without a status")
	}

	message := trailer.Get("grpc-message")
	if plain, err := url.PathUnescape(message); err == nil {
		message = plain
	}

	return &Error{Code: Code(code), Message: message}
}

// frame returns a message with gRPC's prefix: not compressed, and its length.
func frame(message []byte) []byte {
	framed := make([]byte, prefixSize, prefixSize+len(message))
	binary.BigEndian.PutUint32(framed[1:], uint32(len(message)))

	return append(framed, message...)
}

// readFrame reads one message; io.EOF is the regular end.
func readFrame(from io.Reader) ([]byte, error) {
	var prefix [prefixSize]byte
	if _, err := io.ReadFull(from, prefix[:]); err != nil {
		return nil, err
	}

	size := binary.BigEndian.Uint32(prefix[1:])

	switch {
	case prefix[0] != 0:
		return nil, failed(Unimplemented, "the endpoint sent a compressed message, though none was asked for")
	case size > maxMessage:
		return nil, failed(Internal, "a message of %d bytes is over the limit of %d", size, maxMessage)
	}

	message := make([]byte, size)
	if _, err := io.ReadFull(from, message); err != nil {
		// The message was cut off, even if that was exactly after the prefix.
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}

		return nil, err
	}

	return message, nil
}
