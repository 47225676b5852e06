package federation

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/federation/store"
)

// A feed is what an origin announces to one audience, epoch after epoch. All but
// aud and busy is guarded by its origin's mu; cur and next change while the origin's
// change is held too.
type feed struct {
	aud  directory.Audience
	busy chan struct{} // has one item while a loop pulls page by page, so that no two do

	cur, next *stream   // next: of a newer epoch, not yet at its tip (rule P3)
	tip       uint64    // the highest revision known to be in the stream
	level     time.Time // when this node last knew everything, or began to follow it
}

func newFeed(aud directory.Audience) feed { return feed{aud: aud, busy: make(chan struct{}, 1)} }

// feedOf returns an origin's feed of that audience; nil where it is not for this
// domain.
func (fp *feedPair) feedOf(aud directory.Audience) *feed {
	switch aud {
	case fp.mesh.aud:
		return &fp.mesh
	case fp.private.aud:
		return &fp.private
	}
	return nil
}

// shownStream returns the stream of that audience that is shown; nil where there
// is none.
func (ss *streams) shownStream(aud directory.Audience) *stream {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if f := ss.pair.feedOf(aud); f != nil {
		return f.cur
	}
	return nil
}

func (fp *feedPair) feeds() [2]*feed { return [2]*feed{&fp.mesh, &fp.private} }

// other returns the origin's other feed.
func (fp *feedPair) other(f *feed) *feed {
	if f == &fp.private {
		return &fp.mesh
	}
	return &fp.private
}

// newest returns the stream that a puller fills; never nil.
func (f *feed) newest() *stream {
	switch {
	case f.next != nil:
		return f.next
	case f.cur != nil:
		return f.cur
	}
	return &stream{}
}

// progress notes how far a page that was applied to a stream brings the feed.
func (f *feed) progress(st *stream, p *verifiedPage) {
	if st != f.newest() {
		return
	}

	if n := len(p.Digests); n > 0 {
		f.tip = max(f.tip, p.Digests[n-1].Revision)
	}
	if p.To == p.At && p.To >= f.tip {
		f.level = time.Now()
	}
}

// stream returns the stream that a message of that epoch is about, which may
// begin one; nil where its epoch is over. The origin's change and mu are held.
func (f *feed) stream(id store.StreamID) *stream {
	if f.cur == nil {
		f.cur = newStream(id)
	}
	switch {
	case id.Epoch == f.cur.id.Epoch:
		return f.cur
	case id.Epoch < f.newest().id.Epoch:
		return nil
	case f.next == nil || f.next.id.Epoch < id.Epoch:
		f.next = newStream(id)
	}
	return f.next
}

// streamOf is feed.stream. What was gathered of an epoch that a newer one ends before
// its tip is gone from disk first: no quota counts it any more, and nothing that the
// origin takes back would be looked for there. o.change is held.
func (ss *streams) streamOf(f *feed, id store.StreamID) (*stream, error) {
	over := f.next
	if over != nil && over.id.Epoch < id.Epoch {
		if err := ss.store.Discard(over.id); err != nil {
			return nil, err
		}
	}

	ss.mu.Lock()
	defer ss.mu.Unlock()

	if over != nil && over.id.Epoch < id.Epoch {
		f.next = nil
	}

	return f.stream(id), nil
}

// live reports whether the feed's shown stream holds anything.
func (f *feed) live() bool { return f.cur != nil && f.cur.state.Live > 0 }

// since returns from where to pull.
func (ss *streams) since(f *feed) uint64 {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return f.newest().state.Watermark
}

// complete returns the revision up to which every record is here, or was asked
// for in vain.
func (st *stream) complete() uint64 {
	upTo := uint64(math.MaxUint64)
	for _, w := range st.wanted {
		if w.tries == 0 {
			upTo = min(upTo, w.digest.Revision-1)
		}
	}
	return upTo
}

// caughtUp reports whether what the origin announced to this domain alone is here
// up to p.
func (ss *streams) caughtUp(p directory.Position) bool {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	st := ss.pair.private.cur
	if st == nil {
		return false
	}
	have := directory.Position{Epoch: st.id.Epoch, Revision: min(st.state.Watermark, st.complete())}
	return !have.Before(p)
}

// pullPrivate brings what the origin announces to this domain alone up to the
// origin's present: an empty page says that nothing is new (rule G5).
func (pl *puller) pullPrivate(ctx context.Context, o *origin) {
	n, ok := o.contacts.node(&o.streams.pair.private)
	if !ok {
		return
	}
	select {
	case o.streams.pair.private.busy <- struct{}{}:
		defer func() { <-o.streams.pair.private.busy }()
	default:
		return // another loop is at it
	}
	if err := pl.pullAll(ctx, o, &o.streams.pair.private, n, endless(ctx)); errors.Is(err, store.ErrStalled) {
		o.complain(err)
	} else if err != nil && ctx.Err() == nil {
		o.failed(&o.streams.pair.private, err)
		pl.cfg.Logger.Debug("can't pull what is for this domain alone", "origin", o.domain.Name(), "node", n.Base, "error", err)
	}
}
