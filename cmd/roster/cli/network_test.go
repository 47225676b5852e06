package cli

import (
	"errors"
	"net"
	"net/url"
	"os"
	"syscall"
	"testing"
)

func TestANetworkFailureNamesItsCause(t *testing.T) {
	get := func(err error) error { return &url.Error{Op: "Get", URL: "https://weather.example/", Err: err} }
	dial := func(err error) error {
		at := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9}
		return get(&net.OpError{Op: "dial", Net: "tcp", Addr: at, Err: err})
	}

	for want, err := range map[string]error{
		"the host weather.example doesn't resolve on this machine": dial(
			&net.DNSError{Err: "no such host", Name: "weather.example", Server: "192.0.2.1:53", IsNotFound: true}),
		"this machine's resolver has no answer for weather.example": dial(
			&net.DNSError{Err: "i/o timeout", Name: "weather.example", Server: "192.0.2.1:53", IsTimeout: true}),
		"connection refused by 127.0.0.1:9": dial(
			os.NewSyscallError("connect", syscall.ECONNREFUSED)),
		"dial tcp 127.0.0.1:9: connect: network is unreachable": dial(
			os.NewSyscallError("connect", syscall.ENETUNREACH)),
		"unexpected EOF":    get(errors.New("unexpected EOF")),
		"no request at all": errors.New("no request at all\nin two lines"),
	} {
		if got := NetworkCause(err); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
