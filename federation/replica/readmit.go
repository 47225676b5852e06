package replica

import (
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/federation/store"
)

// The bounds of one step of Readmit: the records that it requests, to within a batch, the
// entries that it scans, and the entries that it reads at a time. An origin over its quota
// chooses how often records are freed, so the cost of a step must not depend on it.
const (
	ReadmitAtOnce = 1000
	ReadmitLook   = 16 << 10
	ReadmitBatch  = 256
)

// newReadmission begins the scan of a stream. It reserves room for the missing records.
func (o *Origin) newReadmission(st *Stream) *readmission {
	underWay := int64(st.Missing.Len())

	return &readmission{
		reserved: reservation{all: store.Usage{Records: underWay}, owners: store.Owners{}},
		asked:    underWay > 0,
	}
}

// Readmit takes one step of requesting records again that exceeded a quota and now fit. A
// record that is still too large is refused again, and requested only after more was freed.
func (o *Origin) Readmit() error {
	if err := o.change.Lock(o.Store); err != nil {
		return err
	}

	defer o.change.Unlock()

	// The mark is cleared before the scan, so that room that is freed later counts for the next one.
	room, freed := o.Room.Swap(false) && !o.HasEnded(), false
	for _, feed := range o.Feeds() {
		st := feed.Cur
		if st == nil || st.Used.OverQuota == 0 || o.full(st, store.Usage{}) ||
			o.missingRoom(st, store.Usage{}) <= 0 {
			continue
		}

		switch {
		case st.Again == nil && !room:
			continue
		case st.Again == nil:
			st.Again = o.newReadmission(st)
		default:
			freed = freed || room // also for entries that this scan has passed
		}

		if err := o.readmitSome(st); err != nil {
			// The scan is given up with its reservations, and the next call begins another.
			st.Again = nil
			o.Room.Store(true)

			return err
		}
	}

	if freed {
		o.Room.Store(true)
	}

	return nil
}

// readmitSome takes one step of a stream's readmission. It reads entries outside of a write
// transaction, which would block the pages of all origins. The caller holds change.
func (o *Origin) readmitSome(st *Stream) error {
	again, more := st.Again, true

	var rids []directory.RID

	most := int(min(ReadmitAtOnce, o.missingRoom(st, store.Usage{})))
	for looked := 0; more && looked < ReadmitLook && len(rids) < most; looked += ReadmitBatch {
		var err error

		again.after, more, err = o.Store.EntriesAfter(st.Id, again.after, ReadmitBatch,
			func(_ *store.Tx, rid directory.RID, h *store.Entry) error {
				if h.Record == store.RecordOverQuota && o.reserve(&again.reserved, st, h) {
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

		if err := o.requestAgain(st, rids); err != nil {
			return err
		}
	}

	if !more {
		st.Again = nil

		// A record that has arrived is counted twice, as used and as reserved. Another scan
		// uses that room.
		if again.asked {
			o.Room.Store(true)
		}
	}

	return nil
}

// requestAgain marks records that exceeded a quota as missing. The caller holds change.
func (o *Origin) requestAgain(st *Stream, rids []directory.RID) error {
	defer Wake(o.Kick)

	return o.commit(st, func(t *store.Tx) (effects []effect, err error) {
		for _, rid := range rids {
			old, err := t.Get(rid)
			if err != nil {
				return nil, err
			}

			if old == nil || old.Record != store.RecordOverQuota {
				continue
			}

			held := *old

			held.Record = store.RecordMissing
			if err := t.Put(rid, old, &held); err != nil {
				return nil, err
			}

			effects = append(effects, effect{digest: held.Digest(rid), missing: true})
		}

		return effects, nil
	})
}
