package replica

import (
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/federation/store"
)

// loadStreams takes the stream of the epoch that is shown and the newest beyond
// it, and deletes what else was left.
func (ss *streams) loadStreams(saved store.Origin) error {
	streams, err := ss.Store.Streams(ss.domain)
	if err != nil {
		return err
	}

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
		// The epoch that is shown had a head and no page; the newer one fills beside it.
		ss.Pair.Mesh.Cur = newStream(store.StreamID{Origin: ss.domain, Audience: directory.Mesh, Epoch: saved.Epoch})
	}

	return nil
}

// fill notes what a stream wants and how much it holds, and shows what it holds if it
// is the one that is shown. Nothing runs yet.
func (ss *streams) fill(feed *Feed, st *Stream) error {
	return ss.Store.Scan(st.Id, func(t *store.Tx, rid directory.RID, held *store.Entry) bool {
		takes := t.UsageOf(held)

		st.Used = st.Used.Plus(takes)
		if held.Record == store.RecordHeld {
			st.Owners.Add(held.Owner, store.Share{Records: takes.Records, Bytes: takes.Bytes})
		}

		if held.Record == store.RecordMissing && st.Missing[rid] == nil {
			st.Missing[rid] = &MissingRecord{digest: held.Digest(rid)}
		}

		return st == feed.Cur
	}, func(batch []store.StoredEntry) { ss.showAll(st, batch) })
}

// showAll shows what was accepted before.
func (ss *streams) showAll(st *Stream, batch []store.StoredEntry) {
	entries := make([]*directory.Entry, len(batch))
	Parallel(len(batch), func(i int) { entries[i] = ss.reader.entryOf(st, batch[i]) })

	ss.mu.Lock()
	defer ss.mu.Unlock()

	Parallel(len(entries), func(i int) {
		if e := entries[i]; e != nil {
			ss.Shown.offer(e)
		}
	})
}

// swap puts the new epoch's stream in the old one's place, once it has reached
// its tip: what the new one lacks is dropped (rule P3). o.change is held.
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
	ss.swapping = true // readers are not told of the new epoch before all of it is shown
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
		ss.Rejudger.showLater()
	}

	ss.Hide(feed, func(e *directory.Entry) bool { return before[e] })

	return nil
}

// Link adds a page to the fresh chain, and switches to it where it reaches as far
// as the stream.
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

// clampRepull bounds since when streams are pulled anew: no page may ever be as new as a
// document had it that a thief numbered. o.change is held.
func (ss *streams) clampRepull(doc *signed.KeyDocument) {
	ss.mu.Lock()
	defer ss.mu.Unlock()

	for _, f := range ss.Pair.Feeds() {
		if f.Cur != nil {
			f.Cur.RepullSince = min(f.Cur.RepullSince, max(doc.Seq, 1))
		}
	}
}

// rewind has a feed pulled from its beginning. o.change is held.
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

	// Another stream of the same name, so that nobody goes on with the one before.
	ss.replace(feed, &Stream{Id: st.Id, State: state, Used: st.Used, Owners: st.Owners, Missing: st.Missing,
		RepullSince: anew})

	return nil
}

// replace makes st the only stream of a feed. o.change is held.
func (ss *streams) replace(feed *Feed, st *Stream) {
	ss.mu.Lock()
	defer ss.mu.Unlock()

	feed.Cur, feed.next = st, nil
	feed.tip = 0
	ss.Reached.Store(nil)
}

// endRepull ends what repull began, once the stream is at its origin's present: the
// entries that rest on revoked keys still are none of the origin's. o.change is held.
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
