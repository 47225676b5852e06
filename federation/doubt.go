package federation

import (
	"errors"
	"time"

	"github.com/roster-mesh/roster/directory/signed"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/federation/store"
)

// Whoever had a key that its domain has revoked since may have said anything by it: of
// agents that there are not, of ends of those that there are, and of revisions or an
// epoch that lie before all that the domain can reach. So a stream that rests on such a
// key is pulled from its beginning once more. What is shown stays meanwhile, so that an
// honest revocation takes nobody's agents away; what nobody else vouches for by then goes.

// How often an origin is looked through for what a key signed: it takes a while where the
// origin has much, and the origin says how often it revokes one.
const (
	doubtEvery = time.Minute
	doubtBurst = 8
)

// doubtRest takes up what doubt put off.
func (o *origin) doubtRest() {
	doc, _, ok := o.cfg.Keys.Keys(o.domain)
	if !ok {
		return
	}

	if o.streams.change.lock(o.store) != nil {
		return // tend sees to it again
	}
	defer o.streams.change.unlock()

	if o.streams.hasEnded() {
		return
	}
	if err := o.doubt(doc); err != nil && !errors.Is(err, store.ErrStalled) {
		o.cfg.Logger.Error("can't look for what revoked keys signed", "peer", o.domain.Name(), "error", err)
	}
}

// doubt looks for what the newly revoked keys of an origin's document signed. It is
// safe to repeat, and is repeated after a start: what was begun may not have ended.
// o.change is held.
func (o *origin) doubt(doc *signed.KeyDocument) error {
	o.streams.renumber(doc)

	done := o.keys.revokedKeys()
	revoked := map[string]bool{}
	for _, id := range doc.Revoked {
		if !done[id] {
			revoked[id] = true
		}
	}
	if len(revoked) == 0 || !o.doubting.Allow() { // tend sees to what is put off
		return nil
	}

	parts, _ := protocol.SplitJWS(o.newestHead())
	bad := revoked[protocol.KeyIDOf(parts.Header)]
	for _, f := range o.streams.pair.feeds() {
		for _, st := range []*stream{f.cur, f.next} {
			if st == nil || bad {
				continue
			}
			var err error
			if bad, err = o.store.RestsOn(st.id, revoked); err != nil {
				return err
			}
		}
	}
	if bad {
		if err := o.askAnew(doc); err != nil {
			return err
		}
	}

	for _, id := range doc.Revoked {
		revoked[id] = true
	}
	o.keys.setRevoked(revoked)

	return nil
}

// renumber bounds since when streams are pulled anew: no page may ever be as new as a
// document had it that a thief numbered. o.change is held.
func (ss *streams) renumber(doc *signed.KeyDocument) {
	ss.mu.Lock()
	defer ss.mu.Unlock()

	for _, f := range ss.pair.feeds() {
		if f.cur != nil {
			f.cur.anew = min(f.cur.anew, max(doc.Seq, 1))
		}
	}
}

// newestHead returns the newest verified head, "" for none.
func (o *origin) newestHead() string {
	o.mu.Lock()
	defer o.mu.Unlock()

	return o.headText
}

// askAnew has both streams of an origin pulled from their beginning. o.change is held.
func (o *origin) askAnew(doc *signed.KeyDocument) error {
	o.cfg.Logger.Warn("a peer has revoked a key by which it was believed; what it announces is pulled anew", "peer", o.domain.Name())

	for _, f := range o.streams.pair.feeds() {
		if err := o.streams.rewind(f, doc); err != nil {
			return err
		}
	}

	o.forgetHead()
	o.mu.Lock()
	o.passedOn = directory.Position{}
	o.mu.Unlock()

	nudge(o.ask)
	o.moved()

	return o.store.SaveOrigin(o.domain, o.saved(o.streams.shown.index.Clock.Now()))
}

// forgetHead forgets where the origin said that it is.
func (o *origin) forgetHead() {
	o.mu.Lock()
	defer o.mu.Unlock()

	o.head = nil
	o.headText = ""
	o.streams.forgetHead()
}

// rewind has a feed pulled from its beginning. o.change is held.
func (ss *streams) rewind(f *feed, doc *signed.KeyDocument) error {
	if f.next != nil {
		if err := ss.store.Discard(f.next.id); err != nil {
			return err
		}
	}

	ss.replace(f, f.cur)
	if f.cur == nil {
		return nil
	}

	if f.cur.id.Epoch > doc.Epoch { // one that the domain has not reached
		if err := ss.store.DropStreams(ss.domain, f.aud); err != nil {
			return err
		}

		ss.replace(f, newStream(store.StreamID{Origin: ss.domain, Audience: f.aud, Epoch: doc.Epoch}))
		ss.hide(f, func(*directory.Entry) bool { return true })
	}

	st, anew := f.cur, max(doc.Seq, 1)
	state, err := ss.store.Change(st.id, func(t *store.Tx) error { return t.BeginRepull(anew) })
	if err != nil {
		return err
	}

	// Another stream of the same name, so that nobody goes on with the one before.
	ss.replace(f, &stream{id: st.id, state: state, used: st.used, owners: st.owners, wanted: st.wanted, anew: anew})

	return nil
}

// replace makes st the only stream of a feed. o.change is held.
func (ss *streams) replace(f *feed, st *stream) {
	ss.mu.Lock()
	defer ss.mu.Unlock()

	f.cur, f.next = st, nil
	f.tip = 0
	ss.reached.Store(nil)
}

// vouch ends what askAnew began, once the stream is at its origin's present: the
// entries that rest on revoked keys still are none of the origin's. o.change is held.
func (ss *streams) vouch(f *feed, st *stream, revoked map[string]bool) error {
	if st.anew == 0 {
		return nil
	}
	for after, more := []byte(nil), true; more; {
		var rids []directory.RID
		var err error
		after, more, err = ss.store.EntriesAfter(st.id, after, store.FillBatch, func(_ *store.Tx, rid directory.RID, h *store.Entry) error {
			if revoked[h.Key.String()] {
				rids = append(rids, rid)
			}
			return nil
		})
		if err == nil && len(rids) > 0 {
			err = ss.removeAll(f, st, rids)
		}
		if err != nil {
			return err
		}
	}
	_, err := ss.store.Change(st.id, func(t *store.Tx) error { return t.EndRepull() })
	if err != nil {
		return err
	}

	ss.mu.Lock()
	defer ss.mu.Unlock()

	st.anew = 0

	return nil
}
