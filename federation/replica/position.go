package replica

import (
	"math/rand/v2"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/federation/store"
)

// ShownStream returns the stream of an audience that is shown, or nil.
func (o *Origin) ShownStream(aud directory.Audience) *Stream {
	o.mu.Lock()
	defer o.mu.Unlock()

	if f := o.FeedOf(aud); f != nil {
		return f.Cur
	}

	return nil
}

// Since returns the revision after which to pull.
func (o *Origin) Since(feed *Feed) uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()

	return feed.Newest().State.Watermark
}

// IsCaughtUp reports whether the origin's private stream is complete here up to a position. It is
// also true if the origin failed to answer for that stream after since, so that readers don't wait
// in vain.
func (o *Origin) IsCaughtUp(position directory.Position, since time.Time) bool {
	if o.Contacts.failedSince(o.Private.Aud, since) {
		return true
	}

	o.mu.Lock()
	defer o.mu.Unlock()

	st := o.Private.Cur
	if st == nil {
		return false
	}

	have := directory.Position{Epoch: st.Id.Epoch, Revision: min(st.State.Watermark, st.Missing.complete())}

	return !have.Before(position)
}

// Blank reports whether a feed has no stream here.
func (o *Origin) Blank(feed *Feed) bool {
	o.mu.Lock()
	defer o.mu.Unlock()

	return feed.Cur == nil && feed.next == nil
}

// Position returns the position up to which readers see every announced change. A missing
// record delays it only until a request for that record has failed.
func (o *Origin) Position() (directory.Position, bool) {
	if reached := o.reached.Load(); reached != nil {
		return *reached, true
	}

	o.mu.Lock()
	defer o.mu.Unlock()

	if o.Mesh.Cur == nil {
		return directory.Position{}, false
	}

	return o.findPosition(), true
}

// findPosition computes the position of the mesh stream that is shown. The caller holds mu.
func (o *Origin) findPosition() directory.Position {
	if o.unshown || o.swapping {
		return o.shownUpTo
	}

	position := directory.Position{Epoch: o.Mesh.Cur.Id.Epoch, Revision: o.Mesh.Cur.State.Watermark}
	if h := o.head; h != nil && h.Epoch == position.Epoch && h.Tip <= position.Revision {
		position.Revision = max(position.Revision, h.At) // nothing changed here in between (rule G5)
	}

	position.Revision = min(position.Revision, o.Mesh.Cur.Missing.complete())

	o.reached.Store(&position)
	o.shownUpTo = position

	return position
}

// Behind reports whether the origin is known to have announced more than is here.
func (o *Origin) Behind() bool {
	o.mu.Lock()
	defer o.mu.Unlock()

	return o.Mesh.Newest().State.Watermark < o.Mesh.tip
}

// ChainOf returns a feed's stream that is shown and its state, and whether one of a newer
// epoch is gathered beside it.
func (o *Origin) ChainOf(feed *Feed) (st *Stream, state store.State, gathering bool) {
	o.mu.Lock()
	defer o.mu.Unlock()

	if feed.Cur != nil {
		state = feed.Cur.State
	}

	return feed.Cur, state, feed.next != nil
}

// A Seen is the state of a stream that readers see: its position here, and its origin's
// key document, which belongs to the mesh stream.
type Seen struct {
	of   *Stream // another one after a new epoch and after a repeated pull
	UpTo uint64
	Keys string
	from uint64 // where the comparison of a new stream begins
}

func (o *Origin) Seen(feed *Feed) (seen Seen) {
	o.mu.Lock()
	defer o.mu.Unlock()

	if st := feed.Cur; st != nil {
		seen.of, seen.UpTo = st, st.State.Watermark
		if st.State.Listed > crossFirst {
			seen.from = st.State.Watermark
		}
	}

	return seen
}

// Compare calls with to compare the revisions of a stream that are new since s, and stores
// the revision reached. The next round continues there. A comparison that is too far behind
// skips revisions, so that a stream that is always too busy is compared in part.
func (s *Seen) Compare(now Seen, with func(since uint64) (reached uint64, enough bool)) {
	if now == *s {
		return
	}

	if now.of != s.of {
		*s = Seen{of: now.of, UpTo: now.from}
	}

	if now.UpTo > s.UpTo+crossLag {
		s.UpTo = now.UpTo - rand.Uint64N(crossLag)
	}

	if reached, enough := with(s.UpTo); enough { // otherwise a node is behind, and is asked again
		*s = now
		s.UpTo = reached
	}
}

const crossFirst = 10_000 // digests of a chain that is compared from its beginning

const crossLag = 100_000 // revisions that a comparison may be behind
