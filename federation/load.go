package federation

import (
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/contain"
	"github.com/roster-mesh/roster/directory/kinds"
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
		o.room = true
		peering := agreed[td]
		o.peering.Store(&peering)
		if saved.Floor > 0 {
			o.index.Clock.Advance(time.UnixMilli(saved.Floor))
			o.base.Advance(time.UnixMilli(saved.Floor))
		}
		if o.past, err = o.loadPast(td); err != nil {
			return err
		}
		if o.keysText = saved.Keys; saved.Keys != "" {
			if _, err := m.cfg.Keys.Adopt(td, saved.Keys); err != nil {
				m.cfg.Logger.Info("the key document on disk no longer holds; the peer is asked for its newest", "origin", td.Name(), "error", err)
			}
		}
		if err := o.loadStreams(saved); err != nil {
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
		o.head, o.headText, o.headIs, o.tip = h, text, time.Unix(h.IssuedAt, 0), h.Tip
	}
}

// loadStreams takes the stream of the epoch that is shown and the newest beyond
// it, and deletes what else was left.
func (o *origin) loadStreams(saved store.Origin) error {
	streams, err := o.store.Streams(o.domain)
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

		id, f := st.id, o.feedOf(st.id.Audience)
		shown := f == &o.feed && id.Epoch == saved.Epoch || f == &o.private && f.cur == nil
		switch {
		case f == nil || !shown && id.Epoch != last[id.Audience] || f == &o.feed && id.Epoch < saved.Epoch:
			if err := o.store.DropStream(id); err != nil {
				return err
			}
			continue
		case shown:
			f.cur = st
		default:
			f.next = st
		}
		if err := o.fill(f, st); err != nil {
			return err
		}
	}
	if o.cur == nil && o.next != nil {
		// The epoch that is shown had a head and no page; the newer one fills beside it.
		o.cur = newStream(store.StreamID{Origin: o.domain, Audience: directory.Mesh, Epoch: saved.Epoch})
	}
	return nil
}

// fill notes what a stream wants and how much it holds, and shows what it holds if it
// is the one that is shown. Nothing runs yet.
func (o *origin) fill(f *feed, st *stream) error {
	return o.store.Scan(st.id, func(t *store.Tx, rid directory.RID, h *store.Entry) bool {
		takes := t.UsageOf(h)
		st.used = st.used.Plus(takes)
		if h.Record == store.RecordHeld {
			st.owners.Add(h.Owner, store.Share{Records: takes.Records, Bytes: takes.Bytes})
		}

		if h.Record == store.RecordMissing && st.wanted[rid] == nil {
			st.wanted[rid] = &want{digest: h.Digest(rid)}
		}

		return st == f.cur
	}, func(batch []store.StoredEntry) { o.showAll(st, batch) })
}

// showAll shows what was accepted before.
func (o *origin) showAll(st *stream, batch []store.StoredEntry) {
	entries := make([]*directory.Entry, len(batch))
	parallel(len(batch), func(i int) { entries[i] = o.entryOf(st, batch[i]) })

	o.mu.Lock()
	defer o.mu.Unlock()

	parallel(len(entries), func(i int) {
		if e := entries[i]; e != nil {
			o.offer(e)
		}
	})
}

// entryOf is a kept record as it is shown if import policy admits it; nil where it
// can't be.
func (o *origin) entryOf(st *stream, k store.StoredEntry) *directory.Entry {
	if k.Record == nil || k.Entry.Format != 0 {
		return nil
	}

	entry, err := (*directory.Entry)(nil), errRecord
	if k.Record.Is(k.Entry.Name()) { // a disk may damage what it holds
		entry, err = o.records.openContained(contain.Stored, func() (*directory.Entry, error) {
			return o.records.openEntry(o.domain, st.id.Epoch, k.Entry.Digest(k.RID), k.Record, kinds.Reproject)
		})
	}
	if err != nil {
		o.cfg.Logger.Warn("a record on disk can't be shown", "origin", o.domain.Name(), "rid", k.RID.String(), "error", err)
		return nil
	}

	return o.describe(entry, st.id.Audience, &k.Entry)
}

// swap puts the new epoch's stream in the old one's place, once it has reached
// its tip: what the new one lacks is dropped (rule P3). o.change is held.
func (o *origin) swap(f *feed) error {
	old, fresh := f.cur, f.next
	saved := o.saved(o.index.Clock.Now())
	if f == &o.feed {
		saved.Epoch = fresh.id.Epoch
	}
	if err := o.store.Swap(old.id, fresh.id, saved); err != nil {
		return err
	}

	o.cfg.Logger.Warn("an origin began a new epoch: what it no longer announces is dropped",
		"origin", o.domain.Name(), "stream", fresh.id.Audience.String(), "from", old.id.Epoch, "to", fresh.id.Epoch)

	before := map[*directory.Entry]bool{}
	for e := range o.index.All() {
		before[e] = true
	}

	o.mu.Lock()
	f.cur, f.next = fresh, nil
	o.swapping = true // readers are not told of the new epoch before all of it is shown
	o.mu.Unlock()

	defer func() {
		o.mu.Lock()
		defer o.mu.Unlock()

		o.swapping = false
		o.reached.Store(nil)
	}()

	all := func(*store.Tx, directory.RID, *store.Entry) bool { return true }
	err := o.store.Scan(fresh.id, all, func(batch []store.StoredEntry) { o.showAll(fresh, batch) })
	if err != nil {
		o.cfg.Logger.Error("can't read what a peer told", "origin", o.domain.Name(), "error", err)
		o.showLater()
	}

	o.hide(f, func(e *directory.Entry) bool { return before[e] })

	return nil
}
