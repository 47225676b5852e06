package gossip

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/roster-mesh/roster/directory/contain"
	"github.com/roster-mesh/roster/limit"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"golang.org/x/time/rate"
)

// The ALPN protocols of gossip connections. A client offers Protocol beside http/1.1, the one that net/http
// serves. The server refuses clients without it, so that a client of the API learns that it has another port.
const (
	Protocol     = "roster-gossip/1"
	httpProtocol = "http/1.1"
)

// A request to pathPackets has packets as its parts, and an empty answer. A request to pathStream and
// its answer have one message of memberlist each, and after a push/pull the heads that the receiver
// may have. Heads don't travel in memberlist's own user state, because its merge doesn't pass on the
// sender.
const (
	pathPackets = "/v1/packets"
	pathStream  = "/v1/stream"

	// headerAddress is the host:port at which the sender of a request or answer asks to be dialled.
	headerAddress = "Gossip-Address"
)

// The bounds of connections and requests. The listener bounds the number of connections.
const (
	dialTimeout    = 5 * time.Second  // of a connection with its TLS handshake, and of a request's header
	callTimeout    = 10 * time.Second // of a request with its answer
	connIdle       = 10 * time.Minute // after which a connection without a request is closed
	maxHeader      = 4 << 10
	maxExchanges   = 128 // streams that are answered at a time; see limit.Divide
	maxDeliveries  = 512 // messages and heads that wait for their delivery; see limit.Divide
	maxDomainNodes = 64  // nodes of one domain that are known
	maxAddress     = 255
	maxReason      = 200 // bytes of a refusal that are logged
)

// MaxHead bounds one head after a push/pull, in bytes: with ext and crit of the largest size.
const MaxHead = 12 << 10

// The bounds of bodies, in bytes.
const (
	packetSize  = 32 << 10        // memberlist's limit for one packet
	maxPacket   = packetSize + 64 // with its checksum's header
	maxPackets  = 2 * (maxPacket + partHeader)
	maxState    = 256 << 10 // members of a push/pull
	maxHeads    = 256
	maxAllHeads = 256 << 10 // of all heads, each with its partHeader
	maxStream   = partHeader + maxState + maxAllHeads
)

// placeholderIP is the address of every member for memberlist, which requires IP addresses.
// Our members have authenticated names and addresses of any kind that may change. The
// transport therefore dials by name.
var placeholderIP = net.IPv4(127, 0, 0, 1).To4()

const placeholderPort = 1

var (
	errNotAllowed  = errors.New("neither a node of this domain nor of an active peering")
	errNoIdentity  = errors.New("no certificate with one SPIFFE ID")
	errOtherNode   = errors.New("another node answered")
	errAudience    = errors.New("no longer in the audience of a message")
	errNoAddress   = errors.New("no known address")
	errTooMany     = errors.New("too many nodes of its domain, or requests of it")
	errTooLarge    = errors.New("too large")
	errClosed      = errors.New("gossip is closed")
	errBadAddress  = errors.New("not a host:port")
	errRequest     = errors.New("not a request of gossip")
	errNotAnswered = errors.New("refused by the other node")
)

// A transport carries memberlist's packets and streams by HTTP over mutually authenticated TLS
// (memberlist.NodeAwareTransport). Nodes are addressed by SPIFFE ID. A network address is only
// dialled to join; the certificate of the node there states its ID.
//
// Each request and answer is judged by the certificate of its connection: a node whose peering has
// ended, or whose authority was replaced, sends and receives nothing more.
type transport struct {
	cfg       *Config
	mesh      Mesh
	addressOf func(spiffeid.ID) (string, bool) // addresses that members state themselves
	packets   chan *memberlist.Packet
	streams   chan net.Conn
	exchanges *limit.Shares
	turns     *limit.Fair // of nodes whose messages are delivered
	filter    packetFilter
	client    *http.Transport
	clientTLS *tls.Config
	server    *http.Server
	shutdown  sync.Once
	ctx       context.Context
	cancel    context.CancelFunc
	tasks     sync.WaitGroup

	mu       sync.Mutex // guards the fields below; never held while another lock is taken
	closed   bool
	contacts map[spiffeid.ID]*contact
	paces    map[spiffeid.TrustDomain]*rate.Limiter // of domains with contacts
}

var _ memberlist.NodeAwareTransport = (*transport)(nil)

func newTransport(cfg *Config, mesh Mesh, addressOf func(spiffeid.ID) (string, bool)) *transport {
	t := &transport{
		cfg: cfg, mesh: mesh, addressOf: addressOf,
		packets: make(chan *memberlist.Packet), streams: make(chan net.Conn),
		exchanges: limit.NewShares(limit.Divide(maxExchanges, nil)),
		turns: limit.NewFair(limit.FairConfig{
			Slots: 1, PerParty: 1, Places: limit.Divide(maxDeliveries, nil), Patience: callTimeout,
		}),
		clientTLS: protocolTLS(cfg.ClientTLS, Protocol, httpProtocol),
		filter:    packetFilter{self: cfg.Node.String(), stated: map[string]int64{}},
		contacts:  map[spiffeid.ID]*contact{}, paces: map[spiffeid.TrustDomain]*rate.Limiter{},
	}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	t.client = &http.Transport{
		DialTLSContext: t.dial, DisableCompression: true, MaxIdleConnsPerHost: 1, IdleConnTimeout: connIdle,
		MaxResponseHeaderBytes: maxHeader,
	}
	t.server = &http.Server{
		Handler: t, ReadHeaderTimeout: dialTimeout, IdleTimeout: connIdle + time.Minute, MaxHeaderBytes: maxHeader,
		ErrorLog: slog.NewLogLogger(cfg.Logger.Handler(), slog.LevelDebug),
	}

	cfg.Bound(t.server)
	t.tasks.Go(func() { _ = t.server.Serve(tls.NewListener(cfg.Listener, serverTLS(cfg.ServerTLS))) })

	return t
}

func serverTLS(given *tls.Config) *tls.Config {
	config, refusing := protocolTLS(given, httpProtocol), protocolTLS(given, Protocol)
	config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if given.GetConfigForClient != nil {
			if chosen, err := given.GetConfigForClient(hello); chosen != nil || err != nil {
				return chosen, err
			}
		}

		if !slices.Contains(hello.SupportedProtos, Protocol) {
			return refusing, nil
		}

		return config, nil
	}

	return config
}

func protocolTLS(given *tls.Config, protocols ...string) *tls.Config {
	config := given.Clone()
	config.NextProtos = protocols
	config.MinVersion = tls.VersionTLS13
	config.SessionTicketsDisabled = true // every connection authenticates both ends

	return config
}

// dialled is the key of the address to dial in the context of a request. Connections are pooled by node and not by
// address, because a node may state another address in each of its requests.
type dialled struct{}

// dial connects to the address of a request. net/http dials on when the request has ended, so dialling ends with
// the transport.
func (t *transport) dial(request context.Context, _, _ string) (net.Conn, error) {
	if !t.begin() {
		return nil, errClosed
	}

	defer t.tasks.Done()

	ctx, cancel := context.WithTimeout(t.ctx, dialTimeout)
	defer cancel()

	raw, err := t.cfg.Dial(ctx, request.Value(dialled{}).(string))
	if err != nil {
		return nil, err
	}

	conn := tls.Client(raw, t.clientTLS)
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		return nil, err
	}

	return conn, nil
}

// FinalAdvertiseAddr implements memberlist.Transport.
func (t *transport) FinalAdvertiseAddr(string, int) (net.IP, int, error) {
	return placeholderIP, placeholderPort, nil
}

// PacketCh implements memberlist.Transport.
func (t *transport) PacketCh() <-chan *memberlist.Packet { return t.packets }

// StreamCh implements memberlist.Transport.
func (t *transport) StreamCh() <-chan net.Conn { return t.streams }

// WriteTo implements memberlist.Transport. It always fails: nodes are reached by name only.
func (t *transport) WriteTo([]byte, string) (time.Time, error) {
	return time.Time{}, errNoAddress
}

// WriteToAddress implements memberlist.NodeAwareTransport.
func (t *transport) WriteToAddress(data []byte, to memberlist.Address) (time.Time, error) {
	id, err := spiffeid.FromString(to.Name)
	if err != nil {
		return time.Time{}, fmt.Errorf("%s: %w", to.Name, errNoAddress)
	}

	return time.Now(), t.queue(id, data, nil)
}

// DialTimeout implements memberlist.Transport. It always fails: nodes are reached by name
// only.
func (t *transport) DialTimeout(string, time.Duration) (net.Conn, error) {
	return nil, errNoAddress
}

// DialAddressTimeout implements memberlist.NodeAwareTransport. The name is the SPIFFE ID of the node,
// which the other end must prove, or that ID as Join takes it, without slashes.
func (t *transport) DialAddressTimeout(to memberlist.Address, timeout time.Duration) (net.Conn, error) {
	name, err := url.PathUnescape(to.Name)
	if err != nil {
		return nil, err
	}

	id, err := spiffeid.FromString(name)
	if err != nil {
		return nil, err
	}

	address, known := t.address(id)
	if !known {
		return nil, fmt.Errorf("%s: %w", id, errNoAddress)
	}

	return &exchange{transport: t, to: id, address: address, timeout: timeout}, nil
}

// greet returns the node at an address. The node may be this one; err is not nil then.
func (t *transport) greet(address string) (id spiffeid.ID, err error) {
	if err := checkAddress(address); err != nil {
		return id, err
	}

	if !t.begin() {
		return id, errClosed
	}

	defer t.tasks.Done()

	id, _, err = t.call(callTimeout, spiffeid.ID{}, address, pathPackets, nil, nil)

	return id, err
}

// Shutdown implements memberlist.Transport. When it returns, every connection is closed and
// every goroutine of the transport has ended.
func (t *transport) Shutdown() (err error) {
	t.shutdown.Do(func() {
		t.mu.Lock()
		t.closed = true
		t.mu.Unlock()

		t.cancel()
		err = t.server.Close()
		t.tasks.Wait()
		t.client.CloseIdleConnections()
	})

	return err
}

// An exchange is the near end of a memberlist stream: one message each way, in a request and its
// answer. memberlist writes a whole message at once, and calls no other methods than these.
type exchange struct {
	net.Conn
	transport *transport
	to        spiffeid.ID
	address   string
	timeout   time.Duration
	answer    bytes.Reader
}

// Write implements net.Conn. It waits for the answer.
func (e *exchange) Write(msg []byte) (int, error) {
	if !e.transport.begin() {
		return 0, errClosed
	}

	defer e.transport.tasks.Done()

	body := e.transport.seal(e.to, msg)

	_, body, err := e.transport.call(e.timeout, e.to, e.address, pathStream, body, nil)
	if err != nil || len(body) == 0 {
		return 0, errors.Join(io.ErrUnexpectedEOF, err)
	}

	answer, err := e.transport.open(e.to, body)
	if err != nil {
		return 0, err
	}

	e.answer.Reset(answer)

	return len(msg), nil
}

// Read implements net.Conn.
func (e *exchange) Read(data []byte) (int, error) { return e.answer.Read(data) }

// Close implements net.Conn.
func (e *exchange) Close() error { return nil }

// SetDeadline implements net.Conn. The timeout of DialAddressTimeout holds for the request.
func (e *exchange) SetDeadline(time.Time) error { return nil }

// RemoteAddr implements net.Conn.
func (e *exchange) RemoteAddr() net.Addr { return nodeAddr{e.to} }

// nodeAddr is a node's name as a net.Addr, for memberlist's log.
type nodeAddr struct{ id spiffeid.ID }

func (nodeAddr) Network() string  { return Protocol }
func (a nodeAddr) String() string { return a.id.String() }

// call sends a request to the node at address, and returns the node and the body of its answer. The
// node must be the wanted one; zero accepts any allowed node. Nothing is sent to another node, nor over a
// connection whose server would be refused now, nor unless may, which may be nil, returns true.
func (t *transport) call(
	timeout time.Duration, want spiffeid.ID, address, path string, body []byte, may func() bool,
) (id spiffeid.ID, answer []byte, err error) {
	ctx, cancel := context.WithTimeout(context.WithValue(t.ctx, dialled{}, address), timeout)
	defer cancel()

	var refused error

	// A connection may be older than the last change of a bundle, of a peering or of an audience.
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(got httptrace.GotConnInfo) {
		conn := got.Conn.(*tls.Conn)
		state := conn.ConnectionState()

		switch id, refused = t.identify(&state, t.clientTLS); {
		case refused != nil:
		case id == t.cfg.Node || !want.IsZero() && id != want:
			refused = fmt.Errorf("%w: %s", errOtherNode, id)
		case may != nil && !may():
			refused = errAudience
		}

		if refused != nil {
			_ = conn.NetConn().Close()
		}
	}})

	// Packets and streams may arrive twice, so net/http repeats those that a connection lost which the other end
	// closed meanwhile. A header without a value isn't sent.
	header := http.Header{headerAddress: {t.cfg.Advertise}, "User-Agent": nil, "Idempotency-Key": nil}
	pool := want.TrustDomain().Name() + want.Path()

	if want.IsZero() {
		pool = address
	}

	request := (&http.Request{
		Method: http.MethodPost, URL: &url.URL{Scheme: "https", Host: pool, Path: path}, Host: address, Header: header,
		Close:         want.IsZero(),
		ContentLength: int64(len(body)),
		Body:          io.NopCloser(bytes.NewReader(body)),
		GetBody:       func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil },
	}).WithContext(ctx)

	if len(body) == 0 {
		request.Body = http.NoBody
	}

	response, err := t.client.RoundTrip(request)
	if refused != nil {
		err = refused
	}

	if err != nil {
		return id, nil, fmt.Errorf("%s: %w", address, err)
	}

	defer response.Body.Close()

	if response.StatusCode != http.StatusOK {
		reason, _ := io.ReadAll(io.LimitReader(response.Body, maxReason))
		return id, nil, fmt.Errorf("%s: %w: %q", address, errNotAnswered, reason)
	}

	c, err := t.meet(id, response.Header.Get(headerAddress))
	if err != nil {
		return id, nil, err
	}

	if response.ContentLength != 0 {
		if err := t.payBody(c, response.ContentLength, maxStream); err != nil {
			return id, nil, err
		}

		answer, err = io.ReadAll(response.Body)
	}

	t.cfg.Traffic(id.TrustDomain(), len(answer), len(body))

	return id, answer, err
}

// identify returns the node at the other end of a connection, if it is allowed and its certificate
// would be accepted now.
func (t *transport) identify(state *tls.ConnectionState, config *tls.Config) (spiffeid.ID, error) {
	if len(state.PeerCertificates) == 0 || len(state.PeerCertificates[0].URIs) != 1 {
		return spiffeid.ID{}, errNoIdentity
	}

	if err := config.VerifyConnection(*state); err != nil {
		return spiffeid.ID{}, err
	}

	id, err := spiffeid.FromURI(state.PeerCertificates[0].URIs[0])
	if err != nil {
		return spiffeid.ID{}, fmt.Errorf("%w: %w", errNoIdentity, err)
	}

	if !t.cfg.Allow(id) {
		return spiffeid.ID{}, fmt.Errorf("%s: %w", id, errNotAllowed)
	}

	return id, nil
}

// ServeHTTP implements http.Handler.
func (t *transport) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !t.begin() {
		return
	}

	defer t.tasks.Done()

	var answer []byte

	err := t.cfg.Panics.Run(contain.Gossip, func() (err error) {
		answer, err = t.serve(http.NewResponseController(w), r)
		return err
	})
	if err != nil {
		t.cfg.Logger.LogAttrs(r.Context(), slog.LevelDebug, "gossip: a request was refused",
			slog.String("from", r.RemoteAddr), slog.Any("err", err))
		w.Header().Set("Connection", "close") // net/http would read the rest of the body
		http.Error(w, err.Error(), http.StatusForbidden)

		return
	}

	w.Header().Set(headerAddress, t.cfg.Advertise)
	w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
	w.Header()["Date"] = nil
	_, _ = w.Write(answer)
}

// begin counts a request among the tasks for which Shutdown waits. It returns false if the transport
// is closed.
func (t *transport) begin() bool {
	t.mu.Lock()
	defer t.mu.Unlock()

	if !t.closed {
		t.tasks.Add(1)
	}

	return !t.closed
}

// serve returns the answer to a request.
func (t *transport) serve(conn *http.ResponseController, r *http.Request) ([]byte, error) {
	id, err := t.identify(r.TLS, t.cfg.ServerTLS)
	if err != nil {
		return nil, err
	}

	if id == t.cfg.Node {
		return nil, errOtherNode
	}

	c, err := t.meet(id, r.Header.Get(headerAddress))
	if err != nil {
		return nil, err
	}

	most := int64(maxPackets)

	// The place is taken before the body is read, because the body is held in memory.
	if r.URL.Path == pathStream {
		release, refused := t.exchanges.Take(t.caller(id), 1)
		if refused != nil {
			return nil, errTooMany
		}
		defer release()

		most = maxStream
	}

	if err := t.payBody(c, r.ContentLength, most); err != nil {
		return nil, err
	}

	deadline := time.Now().Add(callTimeout)
	if err := errors.Join(conn.SetReadDeadline(deadline), conn.SetWriteDeadline(deadline)); err != nil {
		return nil, err
	}

	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}

	var answer []byte

	switch r.URL.Path {
	case pathPackets:
		err = t.receive(c, body)
	case pathStream:
		answer, err = t.answer(id, body)
	default:
		err = errRequest
	}

	t.cfg.Traffic(id.TrustDomain(), len(body), len(answer))

	return answer, err
}

func (t *transport) caller(id spiffeid.ID) limit.Caller {
	if id.MemberOf(t.cfg.Node.TrustDomain()) {
		return limit.Caller{Kind: limit.Own, ID: id.String()}
	}

	return limit.Caller{Kind: limit.Foreign, ID: id.String(), Group: id.TrustDomain().Name()}
}

// receive filters packets, delivers the messages among them and passes the others to memberlist.
func (t *transport) receive(c *contact, body []byte) error {
	packets, err := splitParts(body)
	if err != nil || len(packets) > queuedEach {
		return errors.Join(errRequest, err)
	}

	// The first packet is paid for with the request.
	if len(packets) > 1 {
		if err := t.pay(c, paceEach*(len(packets)-1)); err != nil {
			return err
		}
	}

	for _, packet := range packets {
		var rest, message []byte

		err := t.cfg.Panics.Run(contain.Gossip, func() (err error) {
			rest, message, err = t.filter.packet(c.id, packet)
			return err
		})

		switch {
		case err != nil:
			t.refused(c.id, err)
			continue
		case message != nil:
			t.deliver(c.id, func() { t.mesh.Deliver(c.id, message) })
			continue
		}

		select {
		case t.packets <- &memberlist.Packet{Buf: rest, From: nodeAddr{c.id}, Timestamp: time.Now()}:
		case <-t.ctx.Done():
		}
	}

	return nil
}

// deliver calls the mesh with messages or heads of a node once it is the turn of the node's domain. A
// flood of one domain delays a message of another by two of its own at most, and is read no faster.
func (t *transport) deliver(from spiffeid.ID, call func()) {
	leave, err := t.turns.Enter(t.ctx, t.caller(from))
	if err != nil {
		t.mesh.Dropped(from)
		return
	}
	defer leave()

	t.cfg.Panics.Do(contain.Gossip, call) // a panic drops this message only
}

// refused logs that input of a node is dropped. The level is debug, because other nodes can cause
// lines at will.
func (t *transport) refused(from spiffeid.ID, err error) {
	t.cfg.Logger.LogAttrs(t.ctx, slog.LevelDebug, "gossip: input was dropped",
		slog.String("from", from.String()), slog.Any("err", err))
}

// answer hands a stream to memberlist, and returns memberlist's message.
func (t *transport) answer(from spiffeid.ID, body []byte) ([]byte, error) {
	msg, err := t.open(from, body)
	if err != nil {
		return nil, err
	}

	near, far := net.Pipe()
	defer near.Close()

	select {
	case t.streams <- far:
	case <-t.ctx.Done():
		return nil, errClosed
	}

	t.tasks.Go(func() { _, _ = near.Write(msg) })

	// memberlist closes the stream after its message, and gives it a deadline.
	answer, err := io.ReadAll(near)
	if err != nil || len(answer) == 0 {
		return nil, err
	}

	return t.seal(from, answer), nil
}

// seal returns the body with a message of memberlist to a node.
func (t *transport) seal(to spiffeid.ID, msg []byte) []byte {
	body := appendPart(nil, msg)
	if len(msg) == 0 || msg[0] != wirePushPull {
		return body
	}

	// Heads that exceed the bounds are left out.
	count, end := 0, len(body)+maxAllHeads
	for _, head := range t.mesh.Heads(to.TrustDomain()) {
		if len(head) <= MaxHead && count < maxHeads && len(body)+partHeader+len(head) <= end {
			body = appendPart(body, head)
			count++
		}
	}

	return body
}

// open checks the body with a message of memberlist from a node, delivers its heads and returns the
// message.
func (t *transport) open(from spiffeid.ID, body []byte) ([]byte, error) {
	parts, err := splitParts(body)
	if err != nil || len(parts) == 0 {
		return nil, errors.Join(errRequest, err)
	}

	msg, heads := parts[0], parts[1:]

	err = t.cfg.Panics.Run(contain.Gossip, func() error { return t.filter.stream(from, msg) })
	if err != nil {
		return nil, err
	}

	if len(heads) > maxHeads || len(body) > partHeader+len(msg)+maxAllHeads {
		return nil, fmt.Errorf("%d heads: %w", len(heads), errTooLarge)
	}

	for _, head := range heads {
		if len(head) > MaxHead {
			return nil, fmt.Errorf("a head of %d bytes: %w", len(head), errTooLarge)
		}
	}

	if len(heads) > 0 {
		t.deliver(from, func() { t.mesh.MergeHeads(from, heads) })
	}

	return msg, nil
}

// checkAddress accepts a host:port that can be dialled; the host is an IP address or a name.
// It refuses a slash, which ends the host of a URL.
func checkAddress(address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("%w: %w", errBadAddress, err)
	}

	n, err := strconv.ParseUint(port, 10, 16)
	ip, _ := netip.ParseAddr(host)

	odd := func(r rune) bool { return r <= ' ' || r == '/' || r >= 0x7f }
	if err != nil || n == 0 || host == "" || ip.IsUnspecified() ||
		len(address) > maxAddress || strings.ContainsFunc(address, odd) {
		return errBadAddress
	}

	return nil
}
