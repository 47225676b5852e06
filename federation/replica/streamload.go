package replica

import (
	"errors"
	"slices"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/federation/store"
	"github.com/roster-mesh/roster/limit"
)

// loadStreams loads the stream of the epoch that is shown and the newest one after it, of
// each audience. It deletes all others.
func (o *Origin) loadStreams(saved store.Origin) error {
	streams, err := o.Store.Streams(o.Domain)
	if err != nil {
		return err
	}

	o.Shown.shed.Store(o.Cfg.IsShort())

	last := map[directory.Audience]uint64{}
	for _, st := range streams {
		last[st.Id.Audience] = st.Id.Epoch // they come ascending
	}

	for _, stored := range streams {
		st := newStream(stored.Id)
		st.State, st.RepullSince = stored.State, stored.RepullSince

		id, feed := st.Id, o.FeedOf(st.Id.Audience)

		// A swap writes the epoch of the mesh stream with the deletion of the old one. Of the private streams
		// the oldest is shown, because a swap deletes its predecessor.
		shown := feed == &o.Mesh && id.Epoch == saved.Epoch || feed == &o.Private && feed.Cur == nil
		switch {
		case feed == nil || !shown && id.Epoch != last[id.Audience] || feed == &o.Mesh && id.Epoch < saved.Epoch:
			if err := o.Store.DropStream(id); err != nil {
				return err
			}

			continue
		case shown:
			feed.Cur = st
		default:
			feed.next = st
		}

		if err := o.fill(feed, st); err != nil {
			return err
		}
	}

	if o.Mesh.Cur == nil && o.Mesh.next != nil {
		// The epoch that is shown has a head and no page; the newer one is gathered beside it.
		o.Mesh.Cur = newStream(store.StreamID{Origin: o.Domain, Audience: directory.Mesh, Epoch: saved.Epoch})
	}

	return nil
}

// fill loads the missing records and the usage of a stream. If the stream is the one that is
// shown, it also fills the index. Nothing runs yet.
func (o *Origin) fill(feed *Feed, st *Stream) error {
	var entries []*directory.Entry

	err := o.Store.Scan(st.Id, func(t *store.Tx, rid directory.RID, held *store.Entry) bool {
		takes := t.UsageOf(held)

		st.Used = st.Used.Plus(takes)
		if held.Record == store.RecordHeld {
			st.Owners.Add(held.Owner, store.Share{Records: takes.Records, Bytes: takes.Bytes})
		}

		if held.Record == store.RecordMissing {
			st.Missing.add(held.Digest(rid))
		}

		return st == feed.Cur
	}, func(batch []store.StoredEntry) { entries = append(entries, o.openAll(st, batch)...) })
	if err == nil {
		o.Shown.fill(entries)
	}

	return err
}

// openAll returns the index entries of stored ones that can be shown and that import policy
// admits.
func (o *Origin) openAll(st *Stream, batch []store.StoredEntry) []*directory.Entry {
	entries := make([]*directory.Entry, len(batch))
	limit.Parallel(len(batch), func(i int) {
		if e := o.entryOf(st, batch[i]); e != nil && o.Shown.admits(e) {
			entries[i] = e
		}
	})

	return slices.DeleteFunc(entries, func(e *directory.Entry) bool { return e == nil })
}

// showAll shows stored entries that import policy admits.
func (o *Origin) showAll(st *Stream, batch []store.StoredEntry) {
	entries := make([]*directory.Entry, len(batch))
	limit.Parallel(len(batch), func(i int) { entries[i] = o.entryOf(st, batch[i]) })

	o.mu.Lock()
	defer o.mu.Unlock()

	limit.Parallel(len(entries), func(i int) {
		if e := entries[i]; e != nil {
			o.Shown.offer(e)
		}
	})
}

// swap replaces the old epoch's stream by the new one, which has reached its tip. Entries
// that the new stream lacks are dropped (rule P3). The caller holds change.
func (o *Origin) swap(feed *Feed) error {
	old, fresh, saved := feed.Cur, feed.next, o.saved()
	if feed == &o.Mesh {
		saved.Epoch = fresh.Id.Epoch
	}

	if err := o.Store.Swap(old.Id, fresh.Id, saved); err != nil {
		return err
	}

	o.Cfg.Logger.Warn("an origin began a new epoch; entries that it no longer announces were removed",
		"origin", o.Domain.Name(), "stream", fresh.Id.Audience.String(), "from", old.Id.Epoch, "to", fresh.Id.Epoch)

	// Entries that are still indexed after all new ones were shown are of the old epoch.
	before := map[*directory.Entry]bool{}
	for e := range o.Shown.Index.All() {
		before[e] = true
	}

	o.mu.Lock()
	feed.Cur, feed.next = fresh, nil
	o.swapping = true // the position stays in the old epoch until all of the new one is shown
	o.mu.Unlock()

	defer func() {
		o.mu.Lock()
		defer o.mu.Unlock()

		o.swapping = false
		o.reached.Store(nil)
	}()

	all := func(*store.Tx, directory.RID, *store.Entry) bool { return true }

	err := o.Store.Scan(fresh.Id, all, func(batch []store.StoredEntry) { o.showAll(fresh, batch) })
	if err != nil {
		o.Cfg.Logger.Error("reading a peer's stored records failed", "origin", o.Domain.Name(), "err", err)
		o.showLater()
	}

	o.Hide(feed, func(e *directory.Entry) bool { return before[e] })

	return nil
}

// Link adds a page to the fresh chain, and switches to that chain when it reaches the
// stream's watermark. done is also true if the stream is no longer shown.
func (o *Origin) Link(st *Stream, page *Page) (done bool, err error) {
	if err := o.change.Lock(o.Store); err != nil {
		return false, err
	}

	defer o.change.Unlock()

	// The stream may have been replaced while its chain was pulled.
	if o.HasEnded() || o.FeedOf(st.Id.Audience).Cur != st {
		return true, nil
	}

	state, err := o.Store.Change(st.Id, func(t *store.Tx) error {
		if err := t.AddFresh(page.Page, page.Text); err != nil {
			return err
		}

		if done = page.To >= t.State.Watermark; !done {
			return nil
		}

		return t.SwitchChain()
	})
	if err == nil {
		o.mu.Lock()
		defer o.mu.Unlock()

		st.State = state
	}

	return done, err
}

// clampRepull bounds the RepullSince of the streams by the seq of a key document. A thief of
// a key may have issued a document with a seq that no page ever reaches. The caller holds
// change.
func (o *Origin) clampRepull(doc *signed.KeyDocument) {
	o.mu.Lock()
	defer o.mu.Unlock()

	for _, f := range o.Feeds() {
		if f.Cur != nil {
			f.Cur.RepullSince = min(f.Cur.RepullSince, max(doc.Seq, 1))
		}
	}
}

// rewind makes a feed be pulled from its beginning, in pages that were made at the position from or
// later. The caller holds change.
func (o *Origin) rewind(feed *Feed, from directory.Position) error {
	if feed.next != nil {
		if err := o.Store.DropStream(feed.next.Id); err != nil {
			return err
		}
	}

	o.replace(feed, feed.Cur)

	if feed.Cur == nil {
		return nil
	}

	if feed.Cur.Id.Epoch > from.Epoch { // one that the domain has not reached
		if err := o.Store.DropStreams(o.Domain, feed.Aud); err != nil {
			return err
		}

		o.replace(feed, newStream(store.StreamID{Origin: o.Domain, Audience: feed.Aud, Epoch: from.Epoch}))
		o.Hide(feed, func(*directory.Entry) bool { return true })
	}

	st, anew := feed.Cur, max(from.Revision, 1)

	// In one transaction: the end of the pull removes the entries of distrusted nodes, also after a restart.
	state, err := o.Store.Change(st.Id, func(t *store.Tx) error {
		return errors.Join(t.BeginRepull(anew), t.SaveOrigin(o.Domain, o.saved()))
	})
	if err != nil {
		return err
	}

	// A new Stream value with the same id, so that a pull under way can't continue the old one.
	again := newStream(st.Id)
	again.State, again.Used, again.Owners, again.Missing = state, st.Used, st.Owners, st.Missing
	again.RepullSince = anew
	o.replace(feed, again)

	return nil
}

// replace makes st the only stream of a feed. The caller holds change.
func (o *Origin) replace(feed *Feed, st *Stream) {
	o.mu.Lock()
	defer o.mu.Unlock()

	feed.Cur, feed.next = st, nil
	feed.tip = 0
	o.reached.Store(nil)
}

// endRepull ends a repeated pull after the stream has reached its tip. It removes the
// entries that still rest on revoked keys or distrusted nodes, because the origin doesn't announce them. The
// caller holds change.
func (o *Origin) endRepull(st *Stream) error {
	if st.RepullSince == 0 {
		return nil
	}

	before := o.unannounced()

	for after, more := []byte(nil), true; more; {
		var (
			rids []directory.RID
			err  error
		)

		after, more, err = o.Store.EntriesAfter(st.Id, after, store.FillBatch,
			func(_ *store.Tx, rid directory.RID, h *store.Entry) error {
				if h.CheckedAt < before[h.Key.String()] {
					rids = append(rids, rid)
				}

				return nil
			})

		// A change can't begin within the read, so the entries of a batch are removed after it.
		if err == nil && len(rids) > 0 {
			err = o.removeAll(st, rids)
		}

		if err != nil {
			return err
		}
	}

	_, err := o.Store.Change(st.Id, func(t *store.Tx) error { return t.EndRepull() })
	if err != nil {
		return err
	}

	o.mu.Lock()
	defer o.mu.Unlock()

	st.RepullSince = 0

	return nil
}
