package gossip

import (
	"bufio"
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
	packetSize   = 32 << 10        // what memberlist fills
	maxPacket    = packetSize + 64 // with its checksum's header
	queuedEach   = 64              // packets that wait for one node
	writeTimeout = 5 * time.Second
	contactIdle  = 5 * time.Minute // then a contact without a link is forgotten
	maxLinkAge   = time.Hour       // so that new certificates come into use
	quietAfter   = 10 * time.Second
	patience     = 10 * time.Second // for the answer to frameAsk
	retryFirst   = 500 * time.Millisecond
	retryMost    = 15 * time.Second
)

// What one node may send us: honest members of a pool of a hundred domains stay
// below a fifth of it. Who sends more is read more slowly.
const (
	paceBytes  = 256 << 10 // a second
	paceBurst  = 1 << 20
	paceFrame  = 512 // what a frame costs besides its bytes
	headerSize = 4

	// And what all nodes of one domain may, of which at most three are in a pool: one
	// that has many more gains nothing by them.
	domainBytes = 3 * paceBytes
	domainBurst = 3 * paceBurst
)

// A frame is a type in one byte, a length in three, and as many bytes.
const (
	framePacket = 0
	frameAsk    = 1 // is anybody there?
	frameHere   = 2
)

var errFrame = errors.New("not a frame")

// A contact is a node that we have to do with: its links and what waits for it.
// At most maxDomainNodes of one domain are kept, and an idle one is forgotten.
type contact struct {
	t      *transport
	id     spiffeid.ID
	queue  chan outgoing
	pace   *rate.Limiter
	shared *rate.Limiter // of all contacts of its domain
	resume time.Time     // of dialling, after failures; run's own
	retry  *backoff.ExponentialBackOff

	// guarded by t.mu
	address  string    // as the node itself last gave it; empty before
	met      time.Time // when it last proved that it is there; zero before
	dialled  *link
	accepted *link
}

// An outgoing frame, and its audience unless that is every member.
type outgoing struct {
	frame []byte
	may   Audience
}

// A link is one connection for packets, both ways.
type link struct {
	*secured
	ends  time.Time    // of its age, or with the other end's certificate
	heard atomic.Int64 // when the last frame came, in Unix nanoseconds
	asked atomic.Bool  // a frameAsk is unanswered
}

// contact returns the contact of that ID, a new one if need be. t.mu is held.
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
		t: t, id: id, queue: make(chan outgoing, queuedEach),
		pace: rate.NewLimiter(paceBytes, paceBurst), shared: t.paces[id.TrustDomain()],
		retry: backoff.NewExponentialBackOff(),
	}
	c.retry.InitialInterval, c.retry.MaxInterval = retryFirst, retryMost
	t.contacts[id] = c
	t.spawnLocked(c.run)

	return c, nil
}

// meet notes that the node at the other end has proved itself, and its address.
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

// acquainted returns the address that the node gave, if it has proved within the
// last minutes that it is there.
func (t *transport) acquainted(id spiffeid.ID) (address string, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()

	contact := t.contacts[id]
	if contact == nil || contact.address == "" {
		return "", false
	}

	return contact.address, contact.dialled != nil || contact.accepted != nil || time.Since(contact.met) < recentlyMet
}

// address returns where the node is to be dialled.
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

// run sends what is queued, over a link that it dials when there is none.
func (c *contact) run() {
	idle := time.NewTicker(contactIdle)
	defer idle.Stop()

	busy := false
	for {
		select {
		case f := <-c.queue:
			c.send(f)
			busy = true
		case <-idle.C:
			if !busy && c.forget() {
				return
			}

			busy = false
		case <-c.t.ctx.Done():
			return
		}
	}
}

// forget ends a contact that has no link and nothing to do.
func (c *contact) forget() bool {
	c.t.mu.Lock()
	defer c.t.mu.Unlock()

	if c.dialled != nil || c.accepted != nil || len(c.queue) > 0 {
		return false
	}

	if delete(c.t.contacts, c.id); c.t.known(c.id.TrustDomain()) == 0 {
		delete(c.t.paces, c.id.TrustDomain())
	}

	return true
}

func (c *contact) send(outgoing outgoing) {
	link := c.link()
	if link == nil {
		if link = c.redial(); link == nil {
			return // and the frame is dropped, as packets are
		}
	}

	// What was so when it was queued may no longer be.
	if !c.t.cfg.Allow(c.id) || outgoing.may != nil && !outgoing.may(c.id.TrustDomain()) {
		return
	}

	if err := link.send(outgoing.frame); err != nil {
		c.t.drop(link.raw)
		return
	}

	// A cut goes unnoticed by TCP for a quarter of an hour.
	if time.Since(time.Unix(0, link.heard.Load())) > quietAfter && link.asked.CompareAndSwap(false, true) {
		_ = link.SetReadDeadline(time.Now().Add(patience))
		if link.send(frame(frameAsk, nil)) != nil {
			c.t.drop(link.raw)
		}
	}
}

func (c *contact) link() *link {
	c.t.mu.Lock()
	defer c.t.mu.Unlock()

	if c.dialled != nil {
		return c.dialled
	}

	return c.accepted
}

// redial makes a link, or returns nil and drops what waits for one.
func (c *contact) redial() *link {
	if time.Now().Before(c.resume) {
		return nil
	}

	err := errNoAddress
	if address, ok := c.t.address(c.id); ok {
		var s *secured
		if s, err = c.t.dial(c.t.ctx, address, c.id, forPackets); err == nil {
			c.retry.Reset()
			return c.attach(&c.dialled, s)
		}
	}

	c.t.cfg.Logger.Debug("gossip: no connection to a member", "node", c.id.String(), "err", err)

	c.resume = time.Now().Add(c.t.cfg.Stretch(c.retry.NextBackOff()))
	for {
		select {
		case <-c.queue:
		default:
			return nil
		}
	}
}

// adopt makes a connection that the node dialled one of its links.
func (t *transport) adopt(secured *secured) error {
	t.mu.Lock()
	contact, err := t.contact(secured.id)
	t.mu.Unlock()

	if err != nil {
		return err
	}

	contact.attach(&contact.accepted, secured)

	return nil
}

// attach puts a link into its place, instead of an older one, and reads from it
// until it ends.
func (c *contact) attach(place **link, secured *secured) *link {
	l := &link{secured: secured, ends: time.Now().Add(maxLinkAge)}
	if secured.expires.Before(l.ends) {
		l.ends = secured.expires
	}

	l.hear()
	c.t.mu.Lock()
	old := *place
	*place = l
	c.t.spawnLocked(func() {
		c.read(l)
		c.detach(l)
	})
	c.t.mu.Unlock()

	if old != nil {
		c.t.drop(old.raw)
	}

	return l
}

func (c *contact) detach(link *link) {
	c.t.drop(link.raw)
	c.t.mu.Lock()
	defer c.t.mu.Unlock()

	if c.dialled == link {
		c.dialled = nil
	}

	if c.accepted == link {
		c.accepted = nil
	}

	c.met = time.Unix(0, link.heard.Load())
}

// hangUp closes the contact's links.
func (c *contact) hangUp() {
	c.t.mu.Lock()
	links := slices.DeleteFunc([]*link{c.dialled, c.accepted}, func(l *link) bool { return l == nil })
	c.t.mu.Unlock()

	for _, l := range links {
		c.t.drop(l.raw)
	}
}

func (c *contact) read(link *link) {
	r := bufio.NewReader(link)
	for {
		kind, body, err := readFrame(r)
		if errors.Is(err, errFrame) {
			c.t.cfg.Refused("too_large")
		}

		if err != nil {
			return
		}

		if !c.t.cfg.Allow(c.id) {
			c.t.cfg.Refused("not_allowed")
			return
		}

		link.hear()
		// Who sends too much is not read meanwhile, and so pays for it: nothing of what
		// waits is decrypted, parsed or dropped here.
		if c.pay(len(body)) != nil {
			return
		}

		switch kind {
		case framePacket:
			c.receive(body)
		case frameAsk:
			if link.send(frame(frameHere, nil)) != nil {
				return
			}
		}
	}
}

// pay waits until what a frame of so many bytes costs is within the paces.
func (c *contact) pay(bytes int) error {
	cost := paceFrame + bytes
	if err := c.pace.WaitN(c.t.ctx, cost); err != nil {
		return err
	}

	return c.shared.WaitN(c.t.ctx, cost)
}

// receive checks one packet and hands on what it holds.
func (c *contact) receive(packet []byte) {
	var (
		rest     []byte
		messages [][]byte
	)

	err := c.t.cfg.Panics.Run(contain.Gossip, func() (err error) {
		rest, messages, err = c.t.filter.packet(c.id, packet)
		return err
	})
	if err != nil {
		c.t.cfg.Refused(reasonOf(err))
		return
	}

	for _, m := range messages {
		c.t.take(c.id, news{message: slices.Clone(m)})
	}

	if rest == nil {
		return
	}

	select {
	case c.t.packets <- &memberlist.Packet{Buf: rest, From: nodeAddr{c.id}, Timestamp: time.Now()}:
	case <-c.t.ctx.Done():
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

// nodeAddr is a node's name where memberlist's log wants an address.
type nodeAddr struct{ id spiffeid.ID }

func (nodeAddr) Network() string  { return Protocol }
func (a nodeAddr) String() string { return a.id.String() }

// hear notes that the other end is there.
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

// readFrame refuses a frame that is too long before it makes room for it.
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
