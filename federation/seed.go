package federation

import (
	"context"
	"sync"
)

// seed takes from the domain's other nodes what they have of an origin that this
// node has nothing of, before it takes anything from anybody else: a node that lost
// its disk could else be told what is long over (federation.md, "Epochs"). The head
// that a sibling has names the epoch, and its chain brings the watermark. A node
// whose siblings have nothing, or don't answer, begins at 0; what a sibling didn't
// have is pulled from the origin afterwards.
func (fl *follower) seed(ctx context.Context, o *origin) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, f := range o.streams.pair.feeds() {
		if o.streams.blank(f) {
			wg.Go(func() { fl.seedFeed(ctx, o, f) })
		}
	}
}

func (fl *follower) seedFeed(ctx context.Context, o *origin, f *feed) {
	for _, n := range fl.neighbours.siblings(seedSiblings) {
		fl.puller.pullFromAnother(ctx, o, f, n)
	}
}

// seedSiblings bounds how many of the domain's nodes are asked. All are, in a domain
// of common size: one of them may be behind the others.
const seedSiblings = 8

// blank reports whether nothing is held of a stream.
func (ss *streams) blank(f *feed) bool {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return f.cur == nil && f.next == nil
}
