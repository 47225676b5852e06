package dev

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"

	"github.com/roster-mesh/roster/node/port"
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
		number := first
		if first != 0 {
			number += i
		}

		addr, err := take(number)
		if err != nil {
			return nil, takenError(number, err)
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

// takenError names the process that listens on a port of 127.0.0.1.
func takenError(number int, err error) error {
	taken := "is taken"
	if holder := port.Holder(loopbackPort(number)); holder != "" {
		taken += " by " + holder
	}

	return fmt.Errorf("port %d %s: stop what listens there, or choose others with --port (0 picks free ones): %w",
		number, taken, err)
}
