package gateway

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory/egress"
)

// Bounds of a Guard's requests, if its configuration names none.
const (
	DefaultTimeout   = 30 * time.Second // of an exchange as a whole
	DefaultMaxBody   = 1 << 20          // bytes of an answer's body
	dialTimeout      = 5 * time.Second  // to resolve a name and connect
	handshakeTimeout = 5 * time.Second
	idleTimeout      = time.Minute // of an unused connection
	maxHeader        = 16 << 10    // bytes of an answer's header fields
	maxRedirects     = 5           // that a fetch follows
	maxTransports    = 1024        // how many registrants' connections are kept apart
)

// GuardConfig names the targets that a Guard permits, and the authorities it trusts. The
// zero value permits public addresses, and trusts the system's roots.
type GuardConfig struct {
	// Allow are address ranges, not reachable from the whole Internet, to which requests may go. A range that
	// egress.Check closes for everybody stays closed.
	Allow []netip.Prefix
	// Hosts are names, in lower case, that may be at any address but those.
	Hosts []string
	// IsOwn reports whether a member of the node's own domain listens at an address: no
	// request goes there. Nil is for a process that is in no domain.
	IsOwn func(netip.AddrPort) bool
	// Ports that requests may go to; if it is empty, 443 and those from 1024 on.
	Ports []uint16
	// Roots certify servers without an SVID; the system's if it is nil.
	Roots *x509.CertPool
	// Judge returns the identity of a server's SVID, if one of this node's bundles
	// certifies it now. If Judge is nil, SVIDs are not accepted.
	Judge func(chain []*x509.Certificate) (spiffeid.ID, error)
	// AnyBundle takes an SVID of any domain that Judge knows, if it names the host
	// that was asked for. Else the registrant's own domain alone speaks for its
	// agents.
	AnyBundle bool
	// Certificate returns the certificate of the gateway's own identity, for servers that
	// ask for one. If it is nil or returns nil, none is presented.
	Certificate func() *tls.Certificate
	// Timeout bounds an exchange from the name's resolution to the body's end.
	Timeout time.Duration
	// HeaderTimeout bounds the wait for an answer's header, beside Timeout, unless it is 0.
	HeaderTimeout time.Duration
	// Resolver finds addresses; the system's if it is nil.
	Resolver *net.Resolver
	// InsecureLoopback lets requests go to plain http at this machine's loopback addresses, as
	// far as Allow has these: for development.
	InsecureLoopback bool
}

// A Target is for whom a request is, and how much of an answer is wanted.
type Target struct {
	// Registrant is the verified identity whose registration names the URL; zero if there
	// is none, or if a peer merely claims it. Its SVID certifies the server, as one of its
	// trust domain for the host does, beside web PKI.
	Registrant spiffeid.ID
	// MutualTLS holds the server to Registrant's own SVID: the agent said that it
	// speaks mTLS.
	MutualTLS bool
	MaxBody   int64         // bytes; DefaultMaxBody if it is 0
	Timeout   time.Duration // of the exchange; the guard's if it is 0
}

// A Permission names the targets that are permitted, as in GuardConfig.
type Permission struct {
	Allow     []netip.Prefix
	Hosts     []string
	Ports     []uint16
	AnyBundle bool
}

// A Guard makes the outbound requests whose targets registrants chose. It is safe for
// concurrent use.
type Guard struct {
	cfg       GuardConfig
	permitted atomic.Pointer[Permission]

	mu         sync.Mutex // guards the fields below
	transports map[server]*http.Transport
}

// A server identifies the party for which an open connection was verified. Requests for
// another party don't use the connection.
type server struct {
	registrant spiffeid.ID
	mutual     bool
}

// NewGuard returns a guard. Close ends the connections that it keeps.
func NewGuard(cfg GuardConfig) *Guard {
	cfg.Timeout = cmp.Or(cfg.Timeout, DefaultTimeout)

	guard := &Guard{cfg: cfg, transports: map[server]*http.Transport{}}
	guard.permitted.Store(&Permission{cfg.Allow, cfg.Hosts, cfg.Ports, cfg.AnyBundle})

	return guard
}

// Permit replaces the targets that are permitted. Requests that are under way go on; others
// use new connections.
func (g *Guard) Permit(targets Permission) {
	g.permitted.Store(&targets)
	g.Close()
}

// Close closes the connections that no request uses.
func (g *Guard) Close() {
	g.mu.Lock()
	defer g.mu.Unlock()

	for _, t := range g.transports {
		t.CloseIdleConnections()
	}

	clear(g.transports)
}

// Check decides whether a request may go to u, before its host is resolved: nil or a
// *Refusal.
func (g *Guard) Check(target *url.URL) error {
	host := target.Hostname()
	port, open := g.port(target.Port())

	switch {
	case target.Scheme != "https":
		return g.checkPlain(target)
	case host == "":
		return refuse(RuleAddress, nil, "the URL names no host")
	case target.User != nil:
		return refuse(RuleAddress, nil, "the URL holds a user's name")
	case !open:
		return refuse(RulePort, nil, "port %.10s is not one at which this node calls agents", target.Port())
	}

	if addr, err := netip.ParseAddr(host); err == nil {
		return g.checkAddress(netip.AddrPortFrom(addr, port), host)
	}

	return nil
}

// port parses the port of a URL, and reports whether requests may go to it.
func (g *Guard) port(text string) (port uint16, open bool) {
	n, err := strconv.ParseUint(cmp.Or(text, "443"), 10, 16)
	if err != nil {
		return 0, false
	}

	port = uint16(n)
	if ports := g.permitted.Load().Ports; len(ports) > 0 {
		return port, slices.Contains(ports, port)
	}

	return port, port == 443 || port >= 1024
}

// checkAddress decides whether a connection to host may be made at an address: nil or a
// *Refusal.
func (g *Guard) checkAddress(at netip.AddrPort, host string) error {
	permitted := g.permitted.Load()

	allow := permitted.Allow
	if slices.Contains(permitted.Hosts, strings.ToLower(strings.TrimSuffix(host, "."))) {
		allow = egress.Anywhere
	}

	if err := egress.Check(at.Addr(), allow); err != nil {
		return refuse(RuleAddress, err, "%s: %v", host, err)
	}

	// A range that the operator allows may contain the members' own listeners, which no agent may have called.
	if g.cfg.IsOwn != nil && g.cfg.IsOwn(at) {
		return refuse(RuleAddress, nil, "%s: a member of this domain listens at %s", host, at)
	}

	return nil
}

// transport returns the connections to servers of one kind. Where there are too
// many kinds, one is forgotten; its requests end as they would have.
func (g *Guard) transport(t Target) *http.Transport {
	key := server{t.Registrant, t.MutualTLS}
	g.mu.Lock()
	defer g.mu.Unlock()

	if tr, ok := g.transports[key]; ok {
		return tr
	}

	for old, tr := range g.transports {
		if len(g.transports) < maxTransports {
			break
		}

		tr.CloseIdleConnections()
		delete(g.transports, old)
	}

	tr := &http.Transport{
		DialTLSContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			return g.dial(ctx, network, addr, key)
		},
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			return g.dialPlain(ctx, network, addr, key)
		},
		ForceAttemptHTTP2:      true,
		DisableCompression:     true, // RoundTrip unpacks, with a bound
		MaxIdleConns:           256,
		MaxIdleConnsPerHost:    32,
		IdleConnTimeout:        idleTimeout,
		ResponseHeaderTimeout:  g.cfg.HeaderTimeout,
		MaxResponseHeaderBytes: maxHeader,
	}
	g.transports[key] = tr

	return tr
}

// dial connects to addr and shakes hands, and judges both the address and the
// server.
func (g *Guard) dial(ctx context.Context, network, addr string, server server) (_ net.Conn, err error) {
	began := time.Now()

	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}

	// The transport doesn't end this with the request: another may use the connection.
	d := net.Dialer{Timeout: min(dialTimeout, g.cfg.Timeout), Resolver: g.cfg.Resolver,
		Control: func(_, address string, _ syscall.RawConn) error {
			// The address is judged as the connection is made: a name may resolve to another one than before.
			at, _ := netip.ParseAddrPort(address) // the zero address is refused
			return g.checkAddress(at, host)
		}}

	raw, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return nil, notReached(err)
	}

	defer func() {
		// The transport's goroutine has no server below it that recovers.
		if p := recover(); p != nil {
			raw.Close()
			err = fmt.Errorf("the connection to %s panicked: %v\n%s", addr, p, debug.Stack())
		}
	}()
	limit := min(handshakeTimeout, g.cfg.Timeout-time.Since(began))
	ctx, cancel := context.WithTimeoutCause(ctx, limit, refuse(RuleTime, nil, "the TLS handshake took over %s", limit))
	defer cancel()

	conn := tls.Client(raw, g.tls(host, server))
	if err := conn.HandshakeContext(ctx); err != nil {
		raw.Close()
		return nil, &unreachedError{"tls", err}
	}

	return conn, nil
}
