package replica

import (
	"errors"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/contain"
	"github.com/roster-mesh/roster/directory/kinds"
	"github.com/roster-mesh/roster/federation/store"
)

// entryOf returns the index entry of a stored record, before import policy; nil if the record
// can't be shown.
func (o *Origin) entryOf(st *Stream, k store.StoredEntry) *directory.Entry {
	if k.Record == nil || k.Entry.Format != 0 {
		return nil
	}

	entry, err := (*directory.Entry)(nil), ErrRecord
	if k.Record.Is(k.Entry.Name()) { // a disk may damage its contents
		entry, err = o.Records.OpenEntry(contain.Stored, o.Domain, st.Id.Epoch, k.Entry.Digest(k.RID), k.Record,
			kinds.Reproject)
	}

	if err != nil {
		o.Cfg.Logger.Warn("a stored record can't be shown", "origin", o.Domain.Name(), "rid", k.RID.String(), "err",
			err)

		return nil
	}

	return o.Shown.describe(entry, st.Id.Audience, &k.Entry)
}

// alternativesTo returns the alternatives to effects on a feed; nil if no registration of it is in the origin's
// other feed. If they can't be read, the entries are shown later. The caller holds change.
func (o *Origin) alternativesTo(f *Feed, effects []store.Effect) alternatives {
	other, found := o.other(f), alternatives{}
	if len(effects) == 0 || other.Cur == nil || other.Cur.State.Live == 0 {
		return nil
	}

	// The other feed comes first, because it shows which registrations both have.
	for _, feed := range []*Feed{other, f} {
		if feed.Cur == nil {
			continue
		}

		var stored []store.StoredEntry

		err := o.Store.Read(feed.Cur.Id, func(t *store.Tx) error {
			for _, e := range effects {
				rid := e.Digest.RID
				if feed == other && t.Has(rid) {
					found[rid] = nil
				}

				if _, both := found[rid]; !both {
					continue
				}

				entry, err := t.StoredEntry(rid)
				if err != nil {
					return err
				}

				stored = append(stored, entry)
			}

			return nil
		})
		if err != nil {
			if !errors.Is(err, store.ErrStalled) {
				o.Cfg.Logger.Error("reading a peer's stored records failed", "origin", o.Domain.Name(), "err", err)
			}

			// The position must not advance until they are read.
			o.showLater()

			return nil
		}

		for _, one := range stored {
			if entry := o.entryOf(feed.Cur, one); entry != nil {
				found[one.RID] = append(found[one.RID], entry)
			}
		}
	}

	return found
}

// alternatives are the entries of those registrations that both streams of an origin have.
type alternatives map[directory.RID][]*directory.Entry
