package replica

import (
	"errors"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/contain"
	"github.com/roster-mesh/roster/directory/kinds"
	"github.com/roster-mesh/roster/federation/recordgate"
	"github.com/roster-mesh/roster/federation/store"
)

// entryOf returns the index entry of a stored record, before import policy; nil if the record
// can't be shown.
func (o *Origin) entryOf(st *Stream, k store.StoredEntry) *directory.Entry {
	if k.Record == nil || k.Entry.Format != 0 {
		return nil
	}

	entry, err := (*directory.Entry)(nil), recordgate.ErrRecord
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

// entriesOf returns the entries of a registration in the streams that are shown. The caller
// holds change.
func (o *Origin) entriesOf(rid directory.RID) (all []*directory.Entry, err error) {
	for _, feed := range o.Feeds() {
		if feed.Cur == nil {
			continue
		}

		var k store.StoredEntry

		err := o.Store.Read(feed.Cur.Id, func(t *store.Tx) (err error) {
			k, err = t.StoredEntry(rid)
			return err
		})
		if err != nil {
			return nil, err
		}

		if e := o.entryOf(feed.Cur, k); e != nil {
			all = append(all, e)
		}
	}

	return all, nil
}

// alternativesTo returns the alternatives to effects on a feed. If they can't be read, the entries
// are shown later. The caller holds change.
func (o *Origin) alternativesTo(f *Feed, effects []effect) alternatives {
	other := o.other(f)
	if !other.live() || len(effects) == 0 {
		return nil
	}

	var both []directory.RID

	err := o.Store.Read(other.Cur.Id, func(t *store.Tx) error {
		for _, e := range effects {
			if t.Has(e.digest.RID) {
				both = append(both, e.digest.RID)
			}
		}

		return nil
	})

	found := alternatives{}
	for i := 0; i < len(both) && err == nil; i++ {
		found[both[i]], err = o.entriesOf(both[i])
	}

	if err == nil {
		return found
	}

	if !errors.Is(err, store.ErrStalled) {
		o.Cfg.Logger.Error("reading a peer's stored records failed", "origin", o.Domain.Name(), "err", err)
	}

	o.showLater()

	return nil
}

// alternatives are the entries of those registrations that both streams of an origin have.
type alternatives map[directory.RID][]*directory.Entry
