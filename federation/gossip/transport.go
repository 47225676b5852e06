package gossip

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"golang.org/x/time/rate"
)

// Protocol is the ALPN protocol of gossip connections.
const Protocol = "roster-gossip/1"

// The first byte that a dialler sends states the purpose of the connection.
const (
	forPackets  = 'p' // a link: frames until one end closes it
	forExchange = 's' // a memberlist stream: a request and its response
)

// The bounds of connections.
const (
	handshakeTimeout = 5 * time.Second
	maxHandshakes    = 1024 // of unknown callers, at a time
	maxExchanges     = 128  // at a time
	maxExchangesEach = 4    // of one node
	maxDomainNodes   = 64   // nodes of one domain that may be connected
	maxAnswered      = 1024
	maxAddress       = 255
	recentlyMet      = 2 * time.Minute
)

// placeholderIP is the address of every member for memberlist, which requires IP addresses.
// Our members have authenticated names and addresses of any kind that may change. The
// transport therefore dials by name.
var placeholderIP = net.IPv4(127, 0, 0, 1).To4()

const placeholderPort = 1

var (
	errNotAllowed    = errors.New("neither a node of this domain nor of an active peering")
	errNoIdentity    = errors.New("no SPIFFE ID, or another protocol")
	errOtherNode     = errors.New("another node answered")
	errNoAddress     = errors.New("no known address")
	errTooMany       = errors.New("too many connections")
	errClosed        = errors.New("gossip is closed")
	errNotAnAddress  = errors.New("not a host:port")
	errPacketTooLong = errors.New("packet too long")
)

// A transport carries memberlist's packets and streams over mutually authenticated TLS
// (memberlist.NodeAwareTransport). Nodes are addressed by SPIFFE ID. A network address,
// "host:port" in place of the name, is only dialled to join; the certificate of the node
// there states its ID. Packets to one node share one connection, its link, whichever side
// dialled it. Each stream has its own connection.
type transport struct {
	cfg            *Config
	server, client *tls.Config
	heads          func(to spiffeid.TrustDomain) [][]byte
	take           func(from spiffeid.ID, n news)
	addressOf      func(spiffeid.ID) (string, bool) // addresses that members state themselves
	packets        chan *memberlist.Packet
	streams        chan net.Conn
	handshakes     chan struct{}
	probes         probes
	filter         packetFilter
	shutdown       sync.Once
	ctx            context.Context
	cancel         context.CancelFunc
	tasks          sync.WaitGroup

	mu        sync.Mutex // guards the fields below; never held while another lock is taken
	closed    bool
	open      map[net.Conn]struct{} // closed by Shutdown
	contacts  map[spiffeid.ID]*contact
	paces     map[spiffeid.TrustDomain]*rate.Limiter // of domains with contacts
	exchanges map[spiffeid.ID]int                    // open exchanges that the node began
	answering int                                    // sum of exchanges
	answered  map[string]spiffeid.ID
}

var _ memberlist.NodeAwareTransport = (*transport)(nil)

func newTransport(
	cfg *Config,
	heads func(spiffeid.TrustDomain) [][]byte,
	take func(spiffeid.ID, news),
	addressOf func(spiffeid.ID) (string, bool),
) *transport {
	t := &transport{
		cfg: cfg, heads: heads, take: take, addressOf: addressOf,
		server: protocolTLS(cfg.ServerTLS), client: protocolTLS(cfg.ClientTLS),
		packets: make(chan *memberlist.Packet), streams: make(chan net.Conn),
		handshakes: make(chan struct{}, maxHandshakes),
		probes: probes{longest: awareness * max(cfg.Timing.Probe, cfg.Timing.ProbeTimeout),
			sent: map[uint32]time.Time{}},
		filter: packetFilter{self: cfg.Node.String(), stated: map[string]int64{}},
		open:   map[net.Conn]struct{}{}, contacts: map[spiffeid.ID]*contact{},
		paces:     map[spiffeid.TrustDomain]*rate.Limiter{},
		exchanges: map[spiffeid.ID]int{}, answered: map[string]spiffeid.ID{},
	}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	t.spawn(t.accept)

	return t
}

func protocolTLS(given *tls.Config) *tls.Config {
	config := given.Clone()
	config.NextProtos = []string{Protocol}
	config.MinVersion = tls.VersionTLS13
	config.SessionTicketsDisabled = true // every connection authenticates both ends

	return config
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
	t.probes.note(data)

	id, err := spiffeid.FromString(to.Name)
	if err != nil {
		return time.Time{}, fmt.Errorf("%s: %w", to.Name, errNoAddress)
	}

	return time.Now(), t.queue(id, data, nil)
}

// queue takes a packet for a node and returns at once. A packet that can't be delivered is
// dropped, as in a network. It is also dropped if the node is no longer in the audience when
// the packet is sent. A nil audience is every member.
func (t *transport) queue(id spiffeid.ID, packet []byte, may Audience) error {
	if len(packet) > maxPacket {
		return errPacketTooLong
	}

	if !t.cfg.Allow(id) {
		return errNotAllowed
	}

	t.mu.Lock()
	defer t.mu.Unlock()

	if t.closed {
		return errClosed
	}

	// forget looks at the queue under the same lock, so no frame goes to a contact that is being removed.
	contact, err := t.contact(id)
	if err != nil {
		return err
	}

	select {
	case contact.queue <- outgoing{frame(framePacket, packet), may}:
	default:
		t.cfg.Refused("queue_full")
	}

	return nil
}

// DialTimeout implements memberlist.Transport. It always fails: nodes are reached by name
// only.
func (t *transport) DialTimeout(string, time.Duration) (net.Conn, error) {
	return nil, errNoAddress
}

// DialAddressTimeout implements memberlist.NodeAwareTransport. The name is a node's SPIFFE
// ID, which the other end must prove, or an address to join at.
func (t *transport) DialAddressTimeout(to memberlist.Address, timeout time.Duration) (net.Conn, error) {
	address, want := to.Name, spiffeid.ID{}
	if strings.HasPrefix(to.Name, "spiffe://") {
		id, err := spiffeid.FromString(to.Name)
		if err != nil {
			return nil, err
		}

		known := false
		if address, known = t.address(id); !known {
			return nil, fmt.Errorf("%s: %w", id, errNoAddress)
		}

		want = id
	}

	ctx, cancel := context.WithTimeout(t.ctx, timeout)
	defer cancel()

	secured, err := t.dial(ctx, address, want, forExchange)
	if err != nil {
		return nil, err
	}

	return t.newExchange(secured, func() {}), nil
}

// Shutdown implements memberlist.Transport. When it returns, every connection is closed,
// every goroutine of the transport has ended, and memberlist's goroutines wait for nothing
// but their locks.
func (t *transport) Shutdown() (err error) {
	t.shutdown.Do(func() {
		t.mu.Lock()
		t.closed = true

		// From here on track closes new connections itself, so none is missed.
		open := slices.Collect(maps.Keys(t.open))
		t.mu.Unlock()
		t.cancel()

		err = t.cfg.Listener.Close()
		for _, raw := range open {
			_ = raw.Close() // not TLS's Close, which waits for a peer that may be gone
		}

		t.tasks.Wait()
		t.endProbes()
	})

	return err
}

// endProbes answers the pings for which memberlist still waits. It runs while memberlist
// takes packets one after the other, and no other node sends any. When memberlist takes the
// first ack, it has handled all earlier packets. The second round answers the pings that
// these packets caused.
func (t *transport) endProbes() {
	for range 2 {
		for _, packet := range t.probes.acks() {
			select {
			case t.packets <- packet:
			case <-time.After(time.Second):
				return // memberlist was never started
			}
		}
	}
}

// spawn runs f unless the transport is closed; Shutdown waits for it.
func (t *transport) spawn(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.spawnLocked(f)
}

func (t *transport) spawnLocked(f func()) {
	if !t.closed {
		t.tasks.Go(f)
	}
}

// accept takes connections until the listener is closed.
func (t *transport) accept() {
	for {
		raw, err := t.cfg.Listener.Accept()
		switch {
		case t.ctx.Err() != nil || errors.Is(err, net.ErrClosed):
			if err == nil {
				_ = raw.Close()
			}

			return
		case err != nil: // out of file descriptors, say
			t.cfg.Logger.Warn("gossip: accepting a connection failed", "err", err)

			select {
			case <-time.After(100 * time.Millisecond):
			case <-t.ctx.Done():
			}

			continue
		}

		select {
		case t.handshakes <- struct{}{}:
			// Handshakes are bounded before the caller is known, because each costs this node a signature.
			if t.track(raw) {
				t.spawn(func() { t.welcome(raw) })
			}
		default:
			t.cfg.Refused("too_many")
			_ = raw.Close()
		}
	}
}

func (t *transport) welcome(raw net.Conn) {
	secured, purpose, err := t.admit(raw)

	// The place is for unknown callers only. From here on the bounds of the node and its domain count.
	<-t.handshakes

	if err == nil {
		switch purpose {
		case forPackets:
			err = t.adopt(secured)
		case forExchange:
			err = t.answer(secured)
		default:
			err = errWire
		}
	}

	if err != nil {
		t.cfg.Logger.LogAttrs(t.ctx, slog.LevelDebug, "gossip: a connection was refused",
			slog.String("from", raw.RemoteAddr().String()), slog.Any("err", err))
		t.drop(raw)
	}
}

func (t *transport) admit(raw net.Conn) (secured *secured, purpose byte, err error) {
	ctx, cancel := context.WithTimeout(t.ctx, handshakeTimeout)
	defer cancel()

	if secured, err = t.prove(ctx, raw, tls.Server(raw, t.server), t.server.VerifyConnection); err != nil {
		return nil, 0, err
	}

	if secured.id == t.cfg.Node {
		return nil, 0, errOtherNode
	}

	var first [1]byte
	if _, err := io.ReadFull(secured, first[:]); err != nil {
		return nil, 0, err
	}

	if secured.address, err = readHello(secured); err != nil {
		return nil, 0, err
	}

	if err := t.meet(secured); err != nil {
		t.cfg.Refused("too_many")
		return nil, 0, err
	}

	// The answer comes last, because it tells the dialler that it was accepted.
	if _, err := secured.Write(hello(t.cfg.Advertise)); err != nil {
		return nil, 0, err
	}

	return secured, first[0], secured.SetDeadline(time.Time{})
}

// answer hands a stream to memberlist.
func (t *transport) answer(secured *secured) error {
	t.mu.Lock()

	full := t.answering >= maxExchanges || t.exchanges[secured.id] >= maxExchangesEach
	if !full {
		t.answering++
		t.exchanges[secured.id]++
	}

	t.mu.Unlock()

	if full {
		t.cfg.Refused("too_many")
		return errTooMany
	}

	exchange := t.newExchange(secured, func() {
		t.mu.Lock()
		defer t.mu.Unlock()

		t.answering--
		if t.exchanges[secured.id]--; t.exchanges[secured.id] == 0 {
			delete(t.exchanges, secured.id)
		}
	})
	select {
	case t.streams <- exchange:
	case <-t.ctx.Done():
		_ = exchange.Close()
	}

	return nil
}

// remember stores the node found at an address, so that a seed isn't joined again while that
// node is a member.
func (t *transport) remember(address string, id spiffeid.ID) {
	t.mu.Lock()
	defer t.mu.Unlock()

	if len(t.answered) >= maxAnswered {
		clear(t.answered) // costs one more join at each seed
	}

	t.answered[address] = id
}

// whoAnswered returns the node that the last join at address found there.
func (t *transport) whoAnswered(address string) (spiffeid.ID, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	id, ok := t.answered[address]

	return id, ok
}

// known counts the contacts of a domain. t.mu is held.
func (t *transport) known(td spiffeid.TrustDomain) int {
	n := 0
	for id := range t.contacts {
		if id.MemberOf(td) {
			n++
		}
	}

	return n
}

// expel closes the links of nodes that are no longer allowed.
func (t *transport) expel() {
	t.mu.Lock()

	all := make([]*contact, 0, len(t.contacts))
	for _, c := range t.contacts {
		all = append(all, c)
	}

	t.mu.Unlock()

	for _, c := range slices.DeleteFunc(all, func(c *contact) bool { return t.cfg.Allow(c.id) }) {
		t.hangUp(c)
	}
}
