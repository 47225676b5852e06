package replica

import (
	"context"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/contain"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/federation/recordgate"
	"github.com/roster-mesh/roster/federation/store"
)

// AcceptRecords takes records that came for wanted entries.
func (o *Origin) AcceptRecords(ctx context.Context, st *Stream, wanted []signed.Digest,
	records map[protocol.RecordName]recordgate.Fetched) error {
	return o.Cfg.Panics.Run(contain.Record, func() error { return o.keepRecords(ctx, st, wanted, records) })
}

func (o *Origin) keepRecords(ctx context.Context, st *Stream, wanted []signed.Digest,
	records map[protocol.RecordName]recordgate.Fetched) error {
	// Records are judged before change is taken: that takes long, and touches no stream.
	opened := o.Records.Open(ctx, o.Domain, &signed.Page{Epoch: st.Id.Epoch, Digests: wanted}, records)

	if err := o.change.Lock(o.Store); err != nil {
		return err
	}

	defer o.change.Unlock()

	feed := o.FeedOf(st.Id.Audience)

	// The stream may have been replaced while its records were requested.
	if o.HasEnded() || (st != feed.Cur && st != feed.next) {
		return nil
	}

	done, err := o.writeRecords(st, opened)
	if err != nil {
		return err
	}

	o.Apply(feed, st, done, nil)
	o.Moved()

	return nil
}

// writeRecords writes records of entries that still lack them. The caller holds change.
func (o *Origin) writeRecords(st *Stream, opened map[directory.RID]recordgate.Opened) (done Changes, err error) {
	done.State, err = o.Store.Change(st.Id, func(t *store.Tx) error {
		for rid, rec := range opened {
			held, err := t.Get(rid)
			if err != nil {
				return err
			}

			if held == nil || held.Record != store.RecordMissing || held.Name() != rec.Asked {
				continue // another page changed it meanwhile
			}

			was := *held

			entry, err := o.keep(st, t, &was, held, rec)
			if err != nil {
				return err
			}

			if err := t.Put(rid, &was, held); err != nil {
				return err
			}

			done.effects = append(done.effects, effect{digest: held.Digest(rid), entry: entry})
		}

		done.Delta, done.owners = t.Delta, t.Owners

		return nil
	})

	return done, err
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
			due, err := o.sweepStream(feed, st, before.Unix()+1, limit)
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

func (o *Origin) sweepStream(feed *Feed, st *Stream, before int64, limit int) (next int64, err error) {
	var rids []directory.RID

	err = o.Store.Read(st.Id, func(t *store.Tx) (err error) {
		rids, next, err = t.DueBefore(before, limit)
		return err
	})
	if err != nil || len(rids) == 0 {
		return next, err
	}

	return next, o.removeAll(feed, st, rids)
}

// removeAll removes entries of a stream, on disk and in the index. The caller holds change.
func (o *Origin) removeAll(feed *Feed, st *Stream, rids []directory.RID) error {
	var (
		done Changes
		err  error
	)

	done.State, err = o.Store.Change(st.Id, func(t *store.Tx) error {
		for _, rid := range rids {
			old, err := t.Get(rid)
			if err == nil {
				err = t.Remove(rid, old)
			}

			if err != nil {
				return err
			}
		}

		done.Delta, done.owners = t.Delta, t.Owners

		return nil
	})
	if err != nil {
		return err
	}

	for _, rid := range rids {
		done.effects = append(done.effects, effect{digest: signed.Digest{RID: rid}})
	}

	o.Apply(feed, st, done, nil)

	return nil
}
