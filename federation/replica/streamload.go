package replica

import (
	"slices"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/federation/store"
	"github.com/roster-mesh/roster/limit"
)

// loadStreams loads the stream of the epoch that is shown and the newest one after it, of
// each audience. It deletes all others.
func (ss *streams) loadStreams(saved store.Origin) error {
	streams, err := ss.Store.Streams(ss.domain)
	if err != nil {
		return err
	}

	ss.Shown.shed = ss.Cfg.IsShort()

	last := map[directory.Audience]uint64{}
	for _, st := range streams {
		last[st.Id.Audience] = st.Id.Epoch // they come ascending
	}

	for _, stored := range streams {
		st := newStream(stored.Id)
		st.State, st.RepullSince = stored.State, stored.RepullSince

		id, feed := st.Id, ss.Pair.FeedOf(st.Id.Audience)

		shown := feed == &ss.Pair.Mesh && id.Epoch == saved.Epoch || feed == &ss.Pair.Private && feed.Cur == nil
		switch {
		case feed == nil || !shown && id.Epoch != last[id.Audience] || feed == &ss.Pair.Mesh && id.Epoch < saved.Epoch:
			if err := ss.Store.DropStream(id); err != nil {
				return err
			}

			continue
		case shown:
			feed.Cur = st
		default:
			feed.next = st
		}

		if err := ss.fill(feed, st); err != nil {
			return err
		}
	}

	if ss.Pair.Mesh.Cur == nil && ss.Pair.Mesh.next != nil {
		// The epoch that is shown has a head and no page; the newer one is gathered beside it.
		ss.Pair.Mesh.Cur = newStream(store.StreamID{Origin: ss.domain, Audience: directory.Mesh, Epoch: saved.Epoch})
	}

	return nil
}

// fill loads the missing records and the usage of a stream. If the stream is the one that is
// shown, it also fills the index. Nothing runs yet.
func (ss *streams) fill(feed *Feed, st *Stream) error {
	var entries []*directory.Entry

	err := ss.Store.Scan(st.Id, func(t *store.Tx, rid directory.RID, held *store.Entry) bool {
		takes := t.UsageOf(held)

		st.Used = st.Used.Plus(takes)
		if held.Record == store.RecordHeld {
			st.Owners.Add(held.Owner, store.Share{Records: takes.Records, Bytes: takes.Bytes})
		}

		if held.Record == store.RecordMissing {
			st.Missing.add(held.Digest(rid))
		}

		return st == feed.Cur
	}, func(batch []store.StoredEntry) { entries = append(entries, ss.openAll(st, batch)...) })
	if err == nil {
		ss.Shown.fill(entries)
	}

	return err
}

// openAll returns the index entries of stored ones that can be shown and that import policy
// admits.
func (ss *streams) openAll(st *Stream, batch []store.StoredEntry) []*directory.Entry {
	entries := make([]*directory.Entry, len(batch))
	limit.Parallel(len(batch), func(i int) {
		if e := ss.reader.entryOf(st, batch[i]); e != nil && ss.Shown.admits(e) {
			entries[i] = e
		}
	})

	return slices.DeleteFunc(entries, func(e *directory.Entry) bool { return e == nil })
}

// showAll shows stored entries that import policy admits.
func (ss *streams) showAll(st *Stream, batch []store.StoredEntry) {
	entries := make([]*directory.Entry, len(batch))
	limit.Parallel(len(batch), func(i int) { entries[i] = ss.reader.entryOf(st, batch[i]) })

	ss.mu.Lock()
	defer ss.mu.Unlock()

	limit.Parallel(len(entries), func(i int) {
		if e := entries[i]; e != nil {
			ss.Shown.offer(e)
		}
	})
}

// swap replaces the old epoch's stream by the new one, which has reached its tip. Entries
// that the new stream lacks are dropped (rule P3). The caller holds Change.
func (ss *streams) swap(feed *Feed, saved store.Origin) error {
	old, fresh := feed.Cur, feed.next
	if feed == &ss.Pair.Mesh {
		saved.Epoch = fresh.Id.Epoch
	}

	if err := ss.Store.Swap(old.Id, fresh.Id, saved); err != nil {
		return err
	}

	ss.Cfg.Logger.Warn("an origin began a new epoch; entries that it no longer announces were removed",
		"origin", ss.domain.Name(), "stream", fresh.Id.Audience.String(), "from", old.Id.Epoch, "to", fresh.Id.Epoch)

	before := map[*directory.Entry]bool{}
	for e := range ss.Shown.Index.All() {
		before[e] = true
	}

	ss.mu.Lock()
	feed.Cur, feed.next = fresh, nil
	ss.swapping = true // the position stays in the old epoch until all of the new one is shown
	ss.mu.Unlock()

	defer func() {
		ss.mu.Lock()
		defer ss.mu.Unlock()

		ss.swapping = false
		ss.Reached.Store(nil)
	}()

	all := func(*store.Tx, directory.RID, *store.Entry) bool { return true }

	err := ss.Store.Scan(fresh.Id, all, func(batch []store.StoredEntry) { ss.showAll(fresh, batch) })
	if err != nil {
		ss.Cfg.Logger.Error("reading a peer's stored records failed", "origin", ss.domain.Name(), "err", err)
		ss.showLater()
	}

	ss.Hide(feed, func(e *directory.Entry) bool { return before[e] })

	return nil
}

// Link adds a page to the fresh chain, and switches to that chain when it reaches the
// stream's watermark. done is also true if the stream is no longer shown.
func (ss *streams) Link(feed *Feed, st *Stream, page *Page) (done bool, err error) {
	if err := ss.Change.Lock(ss.Store); err != nil {
		return false, err
	}

	defer ss.Change.Unlock()

	if ss.HasEnded() || feed.Cur != st {
		return true, nil
	}

	state, err := ss.Store.Change(st.Id, func(t *store.Tx) error {
		if err := t.AddFresh(page.Page, page.Text); err != nil {
			return err
		}

		if done = page.To >= t.State.Watermark; !done {
			return nil
		}

		return t.SwitchChain()
	})
	if err == nil {
		ss.mu.Lock()
		defer ss.mu.Unlock()

		st.State = state
	}

	return done, err
}

// clampRepull bounds the RepullSince of the streams by the seq of a key document. A thief of
// a key may have issued a document with a seq that no page ever reaches. The caller holds
// Change.
func (ss *streams) clampRepull(doc *signed.KeyDocument) {
	ss.mu.Lock()
	defer ss.mu.Unlock()

	for _, f := range ss.Pair.Feeds() {
		if f.Cur != nil {
			f.Cur.RepullSince = min(f.Cur.RepullSince, max(doc.Seq, 1))
		}
	}
}

// rewind makes a feed be pulled from its beginning. The caller holds Change.
func (ss *streams) rewind(feed *Feed, doc *signed.KeyDocument) error {
	if feed.next != nil {
		if err := ss.Store.Discard(feed.next.Id); err != nil {
			return err
		}
	}

	ss.replace(feed, feed.Cur)

	if feed.Cur == nil {
		return nil
	}

	if feed.Cur.Id.Epoch > doc.Epoch { // one that the domain has not reached
		if err := ss.Store.DropStreams(ss.domain, feed.Aud); err != nil {
			return err
		}

		ss.replace(feed, newStream(store.StreamID{Origin: ss.domain, Audience: feed.Aud, Epoch: doc.Epoch}))
		ss.Hide(feed, func(*directory.Entry) bool { return true })
	}

	st, anew := feed.Cur, max(doc.Seq, 1)

	state, err := ss.Store.Change(st.Id, func(t *store.Tx) error { return t.BeginRepull(anew) })
	if err != nil {
		return err
	}

	// A new Stream value with the same id, so that a pull under way can't continue the old one.
	ss.replace(feed, &Stream{Id: st.Id, State: state, Used: st.Used, Owners: st.Owners, Missing: st.Missing,
		RepullSince: anew})

	return nil
}

// replace makes st the only stream of a feed. The caller holds Change.
func (ss *streams) replace(feed *Feed, st *Stream) {
	ss.mu.Lock()
	defer ss.mu.Unlock()

	feed.Cur, feed.next = st, nil
	feed.tip = 0
	ss.Reached.Store(nil)
}

// endRepull ends a repeated pull after the stream has reached its tip. It removes the
// entries that still rest on revoked keys, because the origin doesn't announce them. The
// caller holds Change.
func (ss *streams) endRepull(feed *Feed, st *Stream, revoked map[string]bool) error {
	if st.RepullSince == 0 {
		return nil
	}

	for after, more := []byte(nil), true; more; {
		var (
			rids []directory.RID
			err  error
		)

		after, more, err = ss.Store.EntriesAfter(st.Id, after, store.FillBatch,
			func(_ *store.Tx, rid directory.RID, h *store.Entry) error {
				if revoked[h.Key.String()] {
					rids = append(rids, rid)
				}

				return nil
			})
		if err == nil && len(rids) > 0 {
			err = ss.removeAll(feed, st, rids)
		}

		if err != nil {
			return err
		}
	}

	_, err := ss.Store.Change(st.Id, func(t *store.Tx) error { return t.EndRepull() })
	if err != nil {
		return err
	}

	ss.mu.Lock()
	defer ss.mu.Unlock()

	st.RepullSince = 0

	return nil
}
