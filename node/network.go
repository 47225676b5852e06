package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory/egress"
	"github.com/roster-mesh/roster/node/config"
	"github.com/roster-mesh/roster/node/listener"
	"github.com/roster-mesh/roster/node/port"
	"github.com/roster-mesh/roster/trust"
)

// A Network provides a node's listeners and connections. The zero value is the machine's
// TCP.
type Network struct {
	Listen func(addr string) (net.Listener, error)
	Dial   func(ctx context.Context, addr string) (net.Conn, error)
	// fetch dials the endpoints of peers' bundles; nil for the machine's TCP, whose
	// addresses package trust judges.
	fetch func(ctx context.Context, addr string) (net.Conn, error)
	// resolve returns the addresses of a host name; nil for networks without names.
	resolve func(ctx context.Context, host string) ([]string, error)
	// private listens on a Unix socket of this account; nil for networks without any.
	private func(path string) (net.Listener, error)
}

func (n Network) orTCP() Network {
	if n.Listen == nil {
		n.Listen = listenTCP
		n.private = listener.ListenPrivate
	}

	// For TCP it stays nil: package trust dials the endpoints of bundles, and judges their addresses.
	n.fetch = n.Dial

	if n.Dial == nil {
		n.resolve = net.DefaultResolver.LookupHost
		// Peers name addresses too, in key documents and by gossip.
		d := &net.Dialer{
			Timeout: 5 * time.Second, KeepAlive: 15 * time.Second, Control: egress.Control(egress.Anywhere),
		}
		n.Dial = func(ctx context.Context, addr string) (net.Conn, error) { return d.DialContext(ctx, "tcp", addr) }
	}

	return n
}

// takenFor is how long a node that starts waits for an address that something has: its
// predecessor, which was killed a moment ago and is not quite gone.
const takenFor = 2 * time.Second

func listenTCP(addr string) (net.Listener, error) {
	again := time.Tick(50 * time.Millisecond)
	for began := time.Now(); ; <-again {
		ln, err := net.Listen("tcp", addr)
		if !errors.Is(err, syscall.EADDRINUSE) || time.Since(began) > takenFor {
			return ln, err
		}
	}
}

// listeners are a node's listeners except the admin listener. They are bound before the
// parts that use them start.
type listeners struct {
	api, cluster, gossip net.Listener // gossip is nil if it is off
}

// bind binds all of these listeners, or none.
func bind(network Network, cfg *config.Config) (l listeners, err error) {
	var bound []net.Listener
	for _, b := range []struct {
		key, addr string
		into      *net.Listener
	}{
		{"api", cfg.Listen.API, &l.api},
		{"cluster", cfg.Listen.Cluster, &l.cluster}, {"gossip", cfg.Listen.Gossip, &l.gossip},
	} {
		if b.key == "gossip" && !cfg.Gossip.Enabled {
			continue
		}

		ln, err := network.Listen(b.addr)
		if err != nil {
			for _, other := range bound {
				err = errors.Join(err, other.Close())
			}

			return listeners{}, port.Explain("listen."+b.key, b.addr, err)
		}

		*b.into = ln
		bound = append(bound, ln)
	}

	return l, nil
}

// AuthorizeNodesOf returns a check that allows the nodes of one domain.
func AuthorizeNodesOf(td spiffeid.TrustDomain) func(spiffeid.ID) error {
	return func(id spiffeid.ID) error {
		if !trust.IsNode(id, td) {
			return fmt.Errorf("%s is no node of %s", id, td.Name())
		}

		return nil
	}
}

// close closes the listeners of parts that were never started; closing twice is
// harmless.
func (l listeners) close() error {
	var err error
	for _, ln := range []net.Listener{l.api, l.cluster, l.gossip} {
		if ln == nil {
			continue
		}

		if e := ln.Close(); e != nil && !errors.Is(e, net.ErrClosed) {
			err = errors.Join(err, e)
		}
	}

	return err
}
