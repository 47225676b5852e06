package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"syscall"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/node/config"
	"github.com/roster-mesh/roster/node/listener"
	"github.com/roster-mesh/roster/trust"
)

// A Network is what a node listens on and dials by. The zero value is the
// machine's TCP.
type Network struct {
	Listen func(addr string) (net.Listener, error)
	Dial   func(ctx context.Context, addr string) (net.Conn, error)
}

func (n Network) orTCP() Network {
	if n.Listen == nil {
		n.Listen = listenTCP
	}
	if n.Dial == nil {
		d := &net.Dialer{Timeout: 5 * time.Second, KeepAlive: 15 * time.Second}
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

// listeners are a node's but for admin's, bound before what they are for starts.
type listeners struct {
	api, cluster, gossip net.Listener // gossip is nil where it is off
}

// bind binds all of these listeners, or none.
func bind(n Network, cfg *config.Config) (l listeners, err error) {
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
		ln, err := n.Listen(b.addr)
		if err != nil {
			for _, other := range bound {
				err = errors.Join(err, other.Close())
			}
			return listeners{}, fmt.Errorf("listen.%s: %w", b.key, err)
		}
		*b.into = ln
		bound = append(bound, ln)
	}
	return l, nil
}

// maxNodeConns caps the connections of a listener for nodes. The nodes of a domain and of
// its peers need an eighth of it.
const maxNodeConns = 1024

// limited caps the connections of one of the node's listeners, and counts the rejected.
func (n *Node) limited(name string, ln net.Listener, most, perAddress int) net.Listener {
	rejected := n.metrics.connections.WithLabelValues(name).Inc

	return listener.Limit(ln, most, perAddress, n.cfg.TrustDomain.Name(), rejected)
}

// serve runs s on ln until its turn to stop comes.
func (n *Node) serve(name string, s *http.Server, ln net.Listener) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		var err error
		if s.TLSConfig != nil {
			err = s.ServeTLS(ln, "", "")
		} else {
			err = s.Serve(ln)
		}
		if !errors.Is(err, http.ErrServerClosed) {
			n.log.Error("a listener ended", "listener", name, "err", err)
		}
	}()
	n.life.onStop(name, func(bound context.Context) error {
		drain, cancel := context.WithTimeout(bound, drainTimeout)
		defer cancel()
		if err := s.Shutdown(drain); err != nil { // what still goes on is cut
			_ = s.Close()
		}
		<-done
		return nil
	})
}

// drainTimeout is how long answers under way may take when a node stops.
const drainTimeout = time.Second

// clients makes and keeps one HTTP client a domain. Each takes only servers that
// show an SVID of that domain's nodes.
func (n *Node) client(td spiffeid.TrustDomain) *http.Client {
	n.mu.Lock()
	defer n.mu.Unlock()
	if c, ok := n.clients[td]; ok {
		return c
	}
	config := trust.ClientTLS(n.source, n.bundles, AuthorizeNodesOf(td), "h2", "http/1.1")
	transport := &http.Transport{
		DialContext:           func(ctx context.Context, _, addr string) (net.Conn, error) { return n.net.Dial(ctx, addr) },
		TLSClientConfig:       config,
		ForceAttemptHTTP2:     true,
		MaxIdleConnsPerHost:   4,
		IdleConnTimeout:       listener.IdleTimeout,
		TLSHandshakeTimeout:   listener.HeaderTimeout,
		ResponseHeaderTimeout: 75 * time.Second, // over the longest wait that a pull may ask for
	}
	c := &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	n.clients[td] = c
	return c
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

// close closes what was bound for parts that were never started; closing twice
// is harmless.
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
