package gossip

import (
	"context"
	"slices"
	"sync"

	"github.com/roster-mesh/roster/directory/contain"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// inboxEach bounds the waiting messages of one sender. Pulls bring the data of older ones.
const inboxEach = 16

// news is a message that one node sent, or the heads known to it.
type news struct {
	message []byte
	heads   [][]byte
}

// An inbox holds received messages and heads until its only reader takes them, one sender
// after the other. A sender of too many messages displaces only its own older ones.
type inbox struct {
	cfg  *Config
	mesh Mesh
	some chan struct{} // capacity 1: something is waiting

	mu      sync.Mutex
	waiting map[spiffeid.ID][]news
	turn    []spiffeid.ID // the keys of waiting, the next one first
}

func newInbox(cfg *Config, mesh Mesh) *inbox {
	return &inbox{cfg: cfg, mesh: mesh, some: make(chan struct{}, 1), waiting: map[spiffeid.ID][]news{}}
}

// put adds news of a node. It never blocks.
func (b *inbox) put(from spiffeid.ID, news news) {
	b.mu.Lock()
	defer b.mu.Unlock()

	w := b.waiting[from]
	if w == nil {
		b.turn = append(b.turn, from)
	}

	if news.heads != nil { // they supersede earlier ones of the same sender
		w = slices.DeleteFunc(w, isHeads)
	}

	if len(w) >= inboxEach {
		w = w[1:]
		b.cfg.Refused("inbox_full")
	}

	b.waiting[from] = append(w, news)
	nudge(b.some)
}

func isHeads(n news) bool { return n.heads != nil }

func (b *inbox) next() (from spiffeid.ID, n news, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()

	if len(b.turn) == 0 {
		return spiffeid.ID{}, news{}, false
	}

	from, b.turn = b.turn[0], b.turn[1:]
	w := b.waiting[from]

	n = w[0]
	if len(w) == 1 {
		delete(b.waiting, from)
	} else {
		b.waiting[from] = w[1:]
		b.turn = append(b.turn, from)
	}

	return from, n, true
}

// run delivers received messages and heads until ctx ends.
func (b *inbox) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.some:
		}

		for ctx.Err() == nil {
			from, news, ok := b.next()
			if !ok {
				break
			}

			b.cfg.Panics.Do(contain.Gossip, func() { // a panic drops this news only
				if isHeads(news) {
					b.mesh.MergeHeads(from, news.heads)
				} else {
					b.mesh.Deliver(from, news.message)
				}
			})
		}
	}
}
