package federation

import (
	"github.com/roster-mesh/roster/directory"
)

// An origin may have announced a registration in both of its streams, with other
// disclosures in each. One of the two is shown: the one whose statement is newer,
// and of one statement that which was meant for this domain alone.

// apply does in memory what a transaction did on disk. A stream that isn't shown
// yet changes no index. o.mu is held.
func (m *Mesh) apply(o *origin, f *feed, st *stream, effects []effect) error {
	o.reached = nil
	for _, e := range effects {
		delete(st.wanted, e.digest.RID)
		if e.want {
			st.wanted[e.digest.RID] = &want{digest: e.digest}
		}
	}
	if st != f.cur {
		return nil
	}
	both, err := m.inOther(o, f, effects)
	if err != nil {
		return err
	}
	for _, e := range effects {
		rid := e.digest.RID
		switch {
		case both[rid]:
			err = m.choose(o, rid)
		case e.renew != nil:
			o.renew(rid, e.renew)
		case e.entry != nil:
			o.index.Put(e.entry)
		default:
			o.index.Delete(rid)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// inOther returns those of the registrations that the origin's other stream holds.
func (m *Mesh) inOther(o *origin, f *feed, effects []effect) (map[directory.RID]bool, error) {
	other := o.other(f)
	if !other.live() {
		return nil, nil
	}
	both := map[directory.RID]bool{}
	err := m.store.read(other.cur.id, func(t *streamTx) error {
		for _, e := range effects {
			if t.entries.Get([]byte(e.digest.RID.String())) != nil {
				both[e.digest.RID] = true
			}
		}
		return nil
	})
	return both, err
}

// choose shows of a registration the better of what the origin's streams hold, or
// nothing. o.mu is held.
func (m *Mesh) choose(o *origin, rid directory.RID) error {
	var best *directory.Entry
	for _, f := range o.feeds() {
		if !f.live() {
			continue
		}
		var k kept
		err := m.store.read(f.cur.id, func(t *streamTx) (err error) {
			if v := t.entries.Get([]byte(rid.String())); v != nil {
				k, err = t.kept([]byte(rid.String()), v)
			}
			return err
		})
		if err != nil {
			return err
		}
		if e := m.entryOf(o, f.cur, k); e != nil && better(e, best) {
			best = e
		}
	}
	if best == nil {
		o.index.Delete(rid)
	} else {
		o.index.Put(best)
	}
	return nil
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

// offer shows an entry unless the origin's other stream has a better one.
func (o *origin) offer(e *directory.Entry) {
	if old, ok := o.index.Get(e.RID); ok && old.Received.Private != e.Received.Private && !better(e, old) {
		return
	}
	o.index.Put(e)
}

// hide takes away what the index shows of a feed and pick says yes to, and shows
// of it what the other feed has. o.mu is held.
func (m *Mesh) hide(o *origin, f *feed, pick func(*directory.Entry) bool) error {
	private := f == &o.private
	var effects []effect
	for e := range o.index.All() {
		if e.Received.Private == private && pick(e) {
			effects = append(effects, effect{digest: directory.Digest{RID: e.RID}})
		}
	}
	both, err := m.inOther(o, f, effects)
	if err != nil {
		return err
	}
	for _, e := range effects {
		if both[e.digest.RID] {
			err = m.choose(o, e.digest.RID)
		} else {
			o.index.Delete(e.digest.RID)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
