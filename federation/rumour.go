package federation

import (
	"cmp"
	"context"
	"crypto/sha256"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// An audience says which domains may have a message. It is asked about every
// recipient anew, last when the message goes into the recipient's connection, so
// that a changed key document takes effect at once. It is called often and with
// no lock of gossip's held; it must be quick.
type audience func(spiffeid.TrustDomain) bool

// The pace of rumours.
const (
	tellAtOnce   = 4                     // members a round and rumour
	gatherFor    = 50 * time.Millisecond // before the first round, so that the latest of a stream wins
	rumourLife   = 30 * time.Second      // then pulls have brought it
	maxStreams   = 1024                  // whose newest message is being told
	maxPublished = 4096                  // streams whose last message is known
)

// Rumours are the messages that this node tells the pool. memberlist's queue
// would give them to whomever it talks to next; here each goes to members of its
// audience, to each of them once.
type rumours struct {
	cfg     *GossipConfig
	members func() []spiffeid.ID // but for this node
	send    func(to spiffeid.ID, packet []byte, may audience) error
	wake    chan struct{} // has room for one: there is something to tell

	mu        sync.Mutex
	fresh     map[string]*rumour           // by stream
	published map[string][sha256.Size]byte // by stream, the hash of what was last published
}

// A rumour is one stream's newest message.
type rumour struct {
	stream string
	packet []byte // as memberlist's user messages are
	may    audience
	since  time.Time
	told   map[spiffeid.ID]bool // the loop's own
}

func newRumours(cfg *GossipConfig, members func() []spiffeid.ID, send func(spiffeid.ID, []byte, audience) error) *rumours {
	return &rumours{
		cfg: cfg, members: members, send: send, wake: make(chan struct{}, 1),
		fresh: map[string]*rumour{}, published: map[string][sha256.Size]byte{},
	}
}

// publish has a message told to its audience, in the place of an earlier one of
// its stream. The same message again changes nothing: it was told, and a rumour
// that is passed on ends by that.
func (r *rumours) publish(stream string, msg []byte, may audience) {
	hash := sha256.Sum256(msg)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.published[stream] == hash {
		return
	}
	bound(r.published, stream, maxPublished) // costs a repetition, no more
	bound(r.fresh, stream, maxStreams)       // costs a pull
	r.published[stream] = hash
	r.fresh[stream] = &rumour{
		stream: stream, packet: append([]byte{wireUser}, msg...), may: may, since: time.Now(), told: map[spiffeid.ID]bool{},
	}
	nudge(r.wake)
}

// bound makes room for one more key.
func bound[V any](m map[string]V, key string, limit int) {
	if _, ok := m[key]; ok {
		return
	}
	for other := range m {
		if len(m) < limit {
			return
		}
		delete(m, other)
	}
}

// run tells what there is, a round each Timing.Gossip, until ctx ends.
func (r *rumours) run(ctx context.Context) {
	for wait(ctx, r.wake, 0) {
		for pause := min(gatherFor, r.cfg.Timing.Gossip); wait(ctx, nil, pause); pause = r.cfg.Timing.Gossip {
			if !r.round(time.Now()) {
				break
			}
		}
	}
}

// round tells each rumour to some who haven't heard it, the least told first. It
// reports whether anything is left to tell.
func (r *rumours) round(now time.Time) (more bool) {
	members, room := r.members(), map[spiffeid.ID]int{}
	for _, u := range r.leastTold() {
		if r.tell(u, members, room) || now.Sub(u.since) >= rumourLife {
			r.end(u)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.fresh) > 0
}

func (r *rumours) leastTold() []*rumour {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]*rumour, 0, len(r.fresh))
	for _, u := range r.fresh {
		all = append(all, u)
	}
	slices.SortFunc(all, func(a, b *rumour) int {
		return cmp.Or(cmp.Compare(len(a.told), len(b.told)), cmp.Compare(a.stream, b.stream))
	})
	return all
}

func (r *rumours) end(u *rumour) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fresh[u.stream] == u {
		delete(r.fresh, u.stream)
	}
}

// tell tells one rumour to at most tellAtOnce members. room counts the bytes that
// each member was sent in this round, at most packetSize. done says that enough
// have heard it, or all that may.
func (r *rumours) tell(u *rumour, members []spiffeid.ID, room map[spiffeid.ID]int) (done bool) {
	enough := retransmit * int(math.Ceil(math.Log10(float64(len(members)+2))))
	sent, left := 0, false
	for _, i := range rand.Perm(len(members)) {
		id := members[i]
		switch {
		case u.told[id] || !u.may(id.TrustDomain()):
			continue
		case sent == tellAtOnce || room[id]+len(u.packet) > packetSize || r.send(id, u.packet, u.may) != nil:
			left = true
		default:
			room[id] += len(u.packet)
			u.told[id] = true
			sent++
		}
		if len(u.told) >= enough {
			return true
		}
		if sent == tellAtOnce && left {
			return false
		}
	}
	return len(u.told) > 0 && !left
}
