package federation

import (
	"errors"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/contain"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/federation/store"
)

// An origin may have announced a registration in both of its streams, with other
// disclosures in each. One of the two is shown: the one whose statement is newer,
// and of one statement that which was meant for this domain alone.

// apply does in memory what a transaction did on disk, and calls also, if it isn't nil,
// at the same moment for readers. A stream that isn't shown yet changes no index.
// o.change is held.
func (ss *streams) apply(f *feed, st *stream, done changes, page *verifiedPage) {
	var twice alternatives
	if st == f.cur {
		twice = ss.alternativesTo(f, done.effects)
	}

	ss.mu.Lock()
	defer ss.mu.Unlock()

	ss.account(st, done)
	ss.reached.Store(nil)

	for _, e := range done.effects {
		delete(st.wanted, e.digest.RID)
		if e.want {
			st.wanted[e.digest.RID] = &want{digest: e.digest}
		}
	}

	if page != nil {
		f.progress(st, page)
	}
	if st != f.cur {
		return
	}

	for _, e := range done.effects {
		rid := e.digest.RID
		entries, both := twice[rid]

		switch {
		case both:
			ss.shown.show(rid, entries...)
		case e.renew != nil:
			ss.shown.renew(rid, e.renew)
		case e.entry != nil:
			ss.shown.show(rid, e.entry)
		default:
			ss.shown.index.Delete(rid)
		}
	}
}

// alternatives are what the streams of an origin say of registrations that more than
// one of them has.
type alternatives map[directory.RID][]*directory.Entry

// alternativesTo reads the alternatives to effects on a feed. What can't be read is
// shown later by the judges. o.change is held.
func (ss *streams) alternativesTo(f *feed, effects []effect) alternatives {
	found, err := ss.reader.readAlternatives(f, effects)
	if err != nil {
		if !errors.Is(err, store.ErrStalled) {
			ss.cfg.Logger.Error("can't read what a peer told", "origin", ss.domain.Name(), "error", err)
		}
		ss.rejudger.showLater()
	}

	return found
}

func (er *entryReader) readAlternatives(f *feed, effects []effect) (alternatives, error) {
	other := er.pair.other(f)
	if !other.live() || len(effects) == 0 {
		return nil, nil
	}

	var both []directory.RID
	err := er.store.Read(other.cur.id, func(t *store.Tx) error {
		for _, e := range effects {
			if t.Has(e.digest.RID) {
				both = append(both, e.digest.RID)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}

	found := alternatives{}
	for _, rid := range both {
		if found[rid], err = er.entriesOf(rid); err != nil {
			return nil, err
		}
	}

	return found, nil
}

// entriesOf returns what the streams that are shown hold of a registration. o.change is
// held.
func (er *entryReader) entriesOf(rid directory.RID) (all []*directory.Entry, err error) {
	for _, f := range er.pair.feeds() {
		if f.cur == nil {
			continue
		}

		var k store.StoredEntry
		err := er.store.Read(f.cur.id, func(t *store.Tx) (err error) {
			k, err = t.StoredEntry(rid)
			return err
		})
		if err != nil {
			return nil, err
		}

		if e := er.entryOf(f.cur, k); e != nil {
			all = append(all, e)
		}
	}

	return all, nil
}

// show shows the best of those entries of a registration that import policy admits, or
// nothing. o.mu is held.
func (sx *shownIndex) show(rid directory.RID, entries ...*directory.Entry) {
	var best *directory.Entry
	for _, e := range entries {
		if sx.admits(e) && better(e, best) {
			best = e
		}
	}

	if best == nil {
		sx.index.Delete(rid)
	} else {
		sx.put(best)
	}
}

// put enters an entry into the index. One that can't be entered is left out.
func (sx *shownIndex) put(e *directory.Entry) {
	if !sx.cfg.Panics.Do(contain.Index, func() { sx.index.Put(e) }) {
		sx.cfg.Panics.Do(contain.Index, func() { sx.index.Delete(e.RID) })
	}
}

// better reports whether a is to be shown where b is the other. Deadlines don't
// count: both streams are told of a later one in time, and an entry keeps its place
// until it is freed.
func better(a, b *directory.Entry) bool {
	if b == nil {
		return true
	}
	if a.Statement != b.Statement {
		return a.Statement > b.Statement
	}
	return a.Received.Private || !b.Received.Private
}

// offer shows an entry that import policy admits, unless the origin's other stream has
// a better one. o.mu is held.
func (sx *shownIndex) offer(e *directory.Entry) {
	if !sx.admits(e) {
		return
	}
	if old, ok := sx.index.Get(e.RID); ok && old.Received.Private != e.Received.Private && !better(e, old) {
		return
	}
	sx.put(e)
}

// hide takes away what the index shows of a feed and pick says yes to, and shows
// of it what the other feed has. o.change is held.
func (ss *streams) hide(f *feed, pick func(*directory.Entry) bool) {
	private := f == &ss.pair.private

	var effects []effect
	for e := range ss.shown.index.All() {
		if e.Received.Private == private && pick(e) {
			effects = append(effects, effect{digest: signed.Digest{RID: e.RID}})
		}
	}

	twice := ss.alternativesTo(f, effects)

	ss.mu.Lock()
	defer ss.mu.Unlock()

	for _, e := range effects {
		ss.shown.show(e.digest.RID, twice[e.digest.RID]...)
	}
}
