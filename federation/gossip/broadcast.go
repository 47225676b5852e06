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

// An Audience reports whether a domain may have a message. It is called for every recipient,
// the last time before the message is written to the recipient's connection, so that a
// changed key document takes effect at once. It is called often, without any lock of gossip
// held, and must be quick.
type Audience func(spiffeid.TrustDomain) bool

// The pace of broadcasts.
const (
	tellAtOnce    = 4                     // recipients of one broadcast in one round
	gatherFor     = 50 * time.Millisecond // before the first round, so that the latest of a stream wins
	broadcastLife = 30 * time.Second      // after which pulls have delivered the data
	maxStreams    = 1024                  // with a message that is being sent
	maxPublished  = 4096                  // with a known last message
)

// broadcasts holds the messages that this node sends to the pool. Each goes to members of its
// audience only, at most once to each. memberlist's queue can't do that, because it chooses
// recipients without regard to the audience.
type broadcasts struct {
	cfg     *Config
	members func() []spiffeid.ID // without this node
	send    func(to spiffeid.ID, packet []byte, may Audience) error
	wake    chan struct{} // capacity 1: a message is waiting

	mu        sync.Mutex
	fresh     map[string]*broadcast        // by stream
	published map[string][sha256.Size]byte // by stream, the hash of the last published message
}

// A broadcast is one stream's newest message.
type broadcast struct {
	stream string
	packet []byte // in the format of memberlist's user messages
	may    Audience
	since  time.Time
	told   map[spiffeid.ID]bool // recipients so far; used by the loop only
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

// publish queues a message for its audience, in place of an earlier one of its stream. A
// repetition of the stream's last message is ignored; this ends the circulation of a
// message that members pass on.
func (b *broadcasts) publish(stream string, msg []byte, may Audience) {
	hash := sha256.Sum256(msg)
	b.mu.Lock()
	defer b.mu.Unlock()

	if b.published[stream] == hash {
		return
	}

	bound(b.published, stream, maxPublished) // an evicted hash costs one repeated broadcast
	bound(b.fresh, stream, maxStreams)       // an evicted message costs a pull
	b.published[stream] = hash
	b.fresh[stream] = &broadcast{
		stream: stream, packet: append([]byte{wireUser}, msg...), may: may, since: time.Now(),
		told: map[spiffeid.ID]bool{},
	}
	nudge(b.wake)
}

// nudge wakes the only reader of a channel with capacity 1.
func nudge(wake chan<- struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

// bound removes arbitrary other keys until key fits within limit.
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

// run sends queued broadcasts, one round each Timing.Gossip, until ctx ends.
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

// rounds runs rounds until no broadcast is left or ctx ends.
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

// round sends each broadcast to some members that have not received it. Broadcasts with the
// fewest recipients go first. It reports whether any broadcast is left.
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

	// A newer message of the stream may have replaced it during the round.
	if b.fresh[broadcast.stream] == broadcast {
		delete(b.fresh, broadcast.stream)
	}
}

// tell sends one broadcast to at most tellAtOnce members. room counts the bytes sent to each
// member in this round, at most packetSize. done is true once enough members have received
// the broadcast, or all members in its audience.
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

	// Without a recipient the broadcast stays until its life ends, because members may still join.
	return len(broadcast.told) > 0 && !left
}
