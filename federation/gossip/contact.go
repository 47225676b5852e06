package gossip

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"golang.org/x/time/rate"
)

// The bounds of contacts.
const (
	queuedEach  = 64              // packets that wait for one node, and packets of one request
	contactIdle = 5 * time.Minute // after which a contact is removed
	recentlyMet = 2 * time.Minute
	retryMost   = 15 * time.Second // longest pause between attempts to reach a node
)

// The rate limits of received bytes. Honest members of a pool of a hundred domains stay
// below a fifth of a node's rate. A node that sends more is read more slowly.
const (
	paceBytes = 256 << 10 // a second
	paceBurst = 1 << 20
	paceEach  = 512 // cost of a packet or stream in addition to its bytes

	// The rate of all nodes of one domain together. A pool has at most three members of
	// another domain, so a domain with many more nodes gains nothing.
	domainBytes = 3 * paceBytes
	domainBurst = 3 * paceBurst
)

// A contact is a node that this node has met or has a packet for. At most maxDomainNodes contacts of
// one domain are kept, and idle ones are removed.
type contact struct {
	id       spiffeid.ID
	queue    chan outgoing
	pace     *rate.Limiter
	shared   *rate.Limiter // of all contacts of its domain
	resume   time.Time     // of sending, after failures; of sendQueued alone, as are failures
	failures int

	// guarded by the transport's mu
	address string    // last stated by the node itself; "" before the first meeting
	met     time.Time // last request or answer of the authenticated node
}

// An outgoing is a packet to send and its audience; a nil audience is every member.
type outgoing struct {
	packet []byte
	may    Audience
}

// contact returns the contact of that ID, and creates it if there is none. t.mu is held.
func (t *transport) contact(id spiffeid.ID) (*contact, error) {
	if c := t.contacts[id]; c != nil {
		return c, nil
	}

	if t.closed {
		return nil, errClosed
	}

	td := id.TrustDomain()
	if t.known(td) >= maxDomainNodes {
		return nil, errTooMany
	}

	if t.paces[td] == nil {
		t.paces[td] = rate.NewLimiter(domainBytes, domainBurst)
	}

	c := &contact{
		id: id, queue: make(chan outgoing, queuedEach),
		pace: rate.NewLimiter(paceBytes, paceBurst), shared: t.paces[td],
	}
	t.contacts[id] = c
	t.tasks.Go(func() { t.sendQueued(c) })

	return c, nil
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

// meet stores the address that an authenticated node states, and the time of the meeting.
func (t *transport) meet(id spiffeid.ID, address string) (*contact, error) {
	if err := checkAddress(address); err != nil {
		return nil, fmt.Errorf("%s %q: %w", headerAddress, address, err)
	}

	t.mu.Lock()
	defer t.mu.Unlock()

	c, err := t.contact(id)
	if err != nil {
		return nil, err
	}

	c.address, c.met = address, time.Now()

	return c, nil
}

// acquainted returns the address that the node stated. ok is true if the node was authenticated
// within recentlyMet.
func (t *transport) acquainted(id spiffeid.ID) (address string, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()

	c := t.contacts[id]
	if c == nil {
		return "", false
	}

	return c.address, time.Since(c.met) < recentlyMet
}

// address returns the address at which to dial the node.
func (t *transport) address(id spiffeid.ID) (string, bool) {
	if address, _ := t.acquainted(id); address != "" {
		return address, true
	}

	return t.addressOf(id)
}

// queue takes a packet for a node and returns at once. A packet that can't be delivered is
// dropped, as in a network. It is also dropped if the node is no longer in the audience when
// the packet is sent. A nil audience is every member.
func (t *transport) queue(id spiffeid.ID, packet []byte, may Audience) error {
	if len(packet) > maxPacket {
		return errTooLarge
	}

	if !t.cfg.Allow(id) {
		return errNotAllowed
	}

	t.mu.Lock()
	defer t.mu.Unlock()

	if t.closed {
		return errClosed
	}

	// forget looks at the queue under the same lock, so no packet goes to a contact that is being removed.
	c, err := t.contact(id)
	if err != nil {
		return err
	}

	select {
	case c.queue <- outgoing{packet, may}:
	default:
	}

	return nil
}

// sendQueued sends a contact's queued packets.
func (t *transport) sendQueued(c *contact) {
	idle := time.NewTicker(contactIdle)
	defer idle.Stop()

	busy := false
	for {
		select {
		case first := <-c.queue:
			t.send(c, first)
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

// forget removes a contact that has no queued packet and was not met lately. It reports whether it did.
func (t *transport) forget(c *contact) bool {
	t.mu.Lock()
	defer t.mu.Unlock()

	if len(c.queue) > 0 || time.Since(c.met) < contactIdle {
		return false
	}

	if delete(t.contacts, c.id); t.known(c.id.TrustDomain()) == 0 {
		delete(t.paces, c.id.TrustDomain())
	}

	return true
}

// send sends a packet, and those that wait behind it, in one request. After a failure packets are
// dropped until c.resume.
func (t *transport) send(c *contact, first outgoing) {
	var (
		batch []outgoing
		body  []byte
	)

	for next := first; ; next = <-c.queue {
		// The audience may have changed since the packet was queued.
		if next.may == nil || next.may(c.id.TrustDomain()) {
			batch, body = append(batch, next), appendPart(body, next.packet)
		}

		if len(c.queue) == 0 || len(body) > maxPackets/2 || len(batch) == queuedEach {
			break
		}
	}

	if len(batch) == 0 || time.Now().Before(c.resume) {
		return
	}

	err := errNoAddress
	if address, ok := t.address(c.id); ok {
		_, _, err = t.call(callTimeout, c.id, address, pathPackets, body, func() bool {
			for _, out := range batch {
				if out.may != nil && !out.may(c.id.TrustDomain()) {
					return false
				}
			}

			return true
		})
	}

	if err == nil {
		c.failures = 0
		return
	}

	t.cfg.Logger.Debug("gossip: packets to a member were dropped", "node", c.id.String(), "err", err)

	c.resume = time.Now().Add(pause(c.failures, t.cfg.Stretch(retryMost)))
	c.failures++
}

// payBody waits until a body of that length is within the paces of its sender. Waiting bytes are neither
// decrypted nor parsed nor dropped. A body that is too long, or of unknown length, is refused.
func (t *transport) payBody(c *contact, length, most int64) error {
	if length < 0 || length > most {
		return fmt.Errorf("a body of %d bytes: %w", length, errTooLarge)
	}

	return t.pay(c, paceEach+int(length))
}

// pay waits until a cost is within the paces of a node and its domain.
func (t *transport) pay(c *contact, cost int) error {
	if err := c.pace.WaitN(t.ctx, cost); err != nil {
		return err
	}

	return c.shared.WaitN(t.ctx, cost)
}

// A body consists of parts, each after its length in four bytes.
const partHeader = 4

func appendPart(body, part []byte) []byte {
	return append(binary.BigEndian.AppendUint32(body, uint32(len(part))), part...)
}

// splitParts is the reverse of appendPart. The parts share the body's memory.
func splitParts(body []byte) (parts [][]byte, err error) {
	for len(body) > 0 {
		if len(body) < partHeader {
			return nil, errRequest
		}

		length := binary.BigEndian.Uint32(body)
		if body = body[partHeader:]; uint64(length) > uint64(len(body)) {
			return nil, errRequest
		}

		parts = append(parts, body[:length:length])
		body = body[length:]
	}

	return parts, nil
}
