package replica

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/directory/span"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/federation/recordgate"
	"github.com/roster-mesh/roster/federation/store"
)

// writePage writes a page in one transaction, so that it is accepted whole or not at all.
// The caller holds change.
func (o *Origin) writePage(ctx context.Context, st *Stream, page *Page,
	opened map[directory.RID]recordgate.Opened) (done Changes, err error) {
	_, step := span.Start(ctx, span.Store)
	defer func() { step.Done(err) }()

	floor := o.Shown.Index.Clock.Now()

	done.State, err = o.Store.Change(st.Id, func(t *store.Tx) error {
		for _, d := range page.Digests {
			effect, err := o.applyDigest(st, t, page, d, opened[d.RID], floor)
			if err != nil {
				return err
			}

			done.effects = append(done.effects, effect)
		}

		if t.State.Live > o.entryLimit(st) && t.State.Live > st.State.Live {
			return &protocol.Refusal{Code: protocol.CodeQuota, Origin: page.Issuer, Err: errQuota}
		}

		t.State.Watermark = page.To
		done.Delta, done.owners = t.Delta, t.Owners

		if err := t.AddPage(page.Page, page.Text); err != nil {
			return err
		}

		return t.SaveOrigin(o.Domain, o.saved(floor))
	})

	return done, err
}

// entryLimit returns the number of entries that a stream may hold. A repeated pull doubles
// it, because entries that the origin no longer announces stay until the end of the pull.
func (o *Origin) entryLimit(st *Stream) uint64 {
	if st.RepullSince > 0 {
		return 2 * uint64(o.Cfg.Quota)
	}

	return uint64(o.Cfg.Quota)
}

// applyDigest writes one digest. The entry that it leaves in force is shown once
// its record is here (federation.md, "Records on demand").
func (o *Origin) applyDigest(st *Stream, t *store.Tx, page *Page, digest signed.Digest, rec recordgate.Opened,
	now time.Time) (effect, error) {
	old, err := t.Get(digest.RID)
	if err != nil {
		return effect{}, err
	}

	if !digest.Live() || Freed(digest.Deadline, now) {
		return effect{digest: digest}, t.Remove(digest.RID, old)
	}

	kid, err := directory.ParseHash(page.KeyID)
	if err != nil {
		return effect{}, fmt.Errorf("federation: key id %q is not a thumbprint", page.KeyID)
	}

	held := &store.Entry{Revision: digest.Revision, H: digest.H, M: digest.M, Deadline: digest.Deadline,
		Lifetime: digest.Lifetime, Key: kid, CheckedAt: page.VerifiedAt.UnixMilli()}
	if old != nil && old.Name() == held.Name() && (old.Record != store.RecordMissing || rec.Record == nil) {
		held.At = old.At
		held.From = old.From
		held.Record = old.Record
		held.Place = old.Place
		held.Format = old.Format
		held.Owner, held.Size = old.Owner, old.Size

		return effect{digest: digest, renew: held, missing: held.Record == store.RecordMissing}, t.Put(digest.RID, old,
			held)
	}

	if rec.Asked != held.Name() { // the page names its registration twice, and it is the other one's
		rec = recordgate.Opened{}
	}

	e := effect{digest: digest, missing: rec.Record == nil}
	switch {
	case rec.Record != nil:
		e.entry = o.keep(st, t, old, held, rec)
	case (old == nil || old.Record != store.RecordHeld) && o.full(st, t.Delta),
		o.missingRoom(st, t.Delta) <= 0:
		e.missing = false
		o.overQuota(held)
	}

	if held.Record == store.RecordHeld {
		if err := t.PutRecord(held, rec.Stored); err != nil {
			return e, err
		}
	}

	return e, t.Put(digest.RID, old, held)
}

// keep completes held for a record that arrived, and returns the entry to show or nil. A
// refused record isn't requested again, because all holders have the same bytes by that
// name. A record that exceeds a quota isn't requested again until there is room. The record
// that it replaces counts as room.
func (o *Origin) keep(st *Stream, t *store.Tx, old, held *store.Entry, rec recordgate.Opened) *directory.Entry {
	held.At, held.From, held.Record = rec.At.UnixMilli(), rec.From.Name(), store.RecordHeld
	if rec.Err != nil {
		held.Record = store.RecordRefused

		code := protocol.CodeRecord
		if errors.Is(rec.Err, recordgate.ErrOwnIdentity) {
			code = protocol.CodeOwnerForeign
		}

		o.Counted(code)

		if o.Refusals.Lines.Allow(code, rec.From) {
			o.Cfg.Logger.Warn("refused a record", "origin", o.Domain.Name(), "h", held.H.String(), "err", rec.Err)
		}

		return nil
	}

	held.Owner, held.Size = store.OwnerKeyOf(rec.Entry), uint32(rec.Stored.Size())
	if !o.hasRoom(st, t, old, held) {
		o.overQuota(held)
		return nil
	}

	held.Format = rec.Format

	return o.Shown.describe(rec.Entry, st.Id.Audience, held)
}

// overQuota notes that there is no room for an entry's record.
func (o *Origin) overQuota(h *store.Entry) {
	h.Record = store.RecordOverQuota
	o.Counted(protocol.CodeQuota)
}

// Counted counts a message of the origin, and returns its code.
func (o *Origin) Counted(c protocol.Code) protocol.Code {
	o.Refusals.ByOrigin.Add(o.Domain, c)
	return c
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

			entry := o.keep(st, t, &was, held, rec)
			if held.Record == store.RecordHeld {
				if err := t.PutRecord(held, rec.Stored); err != nil {
					return err
				}
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
