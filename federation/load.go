package federation

import (
	"bytes"
	"errors"
	"time"

	"github.com/roster-mesh/roster/directory"
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
		o.peering, o.room = agreed[td], true
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
		o.loadHead(saved.Head)
		if doc, _, ok := m.cfg.Keys.Keys(td); ok {
			if err := m.doubt(o, doc); err != nil {
				return err
			}
		}
		if err := m.obey(o); err != nil { // the machine may have stopped before it was done
			return err
		}
	}
	return nil
}

// loadHead takes a head that was verified before it was written.
func (o *origin) loadHead(text string) {
	parts, err := splitJWS(text)
	if err != nil {
		return
	}
	if h, err := directory.ParseHead(parts.payload); err == nil {
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
	err := s.db.Update(func(tx *bbolt.Tx) error { return tx.Bucket(bucketStreams).DeleteBucket(id.key()) })
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

// fill notes what a stream wants, and shows what it holds where it is the one
// that is shown. Nothing that was shown before is taken away. The stream doesn't change
// meanwhile, since o.mu is held or nothing runs yet.
func (m *Mesh) fill(o *origin, f *feed, st *stream) error {
	var used usage
	defer func() { st.used = used }()
	for after, more := []byte(nil), true; more; {
		var batch []kept
		var moves []move
		var err error
		after, more, err = m.store.entriesAfter(st.id, after, fillBatch, func(t *streamTx, rid directory.RID, h *held) error {
			used = used.plus(t.usageOf(h))
			if h.Record == recordHeld {
				moves = append(moves, move{h: h.H, place: h.Place})
			}
			switch {
			case h.Record == recordWanted && st.wanted[rid] == nil:
				st.wanted[rid] = &want{digest: h.digest(rid)}
			case h.Record == recordHeld && st == f.cur:
				e, err := t.keptOf(rid, h)
				batch = append(batch, e)
				return err
			}
			return nil
		})
		m.store.places.note(st.id, moves)
		m.showAll(o, st, batch)
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
	case recordOver:
		u.over = 1
	}
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
	parallel(len(batch), func(i int) {
		if e := m.entryOf(o, st, batch[i]); e != nil {
			o.offer(e)
		}
	})
}

// entryOf is a kept record as it is shown; nil where it isn't.
func (m *Mesh) entryOf(o *origin, st *stream, k kept) *directory.Entry {
	if k.record == nil {
		return nil
	}
	entry, err := (*directory.Entry)(nil), errRecord
	if k.record.is(k.held.name()) { // a disk may damage what it holds
		entry, err = openEntry(o.domain, st.id.epoch, k.held.digest(k.rid), k.record, directory.Reproject)
	}
	if err != nil {
		m.cfg.Logger.Warn("a record on disk can't be shown", "origin", o.domain.Name(), "rid", k.rid.String(), "error", err)
		return nil
	}
	return o.shown(entry, st.id.aud, &k.held)
}

// swap puts the new epoch's stream in the old one's place, once it has reached
// its tip: what the new one lacks is dropped (rule P3).
func (m *Mesh) swap(o *origin, f *feed) error {
	old := f.cur
	f.cur, f.next = f.next, nil
	err := m.store.db.Update(func(tx *bbolt.Tx) error {
		if streams := tx.Bucket(bucketStreams); streams.Bucket(old.id.key()) != nil {
			if err := streams.DeleteBucket(old.id.key()); err != nil {
				return err
			}
		}
		// An epoch in which nothing was announced is remembered too.
		if t, err := m.store.openStream(tx, f.cur.id); t == nil && err == nil {
			if _, err := m.store.createStream(tx, f.cur.id); err != nil {
				return err
			}
		}
		return putOrigin(tx, o.domain, o.saved(o.index.Clock.Now()))
	})
	if err != nil {
		f.cur, f.next = old, f.cur
		return err
	}
	m.store.places.forget(old.id)
	nudge(m.store.wiper.dirty)
	m.cfg.Logger.Warn("an origin began a new epoch: what it no longer announces is dropped",
		"origin", o.domain.Name(), "stream", f.cur.id.aud.String(), "from", old.id.epoch, "to", f.cur.id.epoch)
	o.reached = nil
	before := map[*directory.Entry]bool{}
	for e := range o.index.All() {
		before[e] = true
	}
	if err := m.fill(o, f, f.cur); err != nil {
		return err
	}
	return m.hide(o, f, func(e *directory.Entry) bool { return before[e] })
}
