package replica

import (
	"sync/atomic"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/contain"
	"github.com/roster-mesh/roster/directory/index"
	"github.com/roster-mesh/roster/federation/store"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// A shownIndex is the index of an origin's registrations behind the import policy of its
// peering. Its origin's mu guards changes.
type shownIndex struct {
	cfg     *Config
	Index   *index.Index
	peering *atomic.Pointer[directory.Peering]
	stale   bool        // nothing is shown, because the origin is silent and its peering asks for that
	shed    atomic.Bool // nothing is shown, because the node is short of memory

	// The values that the last entry had. Nearly all entries of an origin share them, and
	// share their memory.
	lastKey  atomic.Pointer[keyText]
	lastFrom atomic.Pointer[spiffeid.TrustDomain]
}

// A keyText is the id of a key and its text.
type keyText struct {
	id   directory.Hash
	text string
}

// isEmpty reports whether nothing is to be shown, whatever import policy admits.
func (sx *shownIndex) isEmpty() bool { return sx.stale || sx.shed.Load() }

// admits reports whether an entry may be shown: the import policy admits it, and anything is to
// be shown.
func (sx *shownIndex) admits(entry *directory.Entry) bool {
	if sx.isEmpty() {
		return false
	}

	admitted := false
	sx.cfg.Panics.Do(contain.Policy, func() {
		admitted = sx.peering.Load().Import.Admits(entry.Agent, entry.Document.Kind(), entry.Projection)
	})

	return admitted
}

// describe completes an entry with the data of its stream. A nil entry stays nil.
func (sx *shownIndex) describe(entry *directory.Entry, aud directory.Audience, held *store.Entry) *directory.Entry {
	if entry == nil {
		return nil
	}

	from := sx.lastFrom.Load()
	if from == nil || from.Name() != held.From {
		parsed, _ := spiffeid.TrustDomainFromString(held.From) // zero if it isn't one
		from = &parsed
		sx.lastFrom.Store(from)
	}

	received := directory.Received{At: held.At, From: *from, H: held.H, M: held.M, Private: aud != directory.Mesh}
	if entry.Received != nil { // as the gate has opened it
		received.Leaf = entry.Received.Leaf
	}

	entry.Received = &received
	sx.extend(entry, held)

	return entry
}

// extend sets the fields of an entry that a renewal changes.
func (sx *shownIndex) extend(entry *directory.Entry, held *store.Entry) {
	entry.Revision = held.Revision
	entry.Lifetime = held.Lifetime
	entry.ExpiresAt = clippedDeadline(held, sx.peering.Load().Import.MaxLifetime) * 1000
	entry.Received.CheckedAt = held.CheckedAt

	key := sx.lastKey.Load()
	if key == nil || key.id != held.Key {
		key = &keyText{held.Key, held.Key.String()}
		sx.lastKey.Store(key)
	}

	entry.Received.Key = key.text
}

// clippedDeadline is the deadline of a record, clipped to the longest lifetime that the
// peering allows. The origin's word on when the deadline was set is taken if that time
// has passed.
func clippedDeadline(held *store.Entry, most uint32) int64 {
	if most == 0 {
		return held.Deadline
	}

	set := min(held.CheckedAt/1000, held.Deadline-int64(held.Lifetime))

	return min(held.Deadline, set+int64(most))
}

// apply repeats the effects of a transaction on the stream of an audience. twice are the alternatives to those
// of which the origin's other stream has an entry too. The caller holds mu.
func (sx *shownIndex) apply(aud directory.Audience, effects []store.Effect, twice alternatives) {
	for _, effect := range effects {
		rid := effect.Digest.RID
		entries, both := twice[rid]

		switch {
		case both:
			sx.show(rid, entries...)
		case effect.Renewed:
			sx.renew(rid, effect.Held)
		case effect.Entry != nil:
			sx.show(rid, sx.describe(effect.Entry, aud, effect.Held))
		default:
			sx.drop(rid)
		}
	}
}

// renew shows an entry, if it is shown, with its later deadline.
func (sx *shownIndex) renew(rid directory.RID, held *store.Entry) {
	old, ok := sx.Index.Get(rid)
	if !ok {
		return
	}

	// Readers hold the old entry without a lock, so a copy is changed.
	entry, r := *old, *old.Received
	entry.Received = &r
	sx.extend(&entry, held)
	sx.put(&entry)
}

// show shows the best of those entries of a registration that import policy admits, or
// nothing. The caller holds mu.
func (sx *shownIndex) show(rid directory.RID, entries ...*directory.Entry) {
	var best *directory.Entry
	for _, e := range entries {
		if sx.admits(e) && better(e, best) {
			best = e
		}
	}

	if best == nil {
		sx.drop(rid)
	} else {
		sx.put(best)
	}
}

// put enters an entry into the index. One that can't be entered is left out.
func (sx *shownIndex) put(e *directory.Entry) {
	if !sx.cfg.Panics.Do(contain.Index, func() { sx.Index.Put(e) }) {
		// The panic may have left the index with a part of the entry.
		sx.drop(e.RID)
	}
}

// drop takes an entry out of the index. A panic ends with this entry.
func (sx *shownIndex) drop(rid directory.RID) {
	sx.cfg.Panics.Do(contain.Index, func() { sx.Index.Delete(rid) })
}

// offer shows an entry that import policy admits, unless the origin's other stream has
// a better one. The caller holds mu.
func (sx *shownIndex) offer(entry *directory.Entry) {
	if !sx.admits(entry) {
		return
	}

	if old, ok := sx.Index.Get(entry.RID); ok && old.Received.Private != entry.Received.Private && !better(entry, old) {
		return
	}

	sx.put(entry)
}

// fill shows entries of one stream at a start. To build an empty index costs a fraction of
// entering them one by one. It is given up if a panic shows that one of them can't be entered.
func (sx *shownIndex) fill(entries []*directory.Entry) {
	built := false
	if sx.Index.Len() == 0 {
		built = sx.cfg.Panics.Do(contain.Index, func() { sx.Index.Build(entries)() })
	}

	if built {
		return
	}

	for _, e := range entries {
		sx.offer(e)
	}
}

// shows reports whether an entry is shown as it would be now, if it is admitted.
func (sx *shownIndex) shows(st *Stream, rid directory.RID, held *store.Entry) bool {
	e, ok := sx.Index.Get(rid)

	return ok && e.Received.H == held.H && e.Received.M == held.M &&
		e.Received.Private == (st.Id.Audience != directory.Mesh) &&
		e.ExpiresAt == clippedDeadline(held, sx.peering.Load().Import.MaxLifetime)*1000
}

// better reports whether entry is to be shown rather than b. Deadlines don't count, because
// both streams announce a later deadline in time, and an entry stays until it is freed.
func better(entry, b *directory.Entry) bool {
	if b == nil {
		return true
	}

	if entry.Statement != b.Statement {
		return entry.Statement > b.Statement
	}

	return entry.Received.Private || !b.Received.Private
}
