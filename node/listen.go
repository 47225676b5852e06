package node

import (
	"context"
	"crypto/tls"
	"errors"
	"maps"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/node/listener"
	"github.com/roster-mesh/roster/trust"
)

// maxNodeConns caps the connections of a listener for nodes. The nodes of a domain and of
// its peers need an eighth of it.
const maxNodeConns = 1024

// apiListener is the name of the listener that is open to everyone.
const apiListener = "api"

// limited caps the connections of one of the node's listeners, and counts the rejected.
func (n *Node) limited(name string, ln net.Listener, most, perAddress int) net.Listener {
	return listener.Limit{
		Max: most, PerAddress: perAddress, Paced: name == apiListener,
		OwnDomain: n.cfg.TrustDomain.Name(), Operator: n.isOperator,
		Rejected: n.metrics.Connections.WithLabelValues(name).Inc,
	}.Listen(ln)
}

// isOperator reports whether policy lets an identity do the least that operators do.
func (n *Node) isOperator(id string) bool {
	identity, err := directory.ParseIdentity(id)
	return err == nil && n.operates(identity)
}

// operates is isOperator of a parsed identity.
func (n *Node) operates(id directory.Identity) bool { return n.policy.Operate(id, "raft.read").Allow }

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
		drain, cancel := context.WithTimeout(bound, n.answers)
		defer cancel()

		// Requests that are still pending after the drain are cut.
		if err := server.Shutdown(drain); err != nil {
			_ = server.Close()
		}

		<-done

		return nil
	})
}

// drainTimeout is how long answers under way may take when a node stops: as long as a write is
// held while the domain has no leader (OPS-011).
const drainTimeout = 3 * time.Second

// togetherTime replaces drainTimeout if the mesh's nodes stop together. Connections of HTTP/2 would
// stay open for a second, idle or not.
const togetherTime = 250 * time.Millisecond

// answerGrace is how long an answer may take that is under way when the authority of its client is
// dropped: a former peer, for one, whose bundle is removed, waits for the answer to its farewell. Requests on
// its connections are answered until then, so that a rotation refuses none; new handshakes are refused at once.
const answerGrace = 5 * time.Second

// followBundles ends connections by certificates of authorities that a bundle no longer has, those
// of clients and those to other domains' nodes, until ctx ends.
func (d *dialledConns) followBundles(ctx context.Context, bundles *trust.Bundles, closeInvalid func()) {
	for changed := bundles.Changed(); ; {
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}

		// The channel is renewed before the connections are checked, so a change during the check isn't missed.
		changed = bundles.Changed()

		d.closeInvalid()

		select {
		case <-time.After(answerGrace):
		case <-ctx.Done():
			return
		}

		closeInvalid()
	}
}

// dialledConns are the open connections to nodes, each with the verification of its server. The
// zero value is ready.
type dialledConns struct {
	mu     sync.Mutex
	byConn map[*dialledConn]func() error
}

// A dialledConn is the connection below TLS.
type dialledConn struct {
	net.Conn
	all *dialledConns
}

// Close implements net.Conn.
func (c *dialledConn) Close() error {
	c.all.forget(c)

	return c.Conn.Close()
}

func (d *dialledConns) forget(c *dialledConn) {
	d.mu.Lock()
	defer d.mu.Unlock()

	delete(d.byConn, c)
}

// handshake completes the handshake of a client that has dialled host, and remembers the connection
// until it is closed. The server gets the name, by which a proxy before it may choose the node.
func (d *dialledConns) handshake(ctx context.Context, raw net.Conn, config *tls.Config, host string) (
	net.Conn, error) {
	dialled := &dialledConn{raw, d}
	named := config.Clone()
	named.ServerName = host
	conn := tls.Client(dialled, named)

	ctx, cancel := context.WithTimeout(ctx, listener.HeaderTimeout)
	defer cancel()

	if err := conn.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(err, raw.Close())
	}

	state := conn.ConnectionState()

	// VerifyConnection reads the bundles of the moment, so the same certificates can be judged again later.
	verify := func() error { return config.VerifyConnection(state) }

	d.mu.Lock()

	if d.byConn == nil {
		d.byConn = map[*dialledConn]func() error{}
	}

	d.byConn[dialled] = verify
	d.mu.Unlock()

	// A bundle may have changed since the handshake, before closeInvalid could see the connection.
	if err := verify(); err != nil {
		return nil, errors.Join(err, dialled.Close())
	}

	return conn, nil
}

// closeInvalid closes the connections whose servers would be refused now.
func (d *dialledConns) closeInvalid() {
	d.mu.Lock()

	// Close takes the lock to forget the connection, so no connection is closed under it.
	open := maps.Clone(d.byConn)
	d.mu.Unlock()

	for conn, verify := range open {
		if verify() != nil {
			_ = conn.Close()
		}
	}
}

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
		// A handshake by net/http would hide the connection from closeInvalid.
		DialTLSContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
			host, _, err := net.SplitHostPort(addr)
			if err != nil {
				return nil, err
			}

			raw, err := n.net.Dial(ctx, addr)
			if err != nil {
				return nil, err
			}

			return n.dialled.handshake(ctx, raw, config, host)
		},
		ForceAttemptHTTP2:     true,
		MaxIdleConnsPerHost:   4,
		IdleConnTimeout:       listener.IdleTimeout,
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
