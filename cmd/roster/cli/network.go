package cli

import (
	"errors"
	"net"
	"net/url"
	"syscall"
)

// NetworkCause returns why a request failed, in one line: a host without an address and an address
// that refused the connection are named, instead of the system call that failed.
func NetworkCause(err error) string {
	var (
		lookup    *net.DNSError
		operation *net.OpError
		request   *url.Error
	)

	switch {
	case errors.As(err, &lookup) && lookup.IsNotFound:
		return "the host " + lookup.Name + " doesn't resolve on this machine"
	case errors.As(err, &lookup):
		return "this machine's resolver has no answer for " + lookup.Name
	case errors.As(err, &operation) && errors.Is(err, syscall.ECONNREFUSED) && operation.Addr != nil:
		return "connection refused by " + operation.Addr.String()
	case errors.As(err, &request):
		return FirstLine(request.Err.Error())
	}

	return FirstLine(err.Error())
}
