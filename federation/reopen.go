package federation

import (
	"errors"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/contain"
	"go.etcd.io/bbolt"
)

// keyDialect is where the store says by which dialect its records were opened.
var keyDialect = []byte("dialect")

// reopenBatch bounds the entries that one transaction looks at.
const reopenBatch = 256

// reopen opens records again if another dialect than this node's judged them: what
// an older release kept unopened is judged now, and what only a newer one can read
// is kept until it is back. Nothing else runs yet. The dialect is written last, so
// that a node that is stopped meanwhile begins again.
func (m *Mesh) reopen() error {
	dialect := m.cfg.Dialect.String()
	judged := ""

	err := m.store.view(func(tx *bbolt.Tx) error {
		judged = string(tx.Bucket(bucketMeta).Get(keyDialect))
		return nil
	})
	if err != nil || judged == dialect {
		return err
	}

	origins, err := m.store.origins()
	if err != nil {
		return err
	}

	for td := range origins {
		streams, err := m.store.streams(td)
		if err != nil {
			return err
		}

		for _, st := range streams {
			if err := m.reopenStream(st.id); err != nil {
				return err
			}
		}
	}

	return m.store.update(func(tx *bbolt.Tx) error {
		return tx.Bucket(bucketMeta).Put(keyDialect, []byte(dialect))
	})
}

// reopenStream opens the records of a stream again.
func (m *Mesh) reopenStream(id streamID) error {
	for after, more := []byte(nil), true; more; {
		var batch []kept
		var err error

		after, more, err = m.store.entriesAfter(id, after, reopenBatch,
			func(t *streamTx, rid directory.RID, h *held) error {
				if h.Record != recordHeld {
					return nil
				}

				k, err := t.keptOf(rid, h)
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

// A reopened record is an entry as it is judged now.
type reopened struct {
	rid     directory.RID
	was, is held
}

// reopenBatch writes what has become of some records.
func (m *Mesh) reopenBatch(id streamID, batch []kept) error {
	judged := make([]reopened, len(batch))
	parallel(len(batch), func(i int) { judged[i] = m.judgeAgain(id, batch[i]) })

	_, err := m.store.change(id, func(_ *bbolt.Tx, t *streamTx) error {
		for _, r := range judged {
			if r.was == r.is {
				continue
			}

			if r.is.Record == recordRefused {
				if err := t.dropRecord(&r.was); err != nil {
					return err
				}
			}

			if err := t.put(r.rid, &r.was, &r.is); err != nil {
				return err
			}
		}

		return nil
	})

	return err
}

// judgeAgain judges a record that is held by this node's dialect.
func (m *Mesh) judgeAgain(id streamID, k kept) reopened {
	r := reopened{rid: k.rid, was: k.held, is: k.held}
	if k.record == nil || !k.record.is(k.held.name()) {
		return r // the disk has damaged it, and whoever shows it says so
	}

	// What was opened before passed once; what was not has everything before it.
	project := directory.Reproject
	if k.held.Format != 0 {
		project = directory.Project
	}

	entry, err := m.openContained(contain.Stored, func() (*directory.Entry, error) {
		return m.openEntry(id.origin, id.epoch, k.held.digest(k.rid), k.record, project)
	})

	switch {
	case errors.Is(err, directory.ErrUnsupported):
		r.is.Format = formatOf(err)
		r.is.Owner = 0
	case k.held.Format != 0 && err != nil:
		r.is.Format = 0
		r.is.Record = recordRefused
		m.cfg.Logger.Warn("refused a record that this release can read",
			"origin", id.origin.Name(), "rid", k.rid.String(), "err", err)
	case k.held.Format != 0:
		r.is.Format = 0
		r.is.Owner = ownerKeyOf(entry) // in whose share it counts from now on
	}

	return r
}
