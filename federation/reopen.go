package federation

import (
	"errors"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/contain"
	"github.com/roster-mesh/roster/directory/kinds"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/federation/store"
	"github.com/roster-mesh/roster/limit"
)

// reopenBatch bounds the entries that one transaction judges.
const reopenBatch = 256

// reopen judges stored records again if they were judged under another dialect than this
// node's. Records that an older release could not read are judged now. Records that only a
// newer release can read are kept for it. No other loop runs yet. The dialect is written
// last, so that a node that stops meanwhile starts again.
func (m *Mesh) reopen() error {
	dialect := m.cfg.Dialect.String()

	judged, err := m.store.Dialect()
	if err != nil || judged == dialect {
		return err
	}

	origins, err := m.store.Origins()
	if err != nil {
		return err
	}

	for td := range origins {
		streams, err := m.store.Streams(td)
		if err != nil {
			return err
		}

		for _, st := range streams {
			if err := m.reopenStream(st.Id); err != nil {
				return err
			}
		}
	}

	return m.store.SetDialect(dialect)
}

// reopenStream opens the records of a stream again.
func (m *Mesh) reopenStream(id store.StreamID) error {
	for after, more := []byte(nil), true; more; {
		var (
			batch []store.StoredEntry
			err   error
		)

		after, more, err = m.store.EntriesAfter(id, after, reopenBatch,
			func(t *store.Tx, rid directory.RID, held *store.Entry) error {
				if held.Record != store.RecordHeld {
					return nil
				}

				k, err := t.StoredEntryOf(rid, held)
				batch = append(batch, k)

				return err
			})
		if err != nil {
			return err
		}

		if err := m.reopenBatch(id, batch); err != nil {
			return err
		}
	}

	return nil
}

// A reopened is an entry before and after it was judged again.
type reopened struct {
	rid     directory.RID
	was, is store.Entry
}

// reopenBatch judges a batch of records again and stores the changed entries.
func (m *Mesh) reopenBatch(id store.StreamID, batch []store.StoredEntry) error {
	judged := make([]reopened, len(batch))
	limit.Parallel(len(batch), func(i int) { judged[i] = m.judgeAgain(id, batch[i]) })

	_, err := m.store.Change(id, func(t *store.Tx) error {
		for _, r := range judged {
			if r.was == r.is {
				continue
			}

			if r.is.Record == store.RecordRefused {
				if err := t.DropRecord(&r.was); err != nil {
					return err
				}
			}

			if err := t.Put(r.rid, &r.was, &r.is); err != nil {
				return err
			}
		}

		return nil
	})

	return err
}

// judgeAgain judges a stored record by this node's dialect.
func (m *Mesh) judgeAgain(id store.StreamID, k store.StoredEntry) reopened {
	r := reopened{rid: k.RID, was: k.Entry, is: k.Entry}
	if k.Record == nil || !k.Record.Is(k.Entry.Name()) {
		return r // damaged on disk; reading it reports the damage
	}

	// A record that was opened before passed all checks once; others must pass them now.
	project := kinds.Reproject
	if k.Entry.Format != 0 {
		project = kinds.Project
	}

	entry, err := m.records.OpenEntry(contain.Stored, id.Origin, id.Epoch, k.Entry.Digest(k.RID), k.Record, project)

	switch {
	case errors.Is(err, signed.ErrUnsupported):
		r.is.Format = store.FormatOf(err)
		r.is.Owner = 0
	case k.Entry.Format != 0 && err != nil:
		r.is.Format = 0
		r.is.Record = store.RecordRefused
		m.cfg.Logger.Warn("refused a record that could be read for the first time",
			"origin", id.Origin.Name(), "rid", k.RID.String(), "err", err)
	case k.Entry.Format != 0:
		r.is.Format = 0
		r.is.Owner = store.OwnerKeyOf(entry) // the record counts in this owner's share from now on
	}

	return r
}
