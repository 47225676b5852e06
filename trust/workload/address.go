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
	u, err := url.Parse(text)
	if err != nil {
		return Address{}, fmt.Errorf("not a valid URI: %w", err)
	}

	// Both forms forbid the same parts.
	switch {
	case u.Scheme != "unix" && u.Scheme != "tcp":
		return Address{}, errors.New("the scheme must be unix or tcp")
	case u.Opaque != "":
		return Address{}, fmt.Errorf("two slashes must follow the scheme: %s://", u.Scheme)
	case u.User != nil:
		return Address{}, errors.New("the URI must not include user information")
	case u.RawQuery != "" || u.ForceQuery:
		return Address{}, errors.New("the URI must not include a query")
	case u.Fragment != "":
		return Address{}, errors.New("the URI must not include a fragment")
	}

	if u.Scheme == "unix" {
		return parseSocket(u)
	}

	return parseTCP(u)
}

func parseSocket(u *url.URL) (Address, error) {
	switch {
	case u.Host != "":
		return Address{}, errors.New("a unix URI has three slashes before the path: unix:///PATH")
	case u.Path == "":
		return Address{}, errors.New("a unix URI must include a path")
	}

	return Address{network: "unix", target: u.Path}, nil
}

func parseTCP(u *url.URL) (Address, error) {
	ip := net.ParseIP(u.Hostname())

	switch {
	case u.Path != "":
		return Address{}, errors.New("a tcp URI must not include a path")
	case ip == nil:
		return Address{}, errors.New("the host of a tcp URI must be an IP address")
	case u.Port() == "":
		return Address{}, errors.New("a tcp URI must include a port")
	}

	return Address{network: "tcp", target: net.JoinHostPort(ip.String(), u.Port())}, nil
}

// authority is the value of the :authority header, as gRPC libraries send it.
func (a Address) authority() string {
	if a.network == "unix" {
		return "localhost"
	}

	return a.target
}
