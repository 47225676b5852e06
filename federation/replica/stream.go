package replica

import (
	"cmp"
	"context"
	"maps"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/federation/store"
)

// A Stream is the part of one stream that is in memory; the store has the rest.
type Stream struct {
	Id          store.StreamID
	State       store.State
	Used        store.Usage
	Owners      store.Owners // of the records that are held
	Missing     *MissingRecords
	RepullSince uint64       // during a repeated pull, pages made before that revision are old; else 0
	Again       *readmission // that is under way; nil for none, guarded by change

	ended map[directory.RID]endedEntry // that no second node has confirmed; guarded by change
}

// An endedEntry is an entry that an end or a drop removed. Its origin announces the end until the deadline
// and longer (rule G4), so until then the other nodes' silence contradicts it.
type endedEntry struct {
	revision uint64 // of its last end
	deadline int64  // of the entry, in Unix seconds
}

// repeat repeats the changes of a transaction in memory.
func (st *Stream) repeat(done store.Changes, entries int, now time.Time) {
	st.State = done.State
	st.Used = st.Used.Plus(done.Delta)
	st.Owners.Absorb(done.Owners)

	for _, effect := range done.Effects {
		if effect.Missing() {
			st.Missing.add(effect.Digest)
		} else {
			st.Missing.remove(effect.Digest.RID)
		}
	}

	st.noteEnds(done.Effects, entries, now)
}

// minEnded is the number of ended entries for which a stream has room whatever the number of its live ones.
const minEnded = 4096

// noteEnds notes the entries that a page ended before their deadline. A second end of one removes nothing, and is
// compared all the same. It isn't on disk, so ends that were unconfirmed when this node stopped are not compared.
//
// Ended entries take the room that live ones leave, so ends by themselves never exceed it, however many
// an invented one is hidden among. If new entries take that room, ends beyond minEnded are not compared.
func (st *Stream) noteEnds(effects []store.Effect, entries int, now time.Time) {
	most := max(minEnded, entries-int(st.State.Live))

	for _, e := range effects {
		if e.Digest.Live() {
			delete(st.ended, e.Digest.RID)
			continue
		}

		noted, again := st.ended[e.Digest.RID]
		noted.revision = max(noted.revision, e.Digest.Revision)
		noted.deadline = cmp.Or(e.Ended, noted.deadline)

		if now.Before(time.Unix(noted.deadline, 0)) && (again || len(st.ended) < most) {
			st.ended[e.Digest.RID] = noted
		}
	}
}

// forgetEnds forgets ended entries that a second node has confirmed, and those past their deadline.
func (st *Stream) forgetEnds(confirmed uint64, now time.Time) {
	maps.DeleteFunc(st.ended, func(_ directory.RID, e endedEntry) bool {
		return e.revision <= confirmed || !now.Before(time.Unix(e.deadline, 0))
	})
}

// noStream stands for a stream that isn't here. It is never changed.
var noStream = &Stream{Missing: newMissingRecords()}

func newStream(id store.StreamID) *Stream {
	return &Stream{Id: id, Owners: store.Owners{}, Missing: newMissingRecords(), ended: map[directory.RID]endedEntry{}}
}

// A Feed is the sequence of an origin's streams to one audience, epoch after epoch. The origin's
// mu guards all fields except Aud and busy. Cur and next are replaced while change is held too.
type Feed struct {
	Aud  directory.Audience
	busy chan struct{} // has one item while a loop pulls page by page

	Cur, next *Stream   // next: of a newer epoch, not yet at its tip (rule P3)
	tip       uint64    // the highest revision known to be in the stream
	level     time.Time // when this node last was at the tip, or began to follow
}

func newFeed(aud directory.Audience) Feed { return Feed{Aud: aud, busy: make(chan struct{}, 1)} }

// Begin takes the turn to pull the feed page by page, so that no two loops do. It waits for the turn until ctx
// ends, and reports whether it has it.
func (f *Feed) Begin(ctx context.Context) bool {
	select {
	case f.busy <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// TryBegin is Begin without a wait.
func (f *Feed) TryBegin() bool {
	select {
	case f.busy <- struct{}{}:
		return true
	default:
		return false
	}
}

// End gives the turn back.
func (f *Feed) End() { <-f.busy }

// A feedPair is both feeds of an origin.
type feedPair struct {
	Mesh    Feed // for the mesh
	Private Feed // for this domain alone
}

// FeedOf returns the feed of an audience; nil if the audience excludes this domain.
func (fp *feedPair) FeedOf(aud directory.Audience) *Feed {
	switch aud {
	case fp.Mesh.Aud:
		return &fp.Mesh
	case fp.Private.Aud:
		return &fp.Private
	}

	return nil
}

func (fp *feedPair) Feeds() [2]*Feed { return [2]*Feed{&fp.Mesh, &fp.Private} }

// other returns the origin's other feed.
func (fp *feedPair) other(f *Feed) *Feed {
	if f == &fp.Private {
		return &fp.Mesh
	}

	return &fp.Private
}

// Newest returns the stream that a puller fills; never nil.
func (f *Feed) Newest() *Stream {
	switch {
	case f.next != nil:
		return f.next
	case f.Cur != nil:
		return f.Cur
	}

	return noStream
}

// existing returns the stream of an epoch if there is one.
func (f *Feed) existing(epoch uint64) *Stream {
	switch {
	case f.Cur != nil && f.Cur.Id.Epoch == epoch:
		return f.Cur
	case f.next != nil && f.next.Id.Epoch == epoch:
		return f.next
	}

	return nil
}
