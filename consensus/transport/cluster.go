package transport

import (
	"cmp"
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

// The protocols of the one cluster port, distinguished by ALPN.
const (
	ProtocolRaft  = "roster-raft/1"
	ProtocolHTTP  = "h2"
	ProtocolWrite = "roster-write/1"
	protocolJoin  = "http/1.1" // with one route, for nodes that want to be members
)

const (
	HandshakeTimeout = 5 * time.Second
	maxHandshakes    = 1024 // at a time; that no address has all of them is for Config.Listener to see to
)

var errSilent = errors.New("this member keeps silent: its disk hangs")

var ErrNotMember = errors.New("the peer is not the member it should be")

// A Cluster is the listener over which a domain's nodes talk: Raft, write streams and
// HTTP between members only, and join requests of other nodes, all within mutual TLS.
type Cluster struct {
	options Options
	server  *tls.Config
	raft    *acceptor
	web     *acceptor
	door    *acceptor
	writes  *acceptor
	http    *http.Server
	join    *http.Server
	client  *http.Client
	guest   *http.Client // by which this node asks to be a member

	handshakes chan struct{}
	loops      sync.WaitGroup
	ctx        context.Context
	cancel     context.CancelFunc

	mu    sync.Mutex
	conns map[*tracked]struct{} // nil once closed
	quiet bool                  // no Raft to others
}

// Options are the parts of a Cluster.
type Options struct {
	Listener             net.Listener // without TLS
	Dial                 func(ctx context.Context, address string) (net.Conn, error)
	ServerTLS, ClientTLS *tls.Config
	Log                  *slog.Logger
	// Known returns the members and the leader; none while this node is in no domain.
	Known func() []Member
	// Votes reports whether a node is a voter, or leads, as far as this one knows. Vouched asks the known
	// voters.
	Votes   func(spiffeid.ID) bool
	Vouched func(context.Context, spiffeid.ID) bool
	// Claim returns this node's word on its history. Judge refuses a client of another one.
	Claim func() Claim
	Judge func(spiffeid.ID, Claim) error
	// Others returns addresses besides a member's own at which it may be found.
	Others func(spiffeid.ID) []string
}

// New returns a Cluster, which accepts after Serve.
func New(options Options) *Cluster {
	cluster := &Cluster{
		options: options,
		server: recordingClaims(
			withProtocols(options.ServerTLS, ProtocolRaft, ProtocolWrite, ProtocolHTTP, protocolJoin)),
		handshakes: make(chan struct{}, maxHandshakes),
		conns:      map[*tracked]struct{}{},
	}

	cluster.ctx, cluster.cancel = context.WithCancel(context.Background())
	for _, a := range []**acceptor{&cluster.raft, &cluster.web, &cluster.door, &cluster.writes} {
		*a = newAcceptor(options.Listener.Addr())
	}

	cluster.client = &http.Client{Transport: &http.Transport{
		DialTLSContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			return cluster.Connect(ctx, address, ProtocolHTTP)
		},
		ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 2, IdleConnTimeout: time.Minute, DisableCompression: true,
	}}
	cluster.guest = &http.Client{Transport: &http.Transport{
		DialTLSContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			return cluster.dialGuest(ctx, address)
		},
		DisableKeepAlives: true, DisableCompression: true,
	}}

	return cluster
}

// Serve accepts connections until Close. handler answers members, door other nodes of the
// domain.
func (c *Cluster) Serve(handler, door http.Handler) {
	server := func(h http.Handler) *http.Server {
		return &http.Server{
			Handler: h, ReadHeaderTimeout: HandshakeTimeout, IdleTimeout: 2 * time.Minute,
			MaxHeaderBytes: 32 << 10, ErrorLog: slog.NewLogLogger(c.options.Log.Handler(), slog.LevelDebug),
		}
	}
	c.http, c.join = server(handler), server(door)
	c.join.ReadTimeout = HandshakeTimeout
	c.http.ConnState = c.note
	c.loops.Go(func() { _ = c.http.Serve(c.web) }) // ends with the acceptor
	c.loops.Go(func() { _ = c.join.Serve(c.door) })
	c.loops.Go(c.accept)
}

func (c *Cluster) accept() {
	for {
		raw, err := c.options.Listener.Accept()
		if err != nil {
			if c.ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}

			c.options.Log.Warn("cannot accept a cluster connection", "err", err)

			// An error such as too many open files may pass.
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

			if err := c.admit(raw); err != nil {
				c.options.Log.Debug("refused a cluster connection", "from", raw.RemoteAddr(), "err", err)
			}
		})
	}
}

// admit completes the handshake and gives the connection to the server of its protocol.
func (c *Cluster) admit(raw net.Conn) error {
	t, err := c.track(raw)
	if err != nil {
		return err
	}

	conn := tls.Server(t, c.server)
	ctx, cancel := context.WithTimeout(c.ctx, HandshakeTimeout)
	defer cancel()

	id, proto, err := c.handshake(ctx, conn, t, c.server.VerifyConnection)

	// The listener counts the connections of a client once the handshake has shown it.
	if s, ok := raw.(interface{ HandshakeDone(*tls.ConnectionState) }); ok && err == nil {
		cs := conn.ConnectionState()
		s.HandshakeDone(&cs)
	}

	// A node of another history may knock alone, where it learns that.
	if err == nil {
		if other := c.options.Judge(id, c.claimAt(t)); other != nil && proto != protocolJoin {
			err = other
		}
	}

	to := c.web
	switch {
	case err != nil:
	case proto == protocolJoin:
		to = c.door
	case proto == ProtocolRaft:
		to, err = c.raft, c.mayLead(ctx, id)
	default:
		err = c.mustBeMember(id)
		if proto == ProtocolWrite {
			to = c.writes
		}
	}

	if err != nil {
		return errors.Join(err, t.Close())
	}

	return to.give(c.ctx, conn)
}

// claimAt returns the claim of a connection's client.
func (c *Cluster) claimAt(t *tracked) Claim {
	c.mu.Lock()
	defer c.mu.Unlock()

	return t.claim
}

// mayLead returns nil if id may speak Raft here: a voter alone. A node without a domain accepts
// every node of the domain's authority, because one of these adds it. A member that was away
// may meet a leader that became a voter meanwhile: another known voter must vouch for it.
func (c *Cluster) mayLead(ctx context.Context, id spiffeid.ID) error {
	if len(c.options.Known()) == 0 || c.options.Votes(id) || c.options.Vouched(ctx, id) {
		return nil
	}

	return fmt.Errorf("%w: %q is no voter", ErrNotMember, id)
}

func (c *Cluster) mustBeMember(id spiffeid.ID) error {
	if !c.IsMember(id) {
		return fmt.Errorf("%w: it is %q", ErrNotMember, id)
	}

	return nil
}

// Connect opens a connection to the member with that address. Its SPIFFE ID proves the member: if it
// is not there, the other addresses are tried at which it may be found.
func (c *Cluster) Connect(ctx context.Context, address, proto string) (net.Conn, error) {
	known := c.options.Known()

	i := slices.IndexFunc(known, func(m Member) bool { return m.Address == address })
	if i < 0 {
		return nil, fmt.Errorf("%w: no member has the address %s", ErrNotMember, address)
	}

	return c.connectTo(ctx, known[i], proto)
}

// nextAddress is how long an address of a member is tried alone.
const nextAddress = 300 * time.Millisecond

// connectTo opens a connection to a member at the first of its addresses where it answers.
func (c *Cluster) connectTo(ctx context.Context, member Member, proto string) (net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)

	var dials sync.WaitGroup

	// Slower dials end first, so that none of them leaves a connection open.
	defer func() {
		cancel()
		dials.Wait()
	}()

	isMember := func(id spiffeid.ID) error {
		if id != member.ID {
			return fmt.Errorf("%w: it is %q", ErrNotMember, id)
		}

		return nil
	}

	type attempt struct {
		conn net.Conn
		err  error
	}

	// Without a buffer, a connection is either handed over or closed by its dial.
	answers := make(chan attempt)
	dial := func(address string) {
		conn, err := c.open(ctx, address, proto, isMember)
		select {
		case answers <- attempt{conn, err}:
		case <-ctx.Done():
			if conn != nil {
				// Another dial was faster.
				_ = conn.Close()
			}
		}
	}

	dialled := []string{member.Address}
	waiting := 1
	dials.Go(func() { dial(member.Address) })

	var (
		first error
		rest  []string
		next  = time.After(nextAddress)
	)

	for found := false; ; {
		begin := false
		select {
		case one := <-answers:
			if one.err == nil {
				return one.conn, nil
			}

			first = cmp.Or(first, one.err)
			waiting--
			begin = true
		case <-next:
			begin = true
		case <-ctx.Done():
			return nil, cmp.Or(first, ctx.Err())
		}

		if begin && !found {
			found = true
			rest = c.options.Others(member.ID)
		}

		for begin && len(rest) > 0 {
			address := rest[0]
			rest = rest[1:]

			if !slices.Contains(dialled, address) {
				dialled = append(dialled, address)
				waiting++
				begin = false
				next = time.After(nextAddress)
				dials.Go(func() { dial(address) })
			}
		}

		if waiting == 0 {
			return nil, first
		}
	}
}

// dialGuest opens a connection to the node at an address, for a join request.
func (c *Cluster) dialGuest(ctx context.Context, address string) (net.Conn, error) {
	return c.open(ctx, address, protocolJoin, func(spiffeid.ID) error { return nil })
}

func (c *Cluster) open(ctx context.Context, address, proto string, check func(spiffeid.ID) error) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, HandshakeTimeout)
	defer cancel()

	raw, err := c.options.Dial(ctx, address)
	if err != nil {
		return nil, err
	}

	t, err := c.track(raw)
	if err != nil {
		return nil, err
	}

	if proto == ProtocolRaft {
		if err := c.trackRaft(t); err != nil {
			return nil, errors.Join(err, t.Close())
		}
	}

	config := withProtocols(c.options.ClientTLS, c.options.Claim().offers(proto)...)

	// The wrapped error tells a refused certificate from a failed connection.
	if verify := config.VerifyConnection; verify != nil {
		config.VerifyConnection = func(state tls.ConnectionState) error {
			if err := verify(state); err != nil {
				return &CertificateError{err}
			}

			return nil
		}
	}

	conn := tls.Client(t, config)

	id, _, err := c.handshake(ctx, conn, t, c.options.ClientTLS.VerifyConnection)
	if err == nil {
		err = check(id)
	}

	if err != nil {
		return nil, errors.Join(err, t.Close())
	}

	return conn, nil
}

// A CertificateError says that this node doesn't accept the certificate of the node at an address.
type CertificateError struct{ Err error }

func (e *CertificateError) Error() string { return e.Err.Error() }

// Unwrap returns the reason.
func (e *CertificateError) Unwrap() error { return e.Err }

// handshake completes a handshake, returns the peer and its protocol, and ends the
// connection with the peer's certificate. Evict judges the certificate again with judge,
// unless that is nil.
func (c *Cluster) handshake(ctx context.Context, conn *tls.Conn, t *tracked,
	judge func(tls.ConnectionState) error) (id spiffeid.ID, proto string, err error) {
	if err := conn.HandshakeContext(ctx); err != nil {
		return id, "", err
	}

	cs := conn.ConnectionState()

	id, ok := PeerID(&cs)
	if !ok || cs.NegotiatedProtocol == "" {
		return id, "", fmt.Errorf("%w: it is %q", ErrNotMember, id)
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

func (c *Cluster) IsMember(id spiffeid.ID) bool {
	return slices.ContainsFunc(c.options.Known(), func(m Member) bool { return m.ID == id })
}

// note records whether a member waits for an answer over a connection.
func (c *Cluster) note(conn net.Conn, state http.ConnState) {
	if t := trackedOf(conn); t != nil {
		c.mu.Lock()
		t.busy = state == http.StateActive
		c.mu.Unlock()
	}
}

// Occupy adds to the number of answers for which a member waits over a write stream.
func (c *Cluster) Occupy(conn net.Conn, more int) {
	if t := trackedOf(conn); t != nil {
		c.mu.Lock()
		t.asked += more
		c.mu.Unlock()
	}
}

// trackedOf returns the tracked connection within TLS; nil for others.
func trackedOf(conn net.Conn) *tracked {
	if conn, ok := conn.(*tls.Conn); ok {
		t, _ := conn.NetConn().(*tracked)
		return t
	}

	return nil
}

// Evict ends the connections of former members, and of peers whose certificates would not
// be accepted now. It lets an answer to a former member out first, so that a node that
// leaves learns that it has left.
func (c *Cluster) Evict() {
	known := c.options.Known()

	// A node without a domain keeps all connections, because one of the peers lets it in.
	if len(known) == 0 {
		return
	}

	mine := c.options.Claim().History

	var gone, rest []*tracked
	c.mu.Lock()
	for t := range c.conns {
		switch {
		case t.peer.IsZero() || t.proto == protocolJoin:
		case !t.claim.History.IsZero() && !mine.IsZero() && t.claim.History != mine:
			// It was let in before this node had a history.
			gone = append(gone, t)
		case !t.busy && t.asked == 0 && !slices.ContainsFunc(known, func(m Member) bool { return m.ID == t.peer }):
			gone = append(gone, t)
		case t.proto == ProtocolRaft && !t.raft && !c.options.Votes(t.peer):
			gone = append(gone, t)
		case t.judge != nil:
			rest = append(rest, t)
		}
	}

	c.mu.Unlock()

	// Outside mu, because the verification may take time.
	for _, t := range rest {
		if err := t.judge(); err != nil {
			gone = append(gone, t)
		}
	}

	for _, t := range gone {
		_ = t.Close()
	}
}

// Client returns the HTTP client for other members.
func (c *Cluster) Client() *http.Client { return c.client }

// Guest returns the HTTP client by which this node asks to be a member.
func (c *Cluster) Guest() *http.Client { return c.guest }

// AcceptWrites returns the next write stream that a member has opened.
func (c *Cluster) AcceptWrites() (net.Conn, error) { return c.writes.Accept() }

// Drain lets the requests of members that were read be answered, within ctx.
func (c *Cluster) Drain(ctx context.Context) error { return c.http.Shutdown(ctx) }

// Connections returns the open connections whose handshakes are over, with their peers.
func (c *Cluster) Connections() map[net.Conn]spiffeid.ID {
	c.mu.Lock()
	defer c.mu.Unlock()

	open := map[net.Conn]spiffeid.ID{}
	for t := range c.conns {
		if t.proto != "" {
			open[t] = t.peer
		}
	}

	return open
}

// PeerID returns the SPIFFE ID of a peer's certificate, which the TLS
// configuration has verified.
func PeerID(cs *tls.ConnectionState) (spiffeid.ID, bool) {
	if cs == nil || len(cs.PeerCertificates) == 0 || len(cs.PeerCertificates[0].URIs) != 1 {
		return spiffeid.ID{}, false
	}

	id, err := spiffeid.FromURI(cs.PeerCertificates[0].URIs[0])

	return id, err == nil
}

// PeerOf is PeerID of a connection within TLS.
func PeerOf(conn net.Conn) (spiffeid.ID, bool) {
	c, ok := conn.(*tls.Conn)
	if !ok {
		return spiffeid.ID{}, false
	}

	cs := c.ConnectionState()

	return PeerID(&cs)
}

// withProtocols returns c with these ALPN names, whichever way it makes its
// configurations.
func withProtocols(config *tls.Config, protos ...string) *tls.Config {
	config = config.Clone()

	config.NextProtos = protos
	if get := config.GetConfigForClient; get != nil {
		config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			made, err := get(hello)
			if made != nil {
				made = made.Clone()
				made.NextProtos = protos
			}

			return made, err
		}
	}

	return config
}

// trackRaft marks a connection as one over which this member speaks Raft to another.
func (c *Cluster) trackRaft(t *tracked) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	t.raft = true

	if c.quiet {
		return errSilent
	}

	return nil
}

// Silence ends, and keeps ended while quiet, all connections over which this member
// speaks Raft to others. Their messages still arrive.
func (c *Cluster) Silence(quiet bool) {
	c.mu.Lock()
	defer c.mu.Unlock()

	if quiet && !c.quiet {
		for t := range c.conns {
			if t.raft {
				// In a goroutine of its own, because Close takes mu.
				c.loops.Go(func() { _ = t.Close() })
			}
		}
	}

	c.quiet = quiet
}

// Close ends everything and waits for it.
func (c *Cluster) Close() error {
	c.cancel()
	_ = c.writes.Close() // never fails

	err := c.options.Listener.Close()
	if errors.Is(err, net.ErrClosed) {
		err = nil
	}

	if c.http != nil {
		err = errors.Join(err, c.http.Close(), c.join.Close())
	}

	c.client.CloseIdleConnections()
	c.guest.CloseIdleConnections()

	// They are closed outside mu, because Close takes it.
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

// A Member is a node of the domain.
type Member struct {
	ID      spiffeid.ID `cbor:"1,keyasint"` // its Raft server id
	Address string      `cbor:"2,keyasint"` // host:port of its cluster listener
}
