package workload

import (
	"errors"
	"fmt"
	"net"
	"net/url"
)

// An Address is where a Workload API listens: a Unix socket or a TCP address.
type Address struct {
	network string // unix or tcp
	target  string // a path, or IP:PORT
}

// ParseAddress parses unix:///PATH or tcp://IP:PORT (SPIFFE Workload Endpoint, 4).
func ParseAddress(text string) (Address, error) {
	target, err := url.Parse(text)
	if err != nil {
		return Address{}, fmt.Errorf("not a valid URI: %w", err)
	}

	// Both forms forbid the same parts.
	switch {
	case target.Scheme != "unix" && target.Scheme != "tcp":
		return Address{}, errors.New("the scheme must be unix or tcp")
	case target.Opaque != "":
		return Address{}, fmt.Errorf("two slashes must follow the scheme: %s://", target.Scheme)
	case target.User != nil:
		return Address{}, errors.New("the URI must not include user information")
	case target.RawQuery != "" || target.ForceQuery:
		return Address{}, errors.New("the URI must not include a query")
	case target.Fragment != "":
		return Address{}, errors.New("the URI must not include a fragment")
	}

	if target.Scheme == "unix" {
		return parseSocket(target)
	}

	return parseTCP(target)
}

func parseSocket(target *url.URL) (Address, error) {
	switch {
	case target.Host != "":
		return Address{}, errors.New("a unix URI has three slashes before the path: unix:///PATH")
	case target.Path == "":
		return Address{}, errors.New("a unix URI must include a path")
	}

	return Address{network: "unix", target: target.Path}, nil
}

func parseTCP(target *url.URL) (Address, error) {
	ip := net.ParseIP(target.Hostname())

	switch {
	case target.Path != "":
		return Address{}, errors.New("a tcp URI must not include a path")
	case ip == nil:
		return Address{}, errors.New("the host of a tcp URI must be an IP address")
	case target.Port() == "":
		return Address{}, errors.New("a tcp URI must include a port")
	}

	return Address{network: "tcp", target: net.JoinHostPort(ip.String(), target.Port())}, nil
}

// authority is the value of the :authority header, as gRPC libraries send it.
func (a Address) authority() string {
	if a.network == "unix" {
		return "localhost"
	}

	return a.target
}
