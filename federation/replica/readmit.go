package replica

import (
	"sync"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/federation/store"
)

// A readmitter asks again for records that there was no room for.
type readmitter struct {
	streams *streams

	mu   sync.Mutex // guards what follows
	room bool       // something was freed, or may be held, since readmit looked
}

// What one step of readmit may do: how many records are asked for again, to within a
// batch, how many entries are looked at for that, and at a time. An origin with records
// over its quota chooses how often something is freed, so a step is no longer for it.
const (
	ReadmitAtOnce = 1000
	ReadmitLook   = 16 << 10
	ReadmitBatch  = 256
)

// newReadmission begins a look at a stream. There is no room for what is on its way.
func (ra *readmitter) newReadmission(st *Stream) *readmission {
	underWay := int64(len(st.Missing))

	return &readmission{
		reserved: reservation{all: store.Usage{Records: underWay}, owners: store.Owners{}},
		asked:    underWay > 0,
	}
}

// Readmit wants records again for which there was no room, once there is. What is
// too large still is refused again, and not asked for before more was freed.
func (ra *readmitter) Readmit() error {
	if err := ra.streams.Change.Lock(ra.streams.Store); err != nil {
		return err
	}

	defer ra.streams.Change.Unlock()

	room, freed := ra.takeRoom(), false
	for _, feed := range ra.streams.Pair.Feeds() {
		st := feed.Cur
		if st == nil || st.Used.OverQuota == 0 || ra.streams.Quotas.full(st, store.Usage{}) {
			continue
		}

		switch {
		case st.Again == nil && !room:
			continue
		case st.Again == nil:
			st.Again = ra.newReadmission(st)
		default:
			freed = freed || room // behind what it has looked at, too
		}

		if err := ra.readmitSome(feed, st); err != nil {
			st.Again = nil
			ra.GiveRoom()

			return err
		}
	}

	if freed {
		ra.GiveRoom()
	}

	return nil
}

// readmitSome takes one step of a stream's readmission. Entries are read without a
// transaction that writes, which would keep the pages of all origins waiting. o.change
// is held.
func (ra *readmitter) readmitSome(feed *Feed, st *Stream) error {
	again, more := st.Again, true

	var rids []directory.RID

	for looked := 0; more && looked < ReadmitLook && len(rids) < ReadmitAtOnce; looked += ReadmitBatch {
		var err error

		again.after, more, err = ra.streams.Store.EntriesAfter(st.Id, again.after, ReadmitBatch,
			func(_ *store.Tx, rid directory.RID, h *store.Entry) error {
				if h.Record == store.RecordOverQuota && ra.streams.Quotas.reserve(&again.reserved, st, h) {
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

		if err := ra.requestAgain(feed, st, rids); err != nil {
			return err
		}
	}

	if !more {
		st.Again = nil

		if again.asked { // what came by now is reserved twice: another look finds what room that leaves
			ra.GiveRoom()
		}
	}

	return nil
}

// requestAgain makes entries wanted for which there was no room. o.change is held.
func (ra *readmitter) requestAgain(feed *Feed, st *Stream, rids []directory.RID) error {
	var (
		done Changes
		err  error
	)

	done.State, err = ra.streams.Store.Change(st.Id, func(t *store.Tx) error {
		for _, rid := range rids {
			old, err := t.Get(rid)
			if err != nil {
				return err
			}

			if old == nil || old.Record != store.RecordOverQuota {
				continue
			}

			held := *old

			held.Record = store.RecordMissing
			if err := t.Put(rid, old, &held); err != nil {
				return err
			}

			done.effects = append(done.effects, effect{digest: held.Digest(rid), missing: true})
		}

		done.Delta = t.Delta

		return nil
	})
	if err != nil {
		return err
	}

	ra.streams.Apply(feed, st, done, nil)
	Wake(ra.streams.Kick)

	return nil
}

// takeRoom reports whether something was freed since it was asked the last time.
func (ra *readmitter) takeRoom() bool {
	ra.mu.Lock()
	defer ra.mu.Unlock()

	room := ra.room && !ra.streams.HasEnded()
	ra.room = false

	return room
}

func (ra *readmitter) GiveRoom() {
	ra.mu.Lock()
	defer ra.mu.Unlock()

	ra.room = true
}
