package scenarios

import (
	"fmt"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"github.com/roster-mesh/roster/node/dev"
)

// hold keeps the ports of a killed node from being given to other tests, until release.
// Nothing answers at them.
func (p *processes) hold(n dev.Node) {
	p.t.Helper()

	for _, address := range []string{n.API, n.Admin, n.Gossip, n.Raft} {
		_, hostport, found := strings.Cut(address, "://")
		if !found {
			hostport = address
		}

		at, err := netip.ParseAddrPort(hostport)
		must(p.t, err)

		p.eventually("the killed node's "+address+" is free", func() error {
			fd, err := bind(at)
			if err == nil {
				p.held[n.ID] = append(p.held[n.ID], fd)
			}

			return err
		})
	}
}

// reserve holds so many free ports for a node that starts later, until release.
func (p *processes) reserve(id string, many int) (addresses []string) {
	p.t.Helper()

	for range many {
		fd, address := reserved(p.t)
		p.held[id], addresses = append(p.held[id], fd), append(addresses, address)
	}

	return addresses
}

// reserved binds a socket to a free port.
func reserved(t *testing.T) (fd int, address string) {
	t.Helper()

	fd, err := bind(netip.MustParseAddrPort("127.0.0.1:0"))
	must(t, err)

	at, err := syscall.Getsockname(fd)
	must(t, err)

	return fd, fmt.Sprint("127.0.0.1:", at.(*syscall.SockaddrInet4).Port)
}

// bind binds a socket and doesn't listen. The kernel no longer assigns the port to
// others, and the node can still listen on it.
func bind(at netip.AddrPort) (fd int, err error) {
	fd, err = syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}

	if err = syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err == nil {
		err = syscall.Bind(fd, &syscall.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()})
	}

	if err != nil {
		_ = syscall.Close(fd)
		return 0, err
	}

	return fd, nil
}

func (p *processes) release(id string) {
	for _, fd := range p.held[id] {
		_ = syscall.Close(fd)
	}

	delete(p.held, id)
}
