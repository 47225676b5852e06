package consensus

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// The protocols of the one cluster port, told apart by ALPN.
const (
	protoRaft = "roster-raft/1"
	protoHTTP = "h2"
	protoLine = "roster-write/1"
	protoJoin = "http/1.1" // with one route, for nodes that want to be members
)

const (
	handshakeTimeout = 5 * time.Second
	maxHandshakes    = 1024 // at a time; that no address has all of them is for Config.Listener to see to
)

var errSilent = errors.New("this member keeps silent: its disk hangs")

var errNotMember = errors.New("the peer is not the member it should be")

// A cluster is the listener that a domain's nodes talk over: Raft and HTTP, both
// within mutual TLS, both between members only; and a door for those that want to
// be members.
type cluster struct {
	// known returns the members and who leads them; none where this node is in no
	// domain yet.
	known func() []Member
	// vouched asks known members whether they know of another.
	vouched  func(context.Context, spiffeid.ID) bool
	server   *tls.Config
	clients  *tls.Config
	dial     func(context.Context, string) (net.Conn, error)
	listener net.Listener
	log      *slog.Logger
	raft     *acceptor
	web      *acceptor
	door     *acceptor
	lines    *acceptor
	http     *http.Server
	join     *http.Server
	client   *http.Client
	guest    *http.Client // by which this node asks to be a member

	handshakes chan struct{}
	loops      sync.WaitGroup
	ctx        context.Context
	cancel     context.CancelFunc

	mu    sync.Mutex
	conns map[*tracked]struct{} // nil once closed
	quiet bool                  // no Raft to others
}

func newCluster(cfg *Config, log *slog.Logger, known func() []Member, vouched func(context.Context, spiffeid.ID) bool) *cluster {
	c := &cluster{
		known: known, vouched: vouched, dial: cfg.Dial, listener: cfg.Listener, log: log,
		server: withProtocols(cfg.ServerTLS, protoRaft, protoLine, protoHTTP, protoJoin), clients: cfg.ClientTLS,
		handshakes: make(chan struct{}, maxHandshakes),
		conns:      map[*tracked]struct{}{},
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	for _, a := range []**acceptor{&c.raft, &c.web, &c.door, &c.lines} {
		*a = newAcceptor(cfg.Listener.Addr())
	}
	c.client = &http.Client{Transport: &http.Transport{
		DialTLSContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			return c.connect(ctx, address, protoHTTP)
		},
		ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 2, IdleConnTimeout: time.Minute, DisableCompression: true,
	}}
	c.guest = &http.Client{Transport: &http.Transport{
		DialTLSContext:    func(ctx context.Context, _, address string) (net.Conn, error) { return c.knock(ctx, address) },
		DisableKeepAlives: true, DisableCompression: true,
	}}
	return c
}

// serve accepts until close. handler answers members, door those that want to be.
func (c *cluster) serve(handler, door http.Handler) {
	server := func(h http.Handler) *http.Server {
		return &http.Server{
			Handler: h, ReadHeaderTimeout: handshakeTimeout, IdleTimeout: 2 * time.Minute,
			MaxHeaderBytes: 16 << 10, ErrorLog: slog.NewLogLogger(c.log.Handler(), slog.LevelDebug),
		}
	}
	c.http, c.join = server(handler), server(door)
	c.join.ReadTimeout = handshakeTimeout
	c.http.ConnState = c.note
	c.loops.Go(func() { _ = c.http.Serve(c.web) }) // ends with the acceptor
	c.loops.Go(func() { _ = c.join.Serve(c.door) })
	c.loops.Go(c.accept)
}

func (c *cluster) accept() {
	for {
		raw, err := c.listener.Accept()
		if err != nil {
			if c.ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			c.log.Warn("accept a cluster connection", "error", err)
			select {
			case <-time.After(100 * time.Millisecond):
				continue
			case <-c.ctx.Done():
				return
			}
		}
		select {
		case c.handshakes <- struct{}{}:
		case <-c.ctx.Done():
			_ = raw.Close()
			return
		}
		c.loops.Go(func() {
			defer func() { <-c.handshakes }()
			if err := c.welcome(raw); err != nil {
				c.log.Debug("refused a cluster connection", "from", raw.RemoteAddr(), "error", err)
			}
		})
	}
}

// welcome shakes hands and gives the connection to whom its protocol names.
func (c *cluster) welcome(raw net.Conn) error {
	t, err := c.track(raw)
	if err != nil {
		return err
	}
	conn := tls.Server(t, c.server)
	ctx, cancel := context.WithTimeout(c.ctx, handshakeTimeout)
	defer cancel()
	id, proto, err := c.shake(ctx, conn, t, c.server.VerifyConnection)
	if s, ok := raw.(interface{ HandshakeDone(*tls.ConnectionState) }); ok && err == nil {
		cs := conn.ConnectionState()
		s.HandshakeDone(&cs)
	}
	to := c.web
	switch {
	case err != nil:
	case proto == protoJoin:
		to = c.door
	case proto == protoRaft:
		to, err = c.raft, c.mayLead(ctx, id)
	default:
		err = c.mustBeMember(id)
		if proto == protoLine {
			to = c.lines
		}
	}
	if err != nil {
		return errors.Join(err, t.Close())
	}
	return to.give(c.ctx, conn)
}

// mayLead returns nil where id may speak Raft here. A node without a domain
// listens to every node that the domain's authority made, since one of those adds
// it. A member that was away may meet one that became a member, and the leader,
// meanwhile: another that it knows must vouch for that.
func (c *cluster) mayLead(ctx context.Context, id spiffeid.ID) error {
	if len(c.known()) == 0 || c.isMember(id) || c.vouched(ctx, id) {
		return nil
	}
	return fmt.Errorf("%w: it is %q", errNotMember, id)
}

func (c *cluster) mustBeMember(id spiffeid.ID) error {
	if !c.isMember(id) {
		return fmt.Errorf("%w: it is %q", errNotMember, id)
	}
	return nil
}

// connect opens a connection to the member with that address.
func (c *cluster) connect(ctx context.Context, address, proto string) (net.Conn, error) {
	known := c.known()
	i := slices.IndexFunc(known, func(m Member) bool { return m.Address == address })
	if i < 0 {
		return nil, fmt.Errorf("%w: nobody has the address %s", errNotMember, address)
	}
	return c.open(ctx, address, proto, func(id spiffeid.ID) error {
		if id != known[i].ID {
			return fmt.Errorf("%w: it is %q", errNotMember, id)
		}
		return nil
	})
}

// knock opens a connection to whichever node of the domain answers at an address.
func (c *cluster) knock(ctx context.Context, address string) (net.Conn, error) {
	return c.open(ctx, address, protoJoin, func(spiffeid.ID) error { return nil })
}

func (c *cluster) open(ctx context.Context, address, proto string, check func(spiffeid.ID) error) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	raw, err := c.dial(ctx, address)
	if err != nil {
		return nil, err
	}
	t, err := c.track(raw)
	if err != nil {
		return nil, err
	}
	if proto == protoRaft {
		if err := c.speak(t); err != nil {
			return nil, errors.Join(err, t.Close())
		}
	}
	conn := tls.Client(t, withProtocols(c.clients, proto))
	id, _, err := c.shake(ctx, conn, t, c.clients.VerifyConnection)
	if err == nil {
		err = check(id)
	}
	if err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return conn, nil
}

// shake completes a handshake, returns who the peer is and what it wants to speak,
// and ends the connection with the peer's certificate. By judge, where it is not nil, evict
// judges that again.
func (c *cluster) shake(ctx context.Context, conn *tls.Conn, t *tracked, judge func(tls.ConnectionState) error) (id spiffeid.ID, proto string, err error) {
	if err := conn.HandshakeContext(ctx); err != nil {
		return id, "", err
	}
	cs := conn.ConnectionState()
	id, ok := peerID(&cs)
	if !ok || cs.NegotiatedProtocol == "" {
		return id, "", fmt.Errorf("%w: it is %q", errNotMember, id)
	}
	c.mu.Lock()
	t.peer, t.proto = id, cs.NegotiatedProtocol
	if judge != nil {
		t.judge = func() error { return judge(cs) }
	}
	c.mu.Unlock()
	t.expire(time.Until(cs.PeerCertificates[0].NotAfter))
	return id, cs.NegotiatedProtocol, nil
}

func (c *cluster) isMember(id spiffeid.ID) bool {
	return slices.ContainsFunc(c.known(), func(m Member) bool { return m.ID == id })
}

// note keeps whether a member that asks over a connection waits for an answer.
func (c *cluster) note(conn net.Conn, state http.ConnState) {
	if t := trackedOf(conn); t != nil {
		c.mu.Lock()
		t.busy = state == http.StateActive
		c.mu.Unlock()
	}
}

// occupy keeps that a member waits for so many answers more over a line.
func (c *cluster) occupy(conn net.Conn, more int) {
	if t := trackedOf(conn); t != nil {
		c.mu.Lock()
		t.asked += more
		c.mu.Unlock()
	}
}

// trackedOf returns what is known of a connection within TLS; nil of another.
func trackedOf(conn net.Conn) *tracked {
	if conn, ok := conn.(*tls.Conn); ok {
		t, _ := conn.NetConn().(*tracked)
		return t
	}
	return nil
}

// evict ends the connections of those that are members no more, or whose certificates
// would not be taken now, since their authority was taken out of the domain's bundle; but
// it lets the last answer out first: a node that asks to leave is told that it has left.
func (c *cluster) evict() {
	known := c.known()
	if len(known) == 0 {
		return
	}
	var gone, rest []*tracked
	c.mu.Lock()
	for t := range c.conns {
		switch {
		case t.peer.IsZero() || t.proto == protoJoin || t.busy || t.asked > 0:
		case !slices.ContainsFunc(known, func(m Member) bool { return m.ID == t.peer }):
			gone = append(gone, t)
		case t.judge != nil:
			rest = append(rest, t)
		}
	}
	c.mu.Unlock()
	for _, t := range rest {
		if err := t.judge(); err != nil {
			gone = append(gone, t)
		}
	}
	for _, t := range gone {
		_ = t.Close()
	}
}

// peerID returns the SPIFFE ID of a peer's certificate, which the TLS
// configuration has verified.
func peerID(cs *tls.ConnectionState) (spiffeid.ID, bool) {
	if cs == nil || len(cs.PeerCertificates) == 0 || len(cs.PeerCertificates[0].URIs) != 1 {
		return spiffeid.ID{}, false
	}
	id, err := spiffeid.FromURI(cs.PeerCertificates[0].URIs[0])
	return id, err == nil
}

// peerOf is peerID of a connection within TLS.
func peerOf(conn net.Conn) (spiffeid.ID, bool) {
	c, ok := conn.(*tls.Conn)
	if !ok {
		return spiffeid.ID{}, false
	}
	cs := c.ConnectionState()
	return peerID(&cs)
}

// withProtocols returns c with these ALPN names, whichever way it makes its
// configurations.
func withProtocols(c *tls.Config, protos ...string) *tls.Config {
	c = c.Clone()
	c.NextProtos = protos
	if get := c.GetConfigForClient; get != nil {
		c.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			made, err := get(hello)
			if made != nil {
				made = made.Clone()
				made.NextProtos = protos
			}
			return made, err
		}
	}
	return c
}

// speak marks a connection as one by which this member speaks Raft to another.
func (c *cluster) speak(t *tracked) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	t.raft = true
	if c.quiet {
		return errSilent
	}
	return nil
}

// silence ends, and keeps ended while quiet, all connections by which this member
// speaks Raft to others. What they say to it still arrives.
func (c *cluster) silence(quiet bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if quiet && !c.quiet {
		for t := range c.conns {
			if t.raft {
				c.loops.Go(func() { _ = t.Close() }) // which takes mu
			}
		}
	}
	c.quiet = quiet
}

// close ends everything and waits for it.
func (c *cluster) close() error {
	c.cancel()
	_ = c.lines.Close() // never fails
	err := c.listener.Close()
	if errors.Is(err, net.ErrClosed) {
		err = nil
	}
	if c.http != nil {
		err = errors.Join(err, c.http.Close(), c.join.Close())
	}
	c.client.CloseIdleConnections()
	c.guest.CloseIdleConnections()
	c.mu.Lock()
	conns := c.conns
	c.conns = nil
	c.mu.Unlock()
	for t := range conns {
		_ = t.Close()
	}
	c.loops.Wait()
	return err
}
