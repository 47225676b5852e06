package node

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/node/listener"
	"github.com/roster-mesh/roster/trust"
)

// maxNodeConns caps the connections of a listener for nodes. The nodes of a domain and of
// its peers need an eighth of it.
const maxNodeConns = 1024

// limited caps the connections of one of the node's listeners, and counts the rejected.
func (n *Node) limited(name string, ln net.Listener, most, perAddress int) net.Listener {
	return listener.Limit{
		Max: most, PerAddress: perAddress, Division: n.cfg.Limits.Shares.Division(),
		OwnDomain: n.cfg.TrustDomain.Name(), Operator: n.isOperator,
		Rejected: n.metrics.connections.WithLabelValues(name).Inc,
	}.Listen(ln)
}

// isOperator reports whether policy lets an identity do the least that operators do.
func (n *Node) isOperator(id string) bool {
	identity, err := directory.ParseIdentity(id)
	return err == nil && n.policy.Operate(identity, "raft.read").Allow
}

// serve runs s on ln until its turn to stop comes.
func (n *Node) serve(name string, server *http.Server, ln net.Listener) {
	done := make(chan struct{})
	go func() {
		defer close(done)

		var err error
		if server.TLSConfig != nil {
			err = server.ServeTLS(ln, "", "")
		} else {
			err = server.Serve(ln)
		}

		if !errors.Is(err, http.ErrServerClosed) {
			n.log.Error("a listener ended", "listener", name, "err", err)
		}
	}()
	n.life.onStop(name, func(bound context.Context) error {
		drain, cancel := context.WithTimeout(bound, drainTimeout)
		defer cancel()

		if err := server.Shutdown(drain); err != nil { // requests that are still pending are cut
			_ = server.Close()
		}

		<-done

		return nil
	})
}

// drainTimeout is how long answers under way may take when a node stops: as long as a write is
// held while the domain has no leader (OPS-011).
const drainTimeout = 3 * time.Second

// client returns the HTTP client for a domain, one for each. It accepts only servers
// that present an SVID of that domain's nodes.
func (n *Node) client(td spiffeid.TrustDomain) *http.Client {
	n.mu.Lock()
	defer n.mu.Unlock()

	if c, ok := n.clients[td]; ok {
		return c
	}

	config := trust.ClientTLS(n.source, n.bundles, AuthorizeNodesOf(td), "h2", "http/1.1")
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
			return n.net.Dial(ctx, addr)
		},
		TLSClientConfig:       config,
		ForceAttemptHTTP2:     true,
		MaxIdleConnsPerHost:   4,
		IdleConnTimeout:       listener.IdleTimeout,
		TLSHandshakeTimeout:   listener.HeaderTimeout,
		ResponseHeaderTimeout: 75 * time.Second, // over the longest wait that a pull may ask for

		// A connection over which nothing comes is given up, so that the next request makes
		// a new one: a path that is there again may have forgotten the old one.
		HTTP2: &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 5 * time.Second},
	}
	c := &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	n.clients[td] = c

	return c
}
