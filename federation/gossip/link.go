package gossip

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/hashicorp/memberlist"
	"github.com/roster-mesh/roster/directory/contain"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"golang.org/x/time/rate"
)

// The bounds of packets and links.
const (
	packetSize   = 32 << 10        // memberlist's limit for one packet
	maxPacket    = packetSize + 64 // with its checksum's header
	queuedEach   = 64              // packets that wait for one node
	writeTimeout = 5 * time.Second
	contactIdle  = 5 * time.Minute // after which a contact without a link is removed
	maxLinkAge   = time.Hour       // so that new certificates come into use
	quietAfter   = 10 * time.Second
	patience     = 10 * time.Second // for the answer to frameAsk
	retryFirst   = 500 * time.Millisecond
	retryMost    = 15 * time.Second
)

// The rate limits of received bytes. Honest members of a pool of a hundred domains stay
// below a fifth of a node's rate. A node that sends more is read more slowly.
const (
	paceBytes  = 256 << 10 // a second
	paceBurst  = 1 << 20
	paceFrame  = 512 // cost of a frame in addition to its bytes
	headerSize = 4

	// The rate of all nodes of one domain together. A pool has at most three members of
	// another domain, so a domain with many more nodes gains nothing.
	domainBytes = 3 * paceBytes
	domainBurst = 3 * paceBurst
)

// The types of frames. A frame is a type in one byte, a length in three, and a body of that
// length.
const (
	framePacket = 0
	frameAsk    = 1 // requests a frameHere
	frameHere   = 2
)

var errFrame = errors.New("not a frame")

// A contact holds the links of one node and the frames that wait for it. At most
// maxDomainNodes contacts of one domain are kept, and idle ones are removed.
type contact struct {
	id     spiffeid.ID
	queue  chan outgoing
	pace   *rate.Limiter
	shared *rate.Limiter // of all contacts of its domain
	resume time.Time     // of dialling, after failures; deliver's own
	retry  *backoff.ExponentialBackOff

	// guarded by the transport's mu
	address  string    // last stated by the node itself; "" before the first connection
	met      time.Time // last sign of the authenticated node; zero before the first connection
	dialled  *link
	accepted *link
}

// An outgoing is a frame to send and its audience; a nil audience is every member.
type outgoing struct {
	frame []byte
	may   Audience
}

// A link is one connection for packets, both ways.
type link struct {
	*secured
	ends  time.Time    // the earlier of maxLinkAge and the expiry of the other end's certificate
	heard atomic.Int64 // time of the last received frame, in Unix nanoseconds
	asked atomic.Bool  // a frameAsk is unanswered
}

// contact returns the contact of that ID, and creates it if there is none. t.mu is held.
func (t *transport) contact(id spiffeid.ID) (*contact, error) {
	if c := t.contacts[id]; c != nil {
		return c, nil
	}

	if t.closed {
		return nil, errClosed
	}

	if t.known(id.TrustDomain()) >= maxDomainNodes {
		return nil, errTooMany
	}

	if t.paces[id.TrustDomain()] == nil {
		t.paces[id.TrustDomain()] = rate.NewLimiter(domainBytes, domainBurst)
	}

	c := &contact{
		id: id, queue: make(chan outgoing, queuedEach),
		pace: rate.NewLimiter(paceBytes, paceBurst), shared: t.paces[id.TrustDomain()],
		retry: backoff.NewExponentialBackOff(),
	}
	c.retry.InitialInterval, c.retry.MaxInterval = retryFirst, retryMost
	t.contacts[id] = c
	t.spawnLocked(func() { t.deliver(c) })

	return c, nil
}

// meet stores the address of an authenticated node and the time of the meeting.
func (t *transport) meet(secured *secured) error {
	t.mu.Lock()
	defer t.mu.Unlock()

	contact, err := t.contact(secured.id)
	if err != nil {
		return err
	}

	contact.address, contact.met = secured.address, time.Now()

	return nil
}

// acquainted returns the address that the node stated. ok is true if the node has a link, or
// was authenticated within recentlyMet.
func (t *transport) acquainted(id spiffeid.ID) (address string, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()

	contact := t.contacts[id]
	if contact == nil || contact.address == "" {
		return "", false
	}

	return contact.address, contact.dialled != nil || contact.accepted != nil || time.Since(contact.met) < recentlyMet
}

// address returns the address at which to dial the node.
func (t *transport) address(id spiffeid.ID) (string, bool) {
	t.mu.Lock()

	contact := t.contacts[id]
	if contact != nil && contact.address != "" {
		defer t.mu.Unlock()
		return contact.address, true
	}

	t.mu.Unlock()

	return t.addressOf(id)
}

// deliver sends a contact's queued frames over its link, and dials one if there is none.
func (t *transport) deliver(c *contact) {
	idle := time.NewTicker(contactIdle)
	defer idle.Stop()

	busy := false
	for {
		select {
		case f := <-c.queue:
			t.send(c, f)
			busy = true
		case <-idle.C:
			if !busy && t.forget(c) {
				return
			}

			busy = false
		case <-t.ctx.Done():
			return
		}
	}
}

// forget removes a contact that has no link and no queued frame. It reports whether it did.
func (t *transport) forget(c *contact) bool {
	t.mu.Lock()
	defer t.mu.Unlock()

	if c.dialled != nil || c.accepted != nil || len(c.queue) > 0 {
		return false
	}

	if delete(t.contacts, c.id); t.known(c.id.TrustDomain()) == 0 {
		delete(t.paces, c.id.TrustDomain())
	}

	return true
}

func (t *transport) send(c *contact, outgoing outgoing) {
	link := t.linkOf(c)
	if link == nil {
		if link = t.redial(c); link == nil {
			return // the frame is dropped, as in a network
		}
	}

	// The peering or the audience may have changed since the frame was queued.
	if !t.cfg.Allow(c.id) || outgoing.may != nil && !outgoing.may(c.id.TrustDomain()) {
		return
	}

	// So may the bundle that certified the other end.
	err := link.judge()
	if err == nil {
		err = link.send(outgoing.frame)
	}

	if err != nil {
		t.drop(link.raw)
		return
	}

	// TCP doesn't notice a partition for a quarter of an hour.
	if time.Since(time.Unix(0, link.heard.Load())) > quietAfter && link.asked.CompareAndSwap(false, true) {
		_ = link.SetReadDeadline(time.Now().Add(patience))
		if link.send(frame(frameAsk, nil)) != nil {
			t.drop(link.raw)
		}
	}
}

func (t *transport) linkOf(c *contact) *link {
	t.mu.Lock()
	defer t.mu.Unlock()

	if c.dialled != nil {
		return c.dialled
	}

	return c.accepted
}

// redial dials a contact's link. If that fails, it returns nil and drops the queued frames. After a
// failure it returns nil until c.resume.
func (t *transport) redial(c *contact) *link {
	if time.Now().Before(c.resume) {
		return nil
	}

	err := errNoAddress
	if address, ok := t.address(c.id); ok {
		var s *secured
		if s, err = t.dial(t.ctx, address, c.id, forPackets); err == nil {
			c.retry.Reset()
			return t.attach(c, &c.dialled, s)
		}
	}

	t.cfg.Logger.Debug("gossip: no connection to a member", "node", c.id.String(), "err", err)

	c.resume = time.Now().Add(t.cfg.Stretch(c.retry.NextBackOff()))
	for {
		select {
		case <-c.queue:
		default:
			return nil
		}
	}
}

// adopt makes an accepted connection the node's accepted link.
func (t *transport) adopt(secured *secured) error {
	t.mu.Lock()
	contact, err := t.contact(secured.id)
	t.mu.Unlock()

	if err != nil {
		return err
	}

	t.attach(contact, &contact.accepted, secured)

	return nil
}

// attach stores a new link in place, closes the link that was there, and starts to read from
// the new one until it ends.
func (t *transport) attach(c *contact, place **link, secured *secured) *link {
	l := &link{secured: secured, ends: time.Now().Add(maxLinkAge)}
	if secured.expires.Before(l.ends) {
		l.ends = secured.expires
	}

	l.hear()
	t.mu.Lock()
	old := *place
	*place = l
	t.spawnLocked(func() {
		t.read(c, l)
		t.detach(c, l)
	})
	t.mu.Unlock()

	// After mu is released, which drop takes.
	if old != nil {
		t.drop(old.raw)
	}

	return l
}

func (t *transport) detach(c *contact, link *link) {
	t.drop(link.raw)
	t.mu.Lock()
	defer t.mu.Unlock()

	// A newer link may be in the place already.
	if c.dialled == link {
		c.dialled = nil
	}

	if c.accepted == link {
		c.accepted = nil
	}

	c.met = time.Unix(0, link.heard.Load())
}

// hangUp closes a contact's links.
func (t *transport) hangUp(c *contact) {
	t.mu.Lock()
	links := slices.DeleteFunc([]*link{c.dialled, c.accepted}, func(l *link) bool { return l == nil })
	t.mu.Unlock()

	for _, l := range links {
		t.drop(l.raw)
	}
}

func (t *transport) read(c *contact, link *link) {
	r := bufio.NewReader(link)
	for {
		kind, body, err := readFrame(r)
		if errors.Is(err, errFrame) {
			t.cfg.Refused("too_large")
		}

		if err != nil {
			return
		}

		if !t.cfg.Allow(c.id) || link.judge() != nil {
			t.cfg.Refused("not_allowed")
			return
		}

		link.hear()
		// Backpressure: while the pace is exceeded, the link is not read. Waiting bytes are
		// neither decrypted nor parsed nor dropped.
		if c.pay(t.ctx, len(body)) != nil {
			return
		}

		switch kind {
		case framePacket:
			t.receive(c.id, body)
		case frameAsk:
			if link.send(frame(frameHere, nil)) != nil {
				return
			}
		}
	}
}

// pay waits until the cost of a frame with that number of bytes is within the paces.
func (c *contact) pay(ctx context.Context, bytes int) error {
	cost := paceFrame + bytes
	if err := c.pace.WaitN(ctx, cost); err != nil {
		return err
	}

	return c.shared.WaitN(ctx, cost)
}

// receive filters one packet, and passes its messages to the inbox and the rest to
// memberlist.
func (t *transport) receive(from spiffeid.ID, packet []byte) {
	var (
		rest     []byte
		messages [][]byte
	)

	err := t.cfg.Panics.Run(contain.Gossip, func() (err error) {
		rest, messages, err = t.filter.packet(from, packet)
		return err
	})
	if err != nil {
		t.cfg.Refused(reasonOf(err))
		return
	}

	for _, m := range messages {
		// A copy, so that a waiting message doesn't keep its whole packet in memory.
		t.take(from, news{message: slices.Clone(m)})
	}

	if rest == nil {
		return
	}

	select {
	case t.packets <- &memberlist.Packet{Buf: rest, From: nodeAddr{from}, Timestamp: time.Now()}:
	case <-t.ctx.Done():
	}
}

func reasonOf(err error) string {
	switch {
	case errors.Is(err, errClaim):
		return "name"
	case errors.Is(err, errMessage):
		return "too_large"
	default:
		return "malformed"
	}
}

// nodeAddr is a node's name as a net.Addr, for memberlist's log.
type nodeAddr struct{ id spiffeid.ID }

func (nodeAddr) Network() string  { return Protocol }
func (a nodeAddr) String() string { return a.id.String() }

// hear stores the time of a received frame and extends the read deadline.
func (l *link) hear() {
	l.heard.Store(time.Now().UnixNano())
	l.asked.Store(false)
	_ = l.SetReadDeadline(l.ends)
}

func (l *link) send(data []byte) error {
	if err := l.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return err
	}

	_, err := l.Write(data)

	return err
}

func frame(kind byte, body []byte) []byte {
	f := make([]byte, headerSize, headerSize+len(body))
	binary.BigEndian.PutUint32(f, uint32(kind)<<24|uint32(len(body)))

	return append(f, body...)
}

// readFrame reads one frame. It refuses a frame that is too long before it allocates memory.
func readFrame(r io.Reader) (kind byte, body []byte, err error) {
	var header [headerSize]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return 0, nil, err
	}

	kind, size := header[0], binary.BigEndian.Uint32(header[:])&0xffffff
	if size > maxPacket || kind > frameHere || kind != framePacket && size > 0 {
		return 0, nil, fmt.Errorf("%w: type %d of %d bytes", errFrame, kind, size)
	}

	body = make([]byte, size)
	_, err = io.ReadFull(r, body)

	return kind, body, err
}
