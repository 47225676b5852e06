package federation

import (
	"time"

	"github.com/roster-mesh/roster/directory/kinds"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/contain"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/federation/store"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// load fills memory from disk: each origin's clock, key document, head and
// stream, and the view. What was accepted stays so, whether or not today's keys
// would accept it again.
func (m *Mesh) load() error {
	origins, err := m.store.Origins()
	if err != nil {
		return err
	}
	agreed := map[spiffeid.TrustDomain]directory.Peering{}
	for _, p := range m.cfg.Peerings() {
		if p.State != directory.PeeringTerminated {
			agreed[p.Domain] = p
		}
	}
	for td, saved := range origins {
		o := m.know(td)
		o.streams.readmitter.giveRoom()
		peering := agreed[td]
		o.peering.Store(&peering)
		if saved.Floor > 0 {
			o.streams.shown.index.Clock.Advance(time.UnixMilli(saved.Floor))
			o.base.Advance(time.UnixMilli(saved.Floor))
		}
		if o.keys.past, err = o.loadPast(td); err != nil {
			return err
		}
		if o.keys.newest = saved.Keys; saved.Keys != "" {
			if _, err := m.cfg.Keys.Adopt(td, saved.Keys); err != nil {
				m.cfg.Logger.Info("the key document on disk no longer holds; the peer is asked for its newest", "origin", td.Name(), "error", err)
			}
		}
		if err := o.streams.loadStreams(saved); err != nil {
			return err
		}
		o.loadHead(saved.Head)
		if doc, _, ok := m.cfg.Keys.Keys(td); ok {
			if err := o.doubt(doc); err != nil {
				return err
			}
		}
		if err := o.obey(); err != nil { // the machine may have stopped before it was done
			return err
		}
		o.streams.publish()
		o.publish()
	}
	return nil
}

// loadHead takes a head that was verified before it was written.
func (o *origin) loadHead(text string) {
	parts, err := protocol.SplitJWS(text)
	if err != nil {
		return
	}
	if h, err := o.cfg.Dialect.ParseHead(parts.Payload); err == nil {
		o.head = h
		o.headText = text
		o.headIs = time.Unix(h.IssuedAt, 0)
		o.streams.loadHead(h)
	}
}

// loadStreams takes the stream of the epoch that is shown and the newest beyond
// it, and deletes what else was left.
func (ss *streams) loadStreams(saved store.Origin) error {
	streams, err := ss.store.Streams(ss.domain)
	if err != nil {
		return err
	}
	last := map[directory.Audience]uint64{}
	for _, st := range streams {
		last[st.Id.Audience] = st.Id.Epoch // they come ascending
	}
	for _, stored := range streams {
		st := newStream(stored.Id)
		st.state, st.anew = stored.State, stored.RepullSince

		id, f := st.id, ss.pair.feedOf(st.id.Audience)
		shown := f == &ss.pair.mesh && id.Epoch == saved.Epoch || f == &ss.pair.private && f.cur == nil
		switch {
		case f == nil || !shown && id.Epoch != last[id.Audience] || f == &ss.pair.mesh && id.Epoch < saved.Epoch:
			if err := ss.store.DropStream(id); err != nil {
				return err
			}
			continue
		case shown:
			f.cur = st
		default:
			f.next = st
		}
		if err := ss.fill(f, st); err != nil {
			return err
		}
	}
	if ss.pair.mesh.cur == nil && ss.pair.mesh.next != nil {
		// The epoch that is shown had a head and no page; the newer one fills beside it.
		ss.pair.mesh.cur = newStream(store.StreamID{Origin: ss.domain, Audience: directory.Mesh, Epoch: saved.Epoch})
	}
	return nil
}

// fill notes what a stream wants and how much it holds, and shows what it holds if it
// is the one that is shown. Nothing runs yet.
func (ss *streams) fill(f *feed, st *stream) error {
	return ss.store.Scan(st.id, func(t *store.Tx, rid directory.RID, h *store.Entry) bool {
		takes := t.UsageOf(h)
		st.used = st.used.Plus(takes)
		if h.Record == store.RecordHeld {
			st.owners.Add(h.Owner, store.Share{Records: takes.Records, Bytes: takes.Bytes})
		}

		if h.Record == store.RecordMissing && st.wanted[rid] == nil {
			st.wanted[rid] = &want{digest: h.Digest(rid)}
		}

		return st == f.cur
	}, func(batch []store.StoredEntry) { ss.showAll(st, batch) })
}

// showAll shows what was accepted before.
func (ss *streams) showAll(st *stream, batch []store.StoredEntry) {
	entries := make([]*directory.Entry, len(batch))
	parallel(len(batch), func(i int) { entries[i] = ss.reader.entryOf(st, batch[i]) })

	ss.mu.Lock()
	defer ss.mu.Unlock()

	parallel(len(entries), func(i int) {
		if e := entries[i]; e != nil {
			ss.shown.offer(e)
		}
	})
}

// entryOf is a kept record as it is shown if import policy admits it; nil where it
// can't be.
func (er *entryReader) entryOf(st *stream, k store.StoredEntry) *directory.Entry {
	if k.Record == nil || k.Entry.Format != 0 {
		return nil
	}

	entry, err := (*directory.Entry)(nil), errRecord
	if k.Record.Is(k.Entry.Name()) { // a disk may damage what it holds
		entry, err = er.records.openContained(contain.Stored, func() (*directory.Entry, error) {
			return er.records.openEntry(er.domain, st.id.Epoch, k.Entry.Digest(k.RID), k.Record, kinds.Reproject)
		})
	}
	if err != nil {
		er.cfg.Logger.Warn("a record on disk can't be shown", "origin", er.domain.Name(), "rid", k.RID.String(), "error", err)
		return nil
	}

	return er.shown.describe(entry, st.id.Audience, &k.Entry)
}

// swap puts the new epoch's stream in the old one's place, once it has reached
// its tip: what the new one lacks is dropped (rule P3). o.change is held.
func (ss *streams) swap(f *feed, saved store.Origin) error {
	old, fresh := f.cur, f.next
	if f == &ss.pair.mesh {
		saved.Epoch = fresh.id.Epoch
	}
	if err := ss.store.Swap(old.id, fresh.id, saved); err != nil {
		return err
	}

	ss.cfg.Logger.Warn("an origin began a new epoch: what it no longer announces is dropped",
		"origin", ss.domain.Name(), "stream", fresh.id.Audience.String(), "from", old.id.Epoch, "to", fresh.id.Epoch)

	before := map[*directory.Entry]bool{}
	for e := range ss.shown.index.All() {
		before[e] = true
	}

	ss.mu.Lock()
	f.cur, f.next = fresh, nil
	ss.swapping = true // readers are not told of the new epoch before all of it is shown
	ss.mu.Unlock()

	defer func() {
		ss.mu.Lock()
		defer ss.mu.Unlock()

		ss.swapping = false
		ss.reached.Store(nil)
	}()

	all := func(*store.Tx, directory.RID, *store.Entry) bool { return true }
	err := ss.store.Scan(fresh.id, all, func(batch []store.StoredEntry) { ss.showAll(fresh, batch) })
	if err != nil {
		ss.cfg.Logger.Error("can't read what a peer told", "origin", ss.domain.Name(), "error", err)
		ss.rejudger.showLater()
	}

	ss.hide(f, func(e *directory.Entry) bool { return before[e] })

	return nil
}
