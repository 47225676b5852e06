package store

import (
	"bytes"
	"encoding/binary"
	"errors"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"go.etcd.io/bbolt"
)

// A Tx is one stream within a transaction.
type Tx struct {
	tx                            *bbolt.Tx
	wiper                         *wiper
	Bucket, Entries, Records, due *bbolt.Bucket
	State                         State
	Delta                         Usage  // changes of this transaction so far
	Owners                        Owners // the same by owner
	moves                         []move // records that were written or deleted
}

// packed is the fill factor of the file's pages. Most keys are appended, and bbolt's default
// would leave half of each page empty.
const packed = .9

// Has reports whether a stream has an entry.
func (t *Tx) Has(rid directory.RID) bool { return t.Entries.Get([]byte(rid.String())) != nil }

func (t *Tx) Get(rid directory.RID) (*Entry, error) {
	data := t.Entries.Get([]byte(rid.String()))
	if data == nil {
		return nil, nil
	}

	h := new(Entry)

	return h, Unmarshal(data, h)
}

// Put replaces old by held; old is nil or the result of Get. If their names differ, old's
// record is deleted with its disclosures.
func (t *Tx) Put(rid directory.RID, old, held *Entry) error {
	switch {
	case old == nil:
		t.State.Live++
		t.Delta.Count(held, 1)
	case old.Name() != held.Name():
		if err := t.DropRecord(old); err != nil {
			return err
		}
	}

	if old != nil {
		t.Delta.Count(old, -1)
		t.Delta.Count(held, 1)
	}

	if old != nil && old.Deadline != held.Deadline {
		if err := t.due.Delete(dueKey(old.Deadline, rid)); err != nil {
			return err
		}
	}

	if old == nil || old.Deadline != held.Deadline {
		if err := t.due.Put(dueKey(held.Deadline, rid), nil); err != nil {
			return err
		}
	}

	return t.Entries.Put([]byte(rid.String()), Marshal(held))
}

func (t *Tx) Remove(rid directory.RID, old *Entry) error {
	if old == nil {
		return nil
	}

	t.State.Live--
	t.Delta.Count(old, -1)

	return errors.Join(t.DropRecord(old), t.due.Delete(dueKey(old.Deadline, rid)),
		t.Entries.Delete([]byte(rid.String())))
}

// DropRecord deletes the record of an entry that holds it. A digest may name the
// record of another registration; the record gate refuses it there, and it is not
// that digest's to take away.
func (t *Tx) DropRecord(old *Entry) error {
	if old.Record != RecordHeld {
		return nil
	}

	t.wiper.wake()
	size := t.Size(old)
	t.Delta = t.Delta.Plus(Usage{Records: -1, Bytes: -size})
	t.Owners.Add(old.Owner, Share{-1, -size})
	t.moves = append(t.moves, move{old.H, old.Place, true})

	return t.Records.Delete(placeKey(old.Place))
}

// Lacking returns those of the digests whose record isn't here. If the stream is full, it returns only those whose
// record takes the place of one that is held: there is no room for others.
func (t *Tx) Lacking(digests []signed.Digest, full bool) (lacking []signed.Digest, err error) {
	for _, digest := range digests {
		held, err := t.Get(digest.RID)
		if err != nil {
			return nil, err
		}

		// A record that was refused or exceeded a quota isn't requested again with the page.
		here := held != nil && held.Record != RecordMissing && held.Name() == protocol.NameOf(digest)
		replaces := held != nil && held.Record == RecordHeld

		if !here && (replaces || !full) {
			lacking = append(lacking, digest)
		}
	}

	return lacking, nil
}

// DueBefore returns up to limit registrations whose deadline is before a time in Unix
// seconds. It also returns the deadline of the next one, or 0.
func (t *Tx) DueBefore(deadline int64, limit int) (rids []directory.RID, next int64, err error) {
	c := t.due.Cursor()
	for k, _ := c.First(); k != nil; k, _ = c.Next() {
		x := int64(binary.BigEndian.Uint64(k))
		if x >= deadline || len(rids) == limit {
			return rids, x, nil
		}

		rid, err := directory.ParseRID(string(k[8:]))
		if err != nil {
			return nil, 0, ErrStore
		}

		rids = append(rids, rid)
	}

	return rids, 0, nil
}

// dueKey sorts by deadline. Deadlines before 1970 don't pass the gate.
func dueKey(deadline int64, rid directory.RID) []byte {
	return append(binary.BigEndian.AppendUint64(nil, uint64(deadline)), rid.String()...)
}

// SaveOrigin writes the state of an origin in the transaction of one of its streams.
func (t *Tx) SaveOrigin(td spiffeid.TrustDomain, st Origin) error {
	return putOrigin(t.tx, td, st)
}

// Record returns the record that an entry holds; nil if it holds none.
func (t *Tx) Record(held *Entry) (*Record, error) {
	if held.Record != RecordHeld {
		return nil, nil
	}

	r, err := t.recordAt(held.Place, held.Name())
	if r == nil && err == nil {
		err = ErrStore
	}

	return r, err
}

// recordAt returns the record at a place, if it is that of the name.
func (t *Tx) recordAt(place uint64, n protocol.RecordName) (*Record, error) {
	data, ok := bytes.CutPrefix(t.Records.Get(placeKey(place)), n.Bytes())
	if !ok {
		return nil, nil
	}

	r := new(Record)

	return r, Unmarshal(data, r)
}

// PutRecord writes a record of the name of held, which is to hold it, behind all others.
func (t *Tx) PutRecord(held *Entry, record StoredRecord) (err error) {
	if held.Place, err = t.Records.NextSequence(); err != nil {
		return err
	}

	t.Delta = t.Delta.Plus(Usage{Records: 1, Bytes: int64(record.Size())})
	t.Owners.Add(held.Owner, Share{1, int64(record.Size())})
	t.moves = append(t.moves, move{held.H, held.Place, false})

	return t.Rewrite(held, record)
}

// Rewrite replaces the record that held has by another of the same name.
func (t *Tx) Rewrite(held *Entry, record StoredRecord) error {
	return t.Records.Put(placeKey(held.Place), record)
}

// Size returns the bytes of the record that an entry holds.
func (t *Tx) Size(held *Entry) int64 {
	if held == nil || held.Record != RecordHeld {
		return 0
	}

	return int64(StoredRecord(t.Records.Get(placeKey(held.Place))).Size())
}

func placeKey(place uint64) []byte { return binary.BigEndian.AppendUint64(nil, place) }
