package gossip

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

// An Audience says which domains may have a message. It is asked about every
// recipient anew, last when the message goes into the recipient's connection, so
// that a changed key document takes effect at once. It is called often and with
// no lock of gossip's held; it must be quick.
type Audience func(spiffeid.TrustDomain) bool

// The pace of broadcasts.
const (
	tellAtOnce    = 4                     // members a round and broadcast
	gatherFor     = 50 * time.Millisecond // before the first round, so that the latest of a stream wins
	broadcastLife = 30 * time.Second      // then pulls have brought it
	maxStreams    = 1024                  // whose newest message is being told
	maxPublished  = 4096                  // streams whose last message is known
)

// broadcasts are the messages that this node tells the pool. memberlist's queue
// would give them to whomever it talks to next; here each goes to members of its
// audience, to each of them once.
type broadcasts struct {
	cfg     *Config
	members func() []spiffeid.ID // but for this node
	send    func(to spiffeid.ID, packet []byte, may Audience) error
	wake    chan struct{} // has room for one: there is something to tell

	mu        sync.Mutex
	fresh     map[string]*broadcast        // by stream
	published map[string][sha256.Size]byte // by stream, the hash of what was last published
}

// A broadcast is one stream's newest message.
type broadcast struct {
	stream string
	packet []byte // as memberlist's user messages are
	may    Audience
	since  time.Time
	told   map[spiffeid.ID]bool // the loop's own
}

func newBroadcasts(
	cfg *Config,
	members func() []spiffeid.ID,
	send func(spiffeid.ID, []byte, Audience) error,
) *broadcasts {
	return &broadcasts{
		cfg: cfg, members: members, send: send, wake: make(chan struct{}, 1),
		fresh: map[string]*broadcast{}, published: map[string][sha256.Size]byte{},
	}
}

// publish has a message told to its audience, in the place of an earlier one of
// its stream. The same message again changes nothing: it was told, and a broadcast
// that is passed on ends by that.
func (b *broadcasts) publish(stream string, msg []byte, may Audience) {
	hash := sha256.Sum256(msg)
	b.mu.Lock()
	defer b.mu.Unlock()

	if b.published[stream] == hash {
		return
	}

	bound(b.published, stream, maxPublished) // costs a repetition, no more
	bound(b.fresh, stream, maxStreams)       // costs a pull
	b.published[stream] = hash
	b.fresh[stream] = &broadcast{
		stream: stream, packet: append([]byte{wireUser}, msg...), may: may, since: time.Now(),
		told: map[spiffeid.ID]bool{},
	}
	nudge(b.wake)
}

// nudge wakes the one reader of a channel that has room for one.
func nudge(wake chan<- struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
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
func (b *broadcasts) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.wake:
		}

		b.rounds(ctx)
	}
}

// rounds goes on until nothing is left to tell or ctx ends.
func (b *broadcasts) rounds(ctx context.Context) {
	pause := min(gatherFor, b.cfg.Timing.Gossip)

	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}

		if !b.round(time.Now()) {
			return
		}

		pause = b.cfg.Timing.Gossip
	}
}

// round tells each broadcast to some who haven't heard it, the least told first. It
// reports whether anything is left to tell.
func (b *broadcasts) round(now time.Time) (more bool) {
	members, room := b.members(), map[spiffeid.ID]int{}
	for _, u := range b.leastTold() {
		if b.tell(u, members, room) || now.Sub(u.since) >= broadcastLife {
			b.end(u)
		}
	}

	b.mu.Lock()
	defer b.mu.Unlock()

	return len(b.fresh) > 0
}

func (b *broadcasts) leastTold() []*broadcast {
	b.mu.Lock()
	defer b.mu.Unlock()

	all := make([]*broadcast, 0, len(b.fresh))
	for _, u := range b.fresh {
		all = append(all, u)
	}

	slices.SortFunc(all, func(a, b *broadcast) int {
		return cmp.Or(cmp.Compare(len(a.told), len(b.told)), cmp.Compare(a.stream, b.stream))
	})

	return all
}

func (b *broadcasts) end(broadcast *broadcast) {
	b.mu.Lock()
	defer b.mu.Unlock()

	if b.fresh[broadcast.stream] == broadcast {
		delete(b.fresh, broadcast.stream)
	}
}

// tell tells one broadcast to at most tellAtOnce members. room counts the bytes that
// each member was sent in this round, at most packetSize. done says that enough
// have heard it, or all that may.
func (b *broadcasts) tell(broadcast *broadcast, members []spiffeid.ID, room map[spiffeid.ID]int) (done bool) {
	enough := retransmit * int(math.Ceil(math.Log10(float64(len(members)+2))))

	sent, left := 0, false
	for _, i := range rand.Perm(len(members)) {
		id := members[i]
		switch {
		case broadcast.told[id] || !broadcast.may(id.TrustDomain()):
			continue
		case sent == tellAtOnce || room[id]+len(broadcast.packet) > packetSize ||
			b.send(id, broadcast.packet, broadcast.may) != nil:
			left = true
		default:
			room[id] += len(broadcast.packet)
			broadcast.told[id] = true
			sent++
		}

		if len(broadcast.told) >= enough {
			return true
		}

		if sent == tellAtOnce && left {
			return false
		}
	}

	return len(broadcast.told) > 0 && !left
}
