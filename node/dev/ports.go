package dev

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A portPlan hands out addresses on loopback, and keeps them from everybody else until
// they are let go of.
type portPlan struct {
	apis []string
	rest []string
	held map[string]net.Listener // by address
}

// choosePorts takes count API ports from first on, or free ones if first is
// 0, and three more free ports for each.
func choosePorts(first, count int) (_ *portPlan, err error) {
	plan := &portPlan{held: map[string]net.Listener{}}
	defer func() {
		if err != nil {
			plan.close()
		}
	}()

	take := func(port int) (string, error) {
		listener, err := listenLoopback(port)
		if err != nil {
			return "", err
		}

		addr := listener.Addr().String()
		plan.held[addr] = listener

		return addr, nil
	}
	for i := range count {
		port := first
		if first != 0 {
			port += i
		}

		addr, err := take(port)
		if err != nil {
			return nil, fmt.Errorf("port %d is taken%s: stop what listens there, or choose others with --port (0 "+
				"picks free ones): %w", port, holder(port), err)
		}

		plan.apis = append(plan.apis, addr)
	}

	for range 3 * count {
		addr, err := take(0)
		if err != nil {
			return nil, err
		}

		plan.rest = append(plan.rest, addr)
	}

	return plan, nil
}

// listenLoopback listens on a port of 127.0.0.1, on a free one if it is 0. A
// free one is drawn from below those that systems give to outgoing connections:
// a node that was killed finds its ports again, and no connection on them.
func listenLoopback(port int) (net.Listener, error) {
	if port != 0 {
		return net.Listen("tcp", loopbackPort(port))
	}

	const lowest, ephemeral, tries = 10000, 32768, 64
	for range tries {
		l, err := net.Listen("tcp", loopbackPort(lowest+rand.IntN(ephemeral-lowest)))
		if err == nil {
			return l, nil
		}
	}

	return net.Listen("tcp", loopbackPort(0))
}

func loopbackPort(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

func (p *portPlan) nextAPI() string {
	a := p.apis[0]
	p.apis = p.apis[1:]

	return a
}

func (p *portPlan) next() string {
	a := p.rest[0]
	p.rest = p.rest[1:]

	return a
}

// letGo lets go of a node's addresses, for the node itself, which starts next.
func (p *portPlan) letGo(n *Node) {
	for _, at := range []string{n.API, n.Admin, n.Gossip, n.Raft} {
		addr := at[strings.LastIndexByte(at, '/')+1:]
		if l, ok := p.held[addr]; ok {
			_ = l.Close()
			delete(p.held, addr)
		}
	}
}

func (p *portPlan) close() {
	for _, l := range p.held {
		_ = l.Close()
	}
}

// holder names the process that listens on a port, if this system lets one
// see it: " by process 4711 (roster)", else nothing.
func holder(port int) string {
	socket := listeningSocket(port)
	if socket == "" {
		return ""
	}

	links, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, link := range links {
		if to, err := os.Readlink(link); err == nil && to == "socket:["+socket+"]" {
			pid := strings.Split(link, "/")[2]
			name, _ := os.ReadFile("/proc/" + pid + "/comm")

			return fmt.Sprintf(" by process %s (%s)", pid, strings.TrimSpace(string(name)))
		}
	}

	return ""
}

// hereIn are the addresses by which a socket listens on 127.0.0.1, as the kernel's tables of
// sockets write them: that address, all of IPv4, and all of IPv6.
var hereIn = []string{"0100007F", "00000000", "00000000000000000000000000000000",
	"0000000000000000FFFF00000100007F"}

// listeningSocket returns the inode of the socket that listens on a port of 127.0.0.1.
func listeningSocket(port int) string {
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		data, err := os.ReadFile(table)
		if err != nil {
			continue
		}

		for line := range strings.Lines(string(data)) {
			f := strings.Fields(line) // sl local remote state … inode: proc(5)
			if len(f) <= 9 || f[3] != "0A" {
				continue
			}

			address, at, _ := strings.Cut(f[1], ":")
			if at == fmt.Sprintf("%04X", port) && slices.Contains(hereIn, address) {
				return f[9]
			}
		}
	}

	return ""
}
