package federation

import (
	"bytes"
	"errors"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/contain"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"go.etcd.io/bbolt"
)

// load fills memory from disk: each origin's clock, key document, head and
// stream, and the view. What was accepted stays so, whether or not today's keys
// would accept it again.
func (m *Mesh) load() error {
	origins, err := m.store.origins()
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
		if o.past, err = m.store.past(td); err != nil {
			return err
		}
		if o.keysText = saved.Keys; saved.Keys != "" {
			if _, err := m.cfg.Keys.Adopt(td, saved.Keys); err != nil {
				m.cfg.Logger.Info("the key document on disk no longer holds; the peer is asked for its newest", "origin", td.Name(), "error", err)
			}
		}
		if err := m.loadStreams(o, saved); err != nil {
			return err
		}
		m.loadHead(o, saved.Head)
		if doc, _, ok := m.cfg.Keys.Keys(td); ok {
			if err := m.doubt(o, doc); err != nil {
				return err
			}
		}
		if err := m.obey(o); err != nil { // the machine may have stopped before it was done
			return err
		}
		o.publish()
	}
	return nil
}

// loadHead takes a head that was verified before it was written.
func (m *Mesh) loadHead(o *origin, text string) {
	parts, err := protocol.SplitJWS(text)
	if err != nil {
		return
	}
	if h, err := m.cfg.Dialect.ParseHead(parts.Payload); err == nil {
		o.head, o.headText, o.headIs, o.tip = h, text, time.Unix(h.IssuedAt, 0), h.Tip
	}
}

// loadStreams takes the stream of the epoch that is shown and the newest beyond
// it, and deletes what else was left.
func (m *Mesh) loadStreams(o *origin, saved originState) error {
	streams, err := m.store.streams(o.domain)
	if err != nil {
		return err
	}
	last := map[directory.Audience]uint64{}
	for _, st := range streams {
		last[st.id.aud] = st.id.epoch // they come ascending
	}
	for _, st := range streams {
		id, f := st.id, o.feedOf(st.id.aud)
		shown := f == &o.feed && id.epoch == saved.Epoch || f == &o.private && f.cur == nil
		switch {
		case f == nil || !shown && id.epoch != last[id.aud] || f == &o.feed && id.epoch < saved.Epoch:
			if err := m.store.dropStream(id); err != nil {
				return err
			}
			continue
		case shown:
			f.cur = st
		default:
			f.next = st
		}
		if err := m.fill(o, f, st); err != nil {
			return err
		}
	}
	if o.cur == nil && o.next != nil {
		// The epoch that is shown had a head and no page; the newer one fills beside it.
		o.cur = newStream(streamID{o.domain, directory.Mesh, saved.Epoch})
	}
	return nil
}

func (s *store) dropStream(id streamID) error {
	defer nudge(s.wiper.dirty)
	err := s.update(func(tx *bbolt.Tx) error { return tx.Bucket(bucketStreams).DeleteBucket(id.key()) })
	if err == nil {
		s.places.forget(id)
	}
	return err
}

// discard is dropStream of one that may have nothing on disk yet.
func (s *store) discard(id streamID) error {
	there := false
	err := s.view(func(tx *bbolt.Tx) error {
		there = tx.Bucket(bucketStreams).Bucket(id.key()) != nil
		return nil
	})
	if err != nil || !there {
		return err
	}
	return s.dropStream(id)
}

// A kept entry is one whose record is on disk.
type kept struct {
	rid    directory.RID
	held   held
	record *storedRecord
}

// fillBatch bounds the entries that are read at a time while a stream is loaded.
const fillBatch = 1000

// fill notes what a stream wants and how much it holds, and shows what it holds if it
// is the one that is shown. Nothing runs yet.
func (m *Mesh) fill(o *origin, f *feed, st *stream) error {
	return m.eachBatch(st, func(t *streamTx, rid directory.RID, h *held) bool {
		takes := t.usageOf(h)
		st.used = st.used.plus(takes)
		if h.Record == recordHeld {
			st.owners.add(h.Owner, owned{takes.records, takes.bytes})
		}

		if h.Record == recordWanted && st.wanted[rid] == nil {
			st.wanted[rid] = &want{digest: h.digest(rid)}
		}

		return st == f.cur
	}, func(batch []kept) { m.showAll(o, st, batch) })
}

// eachBatch reads a whole stream, notes where its records are, and hands over those
// that pick says yes to. The stream doesn't change meanwhile: o.change is held, or
// nothing runs yet.
func (m *Mesh) eachBatch(st *stream, pick func(*streamTx, directory.RID, *held) bool, use func([]kept)) error {
	for after, more := []byte(nil), true; more; {
		var batch []kept
		var moves []move
		var err error

		after, more, err = m.store.entriesAfter(st.id, after, fillBatch, func(t *streamTx, rid directory.RID, h *held) error {
			picked := pick(t, rid, h)
			if h.Record != recordHeld {
				return nil
			}

			moves = append(moves, move{h: h.H, place: h.Place})
			if !picked {
				return nil
			}

			e, err := t.keptOf(rid, h)
			batch = append(batch, e)
			return err
		})

		m.store.places.note(st.id, moves)
		use(batch)
		if err != nil {
			return err
		}
	}

	return nil
}

// entriesAfter reads up to limit entries of a stream behind the key after. It returns
// the key of the last one, and whether there are more. Whatever makes the file larger
// or wipes it waits for readers, and with it the pages of all other origins: so nobody
// reads a whole stream at once.
func (s *store) entriesAfter(id streamID, after []byte, limit int, see func(*streamTx, directory.RID, *held) error) (last []byte, more bool, err error) {
	err = s.read(id, func(t *streamTx) error {
		c := t.entries.Cursor()
		k, v := c.Seek(after)
		if k != nil && bytes.Equal(k, after) {
			k, v = c.Next()
		}
		for n := 0; k != nil; k, v = c.Next() {
			if more = n == limit; more {
				return nil
			}
			rid, h, err := readHeld(k, v)
			if err == nil {
				err = see(t, rid, h)
			}
			if err != nil {
				return err
			}
			n++
			after = bytes.Clone(k)
		}
		return nil
	})
	return after, more && err == nil, err
}

// usageOf is what one entry takes.
func (t *streamTx) usageOf(h *held) (u usage) {
	switch h.Record {
	case recordHeld:
		u.records, u.bytes = 1, t.size(h)
	}
	u.count(h, 1)
	return u
}

// kept reads an entry with its record.
func (t *streamTx) kept(k, v []byte) (kept, error) {
	rid, h, err := readHeld(k, v)
	if err != nil {
		return kept{}, err
	}
	return t.keptOf(rid, h)
}

func readHeld(k, v []byte) (directory.RID, *held, error) {
	h := new(held)
	rid, err := directory.ParseRID(string(k))
	if err = errors.Join(err, unmarshal(v, h)); err != nil {
		return rid, nil, errStore
	}
	return rid, h, nil
}

func (t *streamTx) keptOf(rid directory.RID, h *held) (e kept, err error) {
	e = kept{rid: rid, held: *h}
	e.record, err = t.record(h)
	return e, err
}

// showAll shows what was accepted before.
func (m *Mesh) showAll(o *origin, st *stream, batch []kept) {
	entries := make([]*directory.Entry, len(batch))
	parallel(len(batch), func(i int) { entries[i] = m.entryOf(o, st, batch[i]) })

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
func (m *Mesh) entryOf(o *origin, st *stream, k kept) *directory.Entry {
	if k.record == nil || k.held.Format != 0 {
		return nil
	}

	entry, err := (*directory.Entry)(nil), errRecord
	if k.record.is(k.held.name()) { // a disk may damage what it holds
		entry, err = m.openContained(contain.Stored, func() (*directory.Entry, error) {
			return m.openEntry(o.domain, st.id.epoch, k.held.digest(k.rid), k.record, directory.Reproject)
		})
	}
	if err != nil {
		m.cfg.Logger.Warn("a record on disk can't be shown", "origin", o.domain.Name(), "rid", k.rid.String(), "error", err)
		return nil
	}

	return o.describe(entry, st.id.aud, &k.held)
}

// swap puts the new epoch's stream in the old one's place, once it has reached
// its tip: what the new one lacks is dropped (rule P3). o.change is held.
func (m *Mesh) swap(o *origin, f *feed) error {
	old, fresh := f.cur, f.next
	if err := m.writeSwap(o, f, old, fresh); err != nil {
		return err
	}

	m.cfg.Logger.Warn("an origin began a new epoch: what it no longer announces is dropped",
		"origin", o.domain.Name(), "stream", fresh.id.aud.String(), "from", old.id.epoch, "to", fresh.id.epoch)

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

	all := func(*streamTx, directory.RID, *held) bool { return true }
	err := m.eachBatch(fresh, all, func(batch []kept) { m.showAll(o, fresh, batch) })
	if err != nil {
		m.cfg.Logger.Error("can't read what a peer told", "origin", o.domain.Name(), "error", err)
		m.showLater(o)
	}

	m.hide(o, f, func(e *directory.Entry) bool { return before[e] })

	return nil
}

// writeSwap is swap's part on disk.
func (m *Mesh) writeSwap(o *origin, f *feed, old, fresh *stream) error {
	saved := o.saved(o.index.Clock.Now())
	if f == &o.feed {
		saved.Epoch = fresh.id.epoch
	}

	err := m.store.update(func(tx *bbolt.Tx) error {
		if streams := tx.Bucket(bucketStreams); streams.Bucket(old.id.key()) != nil {
			if err := streams.DeleteBucket(old.id.key()); err != nil {
				return err
			}
		}

		// An epoch in which nothing was announced is remembered too.
		if t, err := m.store.openStream(tx, fresh.id); t == nil && err == nil {
			if _, err := m.store.createStream(tx, fresh.id); err != nil {
				return err
			}
		}

		return putOrigin(tx, o.domain, saved)
	})
	if err != nil {
		return err
	}

	m.store.places.forget(old.id)
	nudge(m.store.wiper.dirty)

	return nil
}
