package replica

import (
	"context"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/contain"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/federation/store"
)

// AcceptRecords takes records that came for wanted entries.
func (o *Origin) AcceptRecords(ctx context.Context, st *Stream, wanted []signed.Digest,
	records map[protocol.RecordName]Fetched) error {
	return o.Cfg.Panics.Run(contain.Record, func() error { return o.keepRecords(ctx, st, wanted, records) })
}

func (o *Origin) keepRecords(ctx context.Context, st *Stream, wanted []signed.Digest,
	records map[protocol.RecordName]Fetched) error {
	// Records are judged before change is taken: that takes long, and touches no stream.
	opened := o.Records.Open(ctx, o.Domain, &signed.Page{Epoch: st.Id.Epoch, Digests: wanted}, records)

	if err := o.change.Lock(o.Store); err != nil {
		return err
	}

	defer o.change.Unlock()

	// The stream may have been replaced while its records were requested.
	if feed := o.FeedOf(st.Id.Audience); o.HasEnded() || (st != feed.Cur && st != feed.next) {
		return nil
	}

	done, err := o.Store.KeepRecords(st.Id, opened, o.room(st))
	if err != nil {
		return err
	}

	o.noteUnkept(done.Effects)
	o.Apply(st, done, nil)
	o.Moved()

	return nil
}

// Sweep removes entries whose deadline passed at least directory.Skew ago, on disk and in
// the index. It removes up to limit entries of each stream, and returns when the next is due.
func (o *Origin) Sweep(limit int) (next time.Time, err error) {
	if err := o.change.Lock(o.Store); err != nil {
		return next, err
	}

	defer o.change.Unlock()

	for _, feed := range o.Feeds() {
		for _, st := range []*Stream{feed.Cur, feed.next} {
			if st == nil || o.HasEnded() {
				continue
			}

			before := o.Shown.Index.Clock.Now().Add(-directory.Skew)

			// One second more, because an entry is freed at this time and not only after it.
			due, err := o.sweepStream(st, before.Unix()+1, limit)
			if err != nil {
				return next, err
			}

			if at := time.Unix(due, 0).Add(directory.Skew); due != 0 && (next.IsZero() || at.Before(next)) {
				next = at
			}
		}
	}

	return next, nil
}

func (o *Origin) sweepStream(st *Stream, before int64, limit int) (next int64, err error) {
	var rids []directory.RID

	err = o.Store.Read(st.Id, func(t *store.Tx) (err error) {
		rids, next, err = t.DueBefore(before, limit)
		return err
	})
	if err != nil || len(rids) == 0 {
		return next, err
	}

	return next, o.removeAll(st, rids)
}

// removeAll removes entries of a stream, on disk and in the index. The caller holds change.
func (o *Origin) removeAll(st *Stream, rids []directory.RID) error {
	done, err := o.Store.RemoveAll(st.Id, rids)
	if err == nil {
		o.Apply(st, done, nil)
	}

	return err
}
