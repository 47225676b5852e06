package gateway

import (
	"crypto/tls"
	"errors"
	"net"
	"syscall"
)

// An unreachedError is that no connection to a server was made, so that it got no request.
type unreachedError struct {
	class string // name, connect or tls
	err   error
}

func (u *unreachedError) Error() string { return u.class + ": " + u.err.Error() }

// Unwrap returns the cause.
func (u *unreachedError) Unwrap() error { return u.err }

// notReached returns why a server couldn't be dialled.
func notReached(err error) error {
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		return &unreachedError{"name", err}
	}

	return &unreachedError{"connect", err}
}

// classOf describes the class of a failure to the agent's owner: name, connect, tls or http. It
// discloses no address, because a registrant may name hosts of which it isn't to learn any.
func classOf(err error) string {
	var (
		unreached *unreachedError
		record    tls.RecordHeaderError
		refusal   *Refusal
	)

	switch {
	case !errors.As(err, &unreached):
		return "http: the server closed the connection, or its answer is not HTTP"
	case unreached.class == "name":
		return "name: the endpoint's host name doesn't resolve at this node"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connect: the endpoint refuses connections"
	case unreached.class == "connect":
		return "connect: no connection to the endpoint can be made"
	case errors.As(err, &record):
		return "tls: the server doesn't speak TLS; it may serve plain http"
	case errors.As(err, &refusal):
		return "tls: " + refusal.Detail
	}

	return "tls: the handshake failed: " + oneLine(err.Error())
}
