package federation

import (
	"context"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/contain"
	"github.com/roster-mesh/roster/federation/store"
)

// used returns what is held of the origin when st has changed by delta. A new epoch
// that is gathered beside an old one is reckoned by itself (rule P3). o.change or o.mu
// is held.
func (qs *quotas) used(st *stream, delta store.Usage) store.Usage {
	all := st.used.Plus(delta)
	f := qs.pair.feedOf(st.id.Audience)
	other := qs.pair.other(f)
	switch {
	case st == f.next && other.next != nil:
		return all.Plus(other.next.used)
	case other.cur != nil:
		return all.Plus(other.cur.used)
	}
	return all
}

// full reports whether nothing can be added to st.
func (qs *quotas) full(st *stream, delta store.Usage) bool {
	return !qs.quota().fits(qs.used(st, delta), store.Usage{Records: 1, Bytes: 1})
}

// admits reports whether what an origin announced is shown.
func (sx *shownIndex) admits(e *directory.Entry) bool {
	if sx.stale {
		return false
	}

	admitted := false
	sx.cfg.Panics.Do(contain.Policy, func() {
		admitted = sx.peering.Load().Import.Admits(e.Agent, e.Document.Kind(), e.Projection)
	})

	return admitted
}

// deadline is h's, clipped to what the peering lets be. What an origin says of the
// time at which it was set is believed where that is in the past.
func clippedDeadline(h *store.Entry, most uint32) int64 {
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
func (u *upkeep) staleness(ctx context.Context) {
	for ok := true; ok; ok = wait(ctx, nil, u.cfg.Stretch.of(staleEvery)) {
		for _, o := range u.origins.all() {
			hide := o.peering.Load().Import.OnStale == directory.OnStaleHide

			stale := hide && o.silent()
			if o.streams.setStale(stale) {
				u.cfg.Logger.Warn("a peer's registrations are hidden, or shown again",
					"origin", o.domain.Name(), "hidden", stale)
			}
		}
	}
}

// silent reports whether an origin's last word is too old. Who lets this domain have
// no head, or none that it can read, is known by what else comes.
func (o *origin) silent() bool {
	o.mu.Lock()
	defer o.mu.Unlock()

	if o.unlisted || o.unread.head != nil {
		return time.Since(o.heard) > maxHeadAge
	}
	return o.streams.shown.index.Clock.Now().Sub(o.headIs) > maxHeadAge
}

// What one step of readmit may do: how many records are asked for again, to within a
// batch, how many entries are looked at for that, and at a time. An origin with records
// over its quota chooses how often something is freed, so a step is no longer for it.
const (
	readmitAtOnce = 1000
	readmitLook   = 16 << 10
	readmitBatch  = 256
)

// A readmission is a look at all entries of a stream for those that there is room for
// again. It goes on from step to step, and reserves room for all that it asks for.
type readmission struct {
	after    []byte // the key of the entry that was looked at last
	reserved reservation
	asked    bool // for a record that may come meanwhile
}

// newReadmission begins a look at a stream. There is no room for what is on its way.
func (ra *readmitter) newReadmission(st *stream) *readmission {
	underWay := int64(len(st.wanted))

	return &readmission{
		reserved: reservation{all: store.Usage{Records: underWay}, owners: store.Owners{}},
		asked:    underWay > 0,
	}
}

// readmit wants records again for which there was no room, once there is. What is
// too large still is refused again, and not asked for before more was freed.
func (ra *readmitter) readmit() error {
	if err := ra.streams.change.lock(ra.streams.store); err != nil {
		return err
	}
	defer ra.streams.change.unlock()

	room, freed := ra.takeRoom(), false
	for _, f := range ra.streams.pair.feeds() {
		st := f.cur
		if st == nil || st.used.OverQuota == 0 || ra.streams.quotas.full(st, store.Usage{}) {
			continue
		}

		switch {
		case st.again == nil && !room:
			continue
		case st.again == nil:
			st.again = ra.newReadmission(st)
		default:
			freed = freed || room // behind what it has looked at, too
		}

		if err := ra.readmitSome(f, st); err != nil {
			st.again = nil
			ra.giveRoom()
			return err
		}
	}

	if freed {
		ra.giveRoom()
	}

	return nil
}

// readmitSome takes one step of a stream's readmission. Entries are read without a
// transaction that writes, which would keep the pages of all origins waiting. o.change
// is held.
func (ra *readmitter) readmitSome(f *feed, st *stream) error {
	again, more := st.again, true
	var rids []directory.RID

	for looked := 0; more && looked < readmitLook && len(rids) < readmitAtOnce; looked += readmitBatch {
		var err error
		again.after, more, err = ra.streams.store.EntriesAfter(st.id, again.after, readmitBatch,
			func(_ *store.Tx, rid directory.RID, h *store.Entry) error {
				if h.Record == store.RecordOverQuota && ra.streams.quotas.reserve(&again.reserved, st, h) {
					rids = append(rids, rid)
				}
				return nil
			})
		if err != nil {
			return err
		}
	}

	if len(rids) > 0 {
		again.asked = true
		if err := ra.wantAgain(f, st, rids); err != nil {
			return err
		}
	}

	if !more {
		st.again = nil
		if again.asked { // what came by now is reserved twice: another look finds what room that leaves
			ra.giveRoom()
		}
	}

	return nil
}

// wantAgain makes entries wanted for which there was no room. o.change is held.
func (ra *readmitter) wantAgain(f *feed, st *stream, rids []directory.RID) error {
	var done changes
	var err error

	done.state, err = ra.streams.store.Change(st.id, func(t *store.Tx) error {
		for _, rid := range rids {
			old, err := t.Get(rid)
			if err != nil {
				return err
			}
			if old == nil || old.Record != store.RecordOverQuota {
				continue
			}

			h := *old
			h.Record = store.RecordMissing
			if err := t.Put(rid, old, &h); err != nil {
				return err
			}
			done.effects = append(done.effects, effect{digest: h.Digest(rid), want: true})
		}

		done.delta = t.Delta
		return nil
	})
	if err != nil {
		return err
	}

	ra.streams.apply(f, st, done, nil)
	nudge(ra.streams.kick)

	return nil
}

// takeRoom reports whether something was freed since it was asked the last time.
func (ra *readmitter) takeRoom() bool {
	ra.mu.Lock()
	defer ra.mu.Unlock()

	room := ra.room && !ra.streams.hasEnded()
	ra.room = false

	return room
}

func (ra *readmitter) giveRoom() {
	ra.mu.Lock()
	defer ra.mu.Unlock()

	ra.room = true
}
