package replica

import (
	"sync"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/federation/store"
)

// A readmitter requests records again that exceeded a quota before.
type readmitter struct {
	streams *streams

	mu   sync.Mutex // guards room
	room bool       // records may fit that didn't fit at the last Readmit
}

// The bounds of one step of Readmit: the records that it requests, to within a batch, the
// entries that it scans, and the entries that it reads at a time. An origin over its quota
// chooses how often records are freed, so the cost of a step must not depend on it.
const (
	ReadmitAtOnce = 1000
	ReadmitLook   = 16 << 10
	ReadmitBatch  = 256
)

// newReadmission begins the scan of a stream. It reserves room for the missing records.
func (ra *readmitter) newReadmission(st *Stream) *readmission {
	underWay := int64(st.Missing.Len())

	return &readmission{
		reserved: reservation{all: store.Usage{Records: underWay}, owners: store.Owners{}},
		asked:    underWay > 0,
	}
}

// Readmit takes one step of requesting records again that exceeded a quota and now fit. A
// record that is still too large is refused again, and requested only after more was freed.
func (ra *readmitter) Readmit() error {
	if err := ra.streams.Change.Lock(ra.streams.Store); err != nil {
		return err
	}

	defer ra.streams.Change.Unlock()

	room, freed := ra.takeRoom(), false
	for _, feed := range ra.streams.Pair.Feeds() {
		st := feed.Cur
		if st == nil || st.Used.OverQuota == 0 || ra.streams.Quotas.full(st, store.Usage{}) ||
			ra.streams.Quotas.missingRoom(st, store.Usage{}) <= 0 {
			continue
		}

		switch {
		case st.Again == nil && !room:
			continue
		case st.Again == nil:
			st.Again = ra.newReadmission(st)
		default:
			freed = freed || room // also for entries that this scan has passed
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

// readmitSome takes one step of a stream's readmission. It reads entries outside of a write
// transaction, which would block the pages of all origins. The caller holds Change.
func (ra *readmitter) readmitSome(feed *Feed, st *Stream) error {
	again, more := st.Again, true

	var rids []directory.RID

	most := int(min(ReadmitAtOnce, ra.streams.Quotas.missingRoom(st, store.Usage{})))
	for looked := 0; more && looked < ReadmitLook && len(rids) < most; looked += ReadmitBatch {
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

		// A record that has arrived is counted twice, as used and as reserved. Another scan
		// uses that room.
		if again.asked {
			ra.GiveRoom()
		}
	}

	return nil
}

// requestAgain marks records that exceeded a quota as missing. The caller holds Change.
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

// takeRoom reports whether room was given since its last call, and resets that.
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
