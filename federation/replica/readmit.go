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

// A readmission scans a stream, in steps, for entries whose records now fit the quotas. It
// reserves room for each record that it requests.
type readmission struct {
	after    []byte // the key of the last entry that was scanned
	reserved reservation
	asked    bool // a requested record may arrive meanwhile
}

// A reservation is room for records that are asked for again.
type reservation struct {
	all    store.Usage
	owners store.Owners
}

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
		if st == nil || st.Used.OverQuota == 0 {
			continue
		}

		left := o.room(st)
		if left.Full(store.Usage{}) || left.Missing(store.Usage{}) <= 0 {
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

		if err := o.readmitSome(st, left); err != nil {
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
func (o *Origin) readmitSome(st *Stream, left store.Room) error {
	again, more := st.Again, true

	var rids []directory.RID

	most := int(min(ReadmitAtOnce, left.Missing(store.Usage{})))
	for looked := 0; more && looked < ReadmitLook && len(rids) < most; looked += ReadmitBatch {
		var err error

		again.after, more, err = o.Store.EntriesAfter(st.Id, again.after, ReadmitBatch,
			func(_ *store.Tx, rid directory.RID, h *store.Entry) error {
				if h.Record == store.RecordOverQuota && again.reserved.reserve(&left, h) {
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

		done, err := o.Store.RequestAgain(st.Id, rids)
		if err != nil {
			return err
		}

		o.Apply(st, done, nil)
		Wake(o.Kick)
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

// reserve reserves room for a record that exceeded a quota before. It reports whether there
// is room beside earlier reservations. If the record never arrived, its owner and size are
// unknown, and it counts as one record of one byte.
func (r *reservation) reserve(left *store.Room, held *store.Entry) bool {
	needs := store.Usage{Records: 1, Bytes: int64(max(1, held.Size))}
	if !left.Fits(r.all, needs) {
		return false
	}

	if held.Size > 0 {
		if !left.OwnerFits(held.Owner, r.owners, needs) {
			return false
		}

		r.owners.Add(held.Owner, store.Share{Records: needs.Records, Bytes: needs.Bytes})
	}

	r.all = r.all.Plus(needs)

	return true
}
