package gossip

import (
	"context"
	"sync"

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
	deliver func(from spiffeid.ID, msg []byte)
	merge   func(from spiffeid.ID, heads [][]byte)
	refused func(reason string)
	some    chan struct{} // capacity 1: something is waiting

	mu      sync.Mutex
	waiting map[spiffeid.ID][]news
	turn    []spiffeid.ID // the keys of waiting, the next one first
}

func newInbox(deliver func(spiffeid.ID, []byte), merge func(spiffeid.ID, [][]byte), refused func(string)) *inbox {
	return &inbox{
		deliver: deliver, merge: merge, refused: refused,
		some: make(chan struct{}, 1), waiting: map[spiffeid.ID][]news{},
	}
}

// put adds news of a node. It never blocks.
func (b *inbox) put(from spiffeid.ID, news news) {
	b.mu.Lock()
	defer b.mu.Unlock()

	w := b.waiting[from]
	if w == nil {
		b.turn = append(b.turn, from)
	}

	if news.heads != nil {
		w = withoutHeads(w) // new heads supersede earlier ones of the same sender
	}

	if len(w) >= inboxEach {
		w = w[1:]
		b.refused("inbox_full")
	}

	b.waiting[from] = append(w, news)
	nudge(b.some)
}

func withoutHeads(all []news) []news {
	kept := make([]news, 0, len(all)+1)
	for _, n := range all {
		if n.heads == nil {
			kept = append(kept, n)
		}
	}

	return kept
}

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

			if news.heads != nil {
				b.merge(from, news.heads)
			} else {
				b.deliver(from, news.message)
			}
		}
	}
}
