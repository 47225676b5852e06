package history

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"go.etcd.io/bbolt"

	"github.com/roster-mesh/roster/consensus/state"
	"github.com/roster-mesh/roster/directory"
)

// A Record is one statement as it is kept.
type Record struct {
	RID   directory.RID  `cbor:"1,keyasint"`
	Epoch uint64         `cbor:"2,keyasint"`
	Index uint64         `cbor:"3,keyasint"` // of its entry in the ledger of the epoch
	At    int64          `cbor:"4,keyasint"` // Unix seconds
	H     directory.Hash `cbor:"5,keyasint"`
	Agent string         `cbor:"6,keyasint,omitempty"` // empty in that of an end
	// Kept is what state.Keep makes of the statement; nil once it was pruned.
	Kept []byte `cbor:"7,keyasint,omitempty"`
}

// A Store is the history on one member's disk. What is added is written within a second, in
// the order in which it was added. It is safe for concurrent use.
type Store struct {
	dir string
	db  *bbolt.DB

	mu      sync.Mutex
	waiting []state.Stated // that are not written yet
	lacks   bool           // statements of a snapshot are missing

	writing sync.Mutex // one writer at a time
}

var (
	statements = []byte("statements")
	names      = []byte("names")
	ends       = []byte("ends")
	meta       = []byte("meta")
	completeAt = []byte("complete")
)

// New returns the history in a member's directory, which Open opens.
func New(dir string) *Store { return &Store{dir: dir} }

// Open opens the file. It is called once, before all other methods but Add.
func (s *Store) Open() error {
	db, err := bbolt.Open(filepath.Join(s.dir, "history.db"), 0o600, &bbolt.Options{
		Timeout: 2 * time.Second, FreelistType: bbolt.FreelistMapType, NoFreelistSync: true,
	})
	if err != nil {
		return fmt.Errorf("open the history: %w", err)
	}

	err = db.Update(func(tx *bbolt.Tx) error {
		var errs []error

		for _, name := range [][]byte{statements, names, ends, meta} {
			_, err := tx.CreateBucketIfNotExists(name)
			errs = append(errs, err)
		}

		return errors.Join(errs...)
	})
	if err != nil {
		return errors.Join(fmt.Errorf("open the history: %w", err), db.Close())
	}

	s.db = db

	return nil
}

// Close writes what is waiting, and closes the store, if it was opened.
func (s *Store) Close() error {
	if s.db == nil {
		return nil
	}

	return errors.Join(s.Flush(), s.db.Close())
}

// Add takes statements that were appended to the ledger. It doesn't wait for the disk.
func (s *Store) Add(stated []state.Stated) {
	if len(stated) == 0 {
		return
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = append(s.waiting, stated...)
}

// take returns what is waiting to be written.
func (s *Store) take() []state.Stated {
	s.mu.Lock()
	defer s.mu.Unlock()

	waiting := s.waiting
	s.waiting = nil

	return waiting
}

// putBack has statements wait again, before those that were added since.
func (s *Store) putBack(stated []state.Stated) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = append(stated, s.waiting...)
}

// Flush writes all that was added. What fails is written by the next Flush.
func (s *Store) Flush() error {
	s.writing.Lock()
	defer s.writing.Unlock()

	waiting := s.take()
	if len(waiting) == 0 {
		return nil
	}

	records := make([]Record, len(waiting))
	for i := range waiting {
		st := &waiting[i]
		records[i] = Record{RID: st.RID, Epoch: st.Epoch, Index: st.Index, At: st.At, H: st.H, Agent: st.Agent(),
			Kept: st.Keep()}
	}

	if err := s.put(records); err != nil {
		s.putBack(waiting)
		return fmt.Errorf("write the history: %w", err)
	}

	return nil
}

func (s *Store) put(records []Record) error {
	return s.db.Update(func(tx *bbolt.Tx) error {
		for i := range records {
			if err := put(tx, &records[i]); err != nil {
				return err
			}
		}

		return nil
	})
}

// Merge adds records of another member that are not here.
func (s *Store) Merge(records []Record) error {
	s.writing.Lock()
	defer s.writing.Unlock()

	return s.put(records)
}

// put writes a record unless it is there, and notes from when on the one before it counts as
// followed.
func put(tx *bbolt.Tx, r *Record) error {
	all := tx.Bucket(statements)

	key := keyOf(r.RID, r.Epoch, r.Index)
	if all.Get(key) != nil {
		return nil
	}

	value, err := state.Marshal(r)
	if err != nil {
		return err
	}

	if err := all.Put(key, value); err != nil {
		return err
	}

	if r.Agent != "" {
		if err := tx.Bucket(names).Put(nameKey(r.Agent, r.Epoch, r.Index), []byte(r.RID.String())); err != nil {
			return err
		}
	}

	return noteEnds(tx, key, r)
}

// noteEnds notes the time from which on the contents of a record and of its neighbours are no longer
// those of a registration.
func noteEnds(tx *bbolt.Tx, key []byte, r *Record) error {
	c := tx.Bucket(statements).Cursor()

	c.Seek(key)

	if before, _ := c.Prev(); bytes.HasPrefix(before, ridKey(r.RID)) {
		if err := tx.Bucket(ends).Put(endKey(r.At, before), nil); err != nil {
			return err
		}
	}

	c.Seek(key)

	switch after, value := c.Next(); {
	case bytes.HasPrefix(after, ridKey(r.RID)): // records of another member come in any order
		var next Record
		if err := state.Unmarshal(value, &next); err != nil {
			return err
		}

		return tx.Bucket(ends).Put(endKey(next.At, key), nil)
	case r.Agent == "":
		return tx.Bucket(ends).Put(endKey(r.At, key), nil)
	}

	return nil
}

func ridKey(rid directory.RID) []byte { return []byte(rid.String() + "/") }

func keyOf(rid directory.RID, epoch, index uint64) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(ridKey(rid), epoch), index)
}

func nameKey(agent string, epoch, index uint64) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64([]byte(agent+"\x00"), epoch), index)
}

func endKey(at int64, key []byte) []byte {
	return append(binary.BigEndian.AppendUint64(nil, uint64(at)), key...)
}

// Of returns the records of a registration, the first statement first.
func (s *Store) Of(rid directory.RID) (records []Record, err error) {
	if err := s.Flush(); err != nil {
		return nil, err
	}

	err = s.db.View(func(tx *bbolt.Tx) error {
		c, prefix := tx.Bucket(statements).Cursor(), ridKey(rid)
		for key, value := c.Seek(prefix); bytes.HasPrefix(key, prefix); key, value = c.Next() {
			var r Record
			if err := state.Unmarshal(value, &r); err != nil {
				return err
			}

			records = append(records, r)
		}

		return nil
	})

	return records, err
}

// Around returns the registrations that had a name before and after another one, as far as known.
func (s *Store) Around(agent string, rid directory.RID) (before, after directory.RID, err error) {
	err = s.db.View(func(tx *bbolt.Tx) error {
		c, prefix, seen := tx.Bucket(names).Cursor(), []byte(agent+"\x00"), false

		for key, value := c.Seek(prefix); bytes.HasPrefix(key, prefix); key, value = c.Next() {
			other, err := directory.ParseRID(string(value))

			switch {
			case err != nil:
				return err
			case other == rid:
				seen = true
			case !seen:
				before = other
			default:
				after = other
				return nil
			}
		}

		return nil
	})

	return before, after, err
}

// Page returns records behind a key, of at most that many bytes together but one at least, and the
// key of the last one; empty at the end.
func (s *Store) Page(behind []byte, most int) (records []Record, last []byte, err error) {
	if err := s.Flush(); err != nil {
		return nil, nil, err
	}

	err = s.db.View(func(tx *bbolt.Tx) error {
		c := tx.Bucket(statements).Cursor()

		key, value := c.Seek(behind)
		if bytes.Equal(key, behind) && key != nil {
			key, value = c.Next()
		}

		for ; key != nil; key, value = c.Next() {
			if most -= len(value); most < 0 && len(records) > 0 {
				return nil
			}

			var r Record
			if err := state.Unmarshal(value, &r); err != nil {
				return err
			}

			records, last = append(records, r), bytes.Clone(key)
		}

		return nil
	})

	return records, last, err
}

// MostPruned is how many records are pruned at once.
const MostPruned = 1000

// Used returns how many bytes of the file are in use.
func (s *Store) Used() (bytes int64) {
	_ = s.db.View(func(tx *bbolt.Tx) error {
		bytes = tx.Size() - int64(s.db.Stats().FreeAlloc)
		return nil
	})

	return bytes
}

// Prune takes the contents from the records whose registrations had others, or had ended, before a
// time; hash and time remain. It returns how many it has pruned: at most MostPruned at once.
func (s *Store) Prune(before time.Time) (pruned int, err error) {
	s.writing.Lock()
	defer s.writing.Unlock()

	err = s.db.Update(func(tx *bbolt.Tx) error {
		all, due := tx.Bucket(statements), tx.Bucket(ends)

		var keys [][]byte

		c := due.Cursor()
		for key, _ := c.First(); key != nil && len(keys) < MostPruned; key, _ = c.Next() {
			if int64(binary.BigEndian.Uint64(key)) >= before.Unix() {
				break
			}

			keys = append(keys, bytes.Clone(key))
		}

		for _, key := range keys {
			if err := prune(all, key[8:]); err != nil {
				return err
			}

			if err := due.Delete(key); err != nil {
				return err
			}
		}

		pruned = len(keys)

		return nil
	})

	return pruned, err
}

func prune(all *bbolt.Bucket, key []byte) error {
	var r Record
	if err := state.Unmarshal(all.Get(key), &r); err != nil {
		return err
	}

	r.Kept = nil

	value, err := state.Marshal(&r)
	if err != nil {
		return err
	}

	return all.Put(key, value)
}

// A Position is how far a domain's ledgers go: an epoch, and the size of its ledger.
type Position struct{ Epoch, Size uint64 }

func (p Position) bytes() []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, p.Epoch), p.Size)
}

// Restored notes that the state is that of a snapshot, in the place of one before it: the zero position
// at a start. If the statements up to it are not here, they are to be copied from other members.
func (s *Store) Restored(before, at Position) error {
	had := before.bytes()

	err := s.db.View(func(tx *bbolt.Tx) error {
		if saved := tx.Bucket(meta).Get(completeAt); bytes.Compare(saved, had) > 0 {
			had = bytes.Clone(saved)
		}

		return nil
	})

	s.setLacks(s.Lacks() || bytes.Compare(had, at.bytes()) < 0)

	return err
}

// Lacks reports whether statements are to be copied from another member.
func (s *Store) Lacks() bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.lacks
}

func (s *Store) setLacks(lacks bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lacks = lacks
}

// Copied notes that all statements are here that other members have.
func (s *Store) Copied() { s.setLacks(false) }

// Saved writes what was added, before a snapshot is written: the log is cut after it.
func (s *Store) Saved(at Position) error {
	if err := s.Flush(); err != nil || s.Lacks() {
		return err
	}

	return s.complete(at.bytes())
}

func (s *Store) complete(at []byte) error {
	s.writing.Lock()
	defer s.writing.Unlock()

	return s.db.Update(func(tx *bbolt.Tx) error { return tx.Bucket(meta).Put(completeAt, at) })
}
