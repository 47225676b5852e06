package federation

import (
	"context"
	"slices"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/contain"
	"go.etcd.io/bbolt"
)

// A usage is what a stream holds here, or how that changes.
type usage struct {
	records, bytes int64 // on disk
	over           int64 // entries for whose records there was no room
	unopened       unopened
}

func (u usage) plus(o usage) usage {
	u.records += o.records
	u.bytes += o.bytes
	u.over += o.over

	for f := range u.unopened {
		u.unopened[f] += o.unopened[f]
	}

	return u
}

// count adds n times what an entry is besides its record.
func (u *usage) count(h *held, n int64) {
	switch {
	case h.Record == recordOver:
		u.over += n
	case h.Record == recordHeld && h.Format != 0:
		u.unopened[h.Format] += n
	}
}

// used returns what is held of the origin when st has changed by delta. A new epoch
// that is gathered beside an old one is reckoned by itself (rule P3). o.change or o.mu
// is held.
func (o *origin) used(st *stream, delta usage) usage {
	all := st.used.plus(delta)
	f := o.feedOf(st.id.aud)
	other := o.other(f)
	switch {
	case st == f.next && other.next != nil:
		return all.plus(other.next.used)
	case other.cur != nil:
		return all.plus(other.cur.used)
	}
	return all
}

// full reports whether nothing can be added to st.
func (o *origin) full(st *stream, delta usage) bool {
	return !o.quota().fits(o.used(st, delta), usage{records: 1, bytes: 1})
}

// admits reports whether what an origin announced is shown.
func (o *origin) admits(e *directory.Entry) bool {
	if o.stale {
		return false
	}

	admitted := false
	o.panics.Do(contain.Policy, func() {
		admitted = o.peering.Load().Import.Admits(e.Agent, e.Document.Kind(), e.Projection)
	})

	return admitted
}

// deadline is h's, clipped to what the peering lets be. What an origin says of the
// time at which it was set is believed where that is in the past.
func (h *held) deadline(most uint32) int64 {
	if most == 0 {
		return h.Deadline
	}
	set := min(h.CheckedAt/1000, h.Deadline-int64(h.Lifetime))
	return min(h.Deadline, set+int64(most))
}

// staleEvery is how often it is asked who hasn't been heard for too long.
const staleEvery = 500 * time.Millisecond

// staleness hides what silent origins told, where their peerings want that, and
// shows it again when they speak (MESH-008).
func (m *Mesh) staleness(ctx context.Context) {
	for ok := true; ok; ok = wait(ctx, nil, m.cfg.Stretch.of(staleEvery)) {
		for _, o := range m.all() {
			o.mu.Lock()
			if stale := o.silent() && o.peering.Load().Import.OnStale == directory.OnStaleHide; stale != o.stale && !o.ended {
				o.stale = stale
				m.rejudge(o)
				m.cfg.Logger.Warn("a peer's registrations are hidden, or shown again", "origin", o.domain.Name(), "hidden", stale)
			}
			o.mu.Unlock()
		}
	}
}

// silent reports whether an origin's last word is too old. Who lets this domain have
// no head, or none that it can read, is known by what else comes. o.mu is held.
func (o *origin) silent() bool {
	if o.unlisted || o.unread.head != nil {
		return time.Since(o.heard) > maxHeadAge
	}
	return o.index.Clock.Now().Sub(o.headIs) > maxHeadAge
}

// readmitAtOnce bounds how many records are asked for at a time because there is
// room for them again.
const readmitAtOnce = 1000

// readmit wants records again for which there was no room, once there is. What is
// too large still is refused again, and not asked for before more was freed.
func (m *Mesh) readmit(o *origin) error {
	if err := o.change.lock(m.store); err != nil {
		return err
	}
	defer o.change.unlock()

	if !o.takeRoom() {
		return nil
	}

	for _, f := range o.feeds() {
		st := f.cur
		if st == nil || st.used.over == 0 || o.full(st, usage{}) {
			continue
		}

		var done changes
		var err error
		done.state, err = m.store.change(st.id, func(_ *bbolt.Tx, t *streamTx) (err error) {
			done.effects, err = t.wantAgain(o, st, readmitAtOnce)
			done.delta = t.delta
			return err
		})
		if err != nil {
			o.giveRoom()
			return err
		}

		m.apply(o, f, st, done, nil)
		if len(done.effects) == readmitAtOnce {
			o.giveRoom()
		}
		nudge(o.kick)
	}

	return nil
}

// takeRoom reports whether something was freed since it was asked the last time.
func (o *origin) takeRoom() bool {
	o.mu.Lock()
	defer o.mu.Unlock()

	room := o.room && !o.ended
	o.room = false

	return room
}

func (o *origin) giveRoom() {
	o.mu.Lock()
	defer o.mu.Unlock()

	o.room = true
}

// wantAgain makes wanted of up to limit entries for which there was no room and is now.
func (t *streamTx) wantAgain(o *origin, st *stream, limit int) (effects []effect, err error) {
	reserved := reservation{owners: owners{}}
	c := t.entries.Cursor()
	for k, v := c.First(); k != nil && len(effects) < limit; k, v = c.Next() {
		rid, err := directory.ParseRID(string(k))
		var h held
		if err != nil || unmarshal(v, &h) != nil {
			return nil, errStore
		}
		if h.Record != recordOver || !o.reserve(&reserved, st, &h) {
			continue
		}
		effects = append(effects, effect{digest: h.digest(rid), want: true})
	}
	for _, e := range effects {
		old, err := t.get(e.digest.RID)
		if err != nil {
			return nil, err
		}
		h := *old
		h.Record = recordWanted
		if err := t.put(e.digest.RID, old, &h); err != nil {
			return nil, err
		}
	}
	return effects, nil
}

// replacing returns those of the names whose record takes the place of one that is
// held: where there is no room, nothing else is asked for.
func (t *streamTx) replacing(ds []directory.Digest, names []name) ([]name, error) {
	held := map[name]bool{}
	for _, d := range ds {
		h, err := t.get(d.RID)
		if err != nil {
			return nil, err
		}
		if h != nil && h.Record == recordHeld {
			held[nameOf(d)] = true
		}
	}
	return slices.DeleteFunc(names, func(n name) bool { return !held[n] }), nil
}
