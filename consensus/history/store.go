package history

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"go.etcd.io/bbolt"

	"github.com/roster-mesh/roster/consensus/state"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/wipe"
)

// A Record is one statement as it is kept.
type Record struct {
	RID   directory.RID  `cbor:"1,keyasint"`
	Epoch uint64         `cbor:"2,keyasint"`
	Index uint64         `cbor:"3,keyasint"` // of its entry in the ledger of the epoch
	At    int64          `cbor:"4,keyasint"` // Unix seconds
	H     directory.Hash `cbor:"5,keyasint"`
	Agent string         `cbor:"6,keyasint"`
	Until int64          `cbor:"7,keyasint"` // Unix seconds: when another one followed, or the end
	// Kept is the result of state.Keep for the statement; nil once it was pruned.
	Kept []byte `cbor:"8,keyasint,omitempty"`
}

// maxWaiting bounds the contents that wait in memory while the disk takes no writes.
const maxWaiting = 64 << 20

// A Store is the history on one member's disk. Added statements are written within a second, in
// the order in which they came. It is safe for concurrent use.
type Store struct {
	path string

	opened sync.RWMutex // held for reading during each transaction
	db     *bbolt.DB    // nil before Open
	pages  *wipe.File

	mu      sync.Mutex
	waiting []state.Past // that are not written yet
	bytes   int          // of their contents
	lacks   bool         // statements are missing that other members have
	dropped bool         // statements are missing that Raft's log has

	writing sync.Mutex // one writer at a time
}

var (
	statements = []byte("statements")
	names      = []byte("names")
	due        = []byte("due")
	meta       = []byte("meta")
	completeAt = []byte("complete")
)

// New returns the history in a member's directory, which Open opens.
func New(dir string) *Store { return &Store{path: filepath.Join(dir, "history.db")} }

// Open opens the file. It is called once, before all other methods but Add.
func (s *Store) Open() error {
	s.opened.Lock()
	defer s.opened.Unlock()

	db, err := bbolt.Open(s.path, 0o600, &bbolt.Options{
		Timeout: 2 * time.Second, FreelistType: bbolt.FreelistMapType, NoFreelistSync: true,
	})
	if err != nil {
		return fmt.Errorf("open the history: %w", err)
	}

	err = db.Update(func(tx *bbolt.Tx) error {
		var errs []error

		for _, name := range [][]byte{statements, names, due, meta} {
			_, err := tx.CreateBucketIfNotExists(name)
			errs = append(errs, err)
		}

		return errors.Join(errs...)
	})
	if err == nil {
		s.pages, err = wipe.Open(db, s.awaitReaders)
	}

	if err != nil {
		return errors.Join(fmt.Errorf("open the history: %w", err), db.Close())
	}

	s.db = db

	return nil
}

// awaitReaders waits for the transactions that are under way. The caller holds writing.
func (s *Store) awaitReaders() {
	s.opened.Lock()
	s.opened.Unlock() //lint:ignore SA2001 only waits
}

// view calls read with the file as it is.
func (s *Store) view(read func(*bbolt.Tx) error) error {
	s.opened.RLock()
	defer s.opened.RUnlock()

	return s.db.View(read)
}

// update calls change with the file, and writes it. The caller holds writing.
func (s *Store) update(change func(*bbolt.Tx) error) error {
	s.opened.RLock()
	defer s.opened.RUnlock()

	return s.db.Update(change)
}

// Close writes the waiting statements, and closes the store, if it was opened.
func (s *Store) Close() error {
	if !s.isOpen() {
		return nil
	}

	err := s.Flush()

	s.opened.Lock()
	defer s.opened.Unlock()

	return errors.Join(err, s.pages.Close(), s.db.Close())
}

func (s *Store) isOpen() bool {
	s.opened.RLock()
	defer s.opened.RUnlock()

	return s.db != nil
}

// Add takes statements that have ended. It waits for the disk only if too much waits in memory, as when many
// large registrations end at once. If the disk fails, statements are dropped: they are in Raft's log, which is
// not cut until they are in the history.
func (s *Store) Add(past []state.Past) {
	for i := range past {
		if s.add(&past[i]) {
			continue
		}

		// A disk that has failed already would hold up each change.
		_, dropped := s.missing()
		if !dropped && s.isOpen() && s.Flush() == nil && s.add(&past[i]) {
			continue
		}

		s.drop()

		return
	}
}

// add has a statement wait to be written, and reports false if too much waits already.
func (s *Store) add(past *state.Past) bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.bytes >= maxWaiting {
		return false
	}

	s.waiting = append(s.waiting, *past)
	s.bytes += past.Size()

	return true
}

// drop notes that statements were dropped.
func (s *Store) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lacks, s.dropped = true, true
}

// take returns the statements that wait to be written.
func (s *Store) take() (waiting []state.Past, bytes int) {
	s.mu.Lock()
	defer s.mu.Unlock()

	waiting, bytes = s.waiting, s.bytes
	s.waiting, s.bytes = nil, 0

	return waiting, bytes
}

// putBack has statements wait again, before those that were added since.
func (s *Store) putBack(past []state.Past, bytes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = append(past, s.waiting...)
	s.bytes += bytes
}

// Flush writes all waiting statements. A failed write is repeated by the next Flush.
func (s *Store) Flush() error {
	s.writing.Lock()
	defer s.writing.Unlock()

	return s.flush()
}

// flush is Flush by a caller that holds writing.
func (s *Store) flush() error {
	waiting, bytes := s.take()
	if len(waiting) == 0 {
		return nil
	}

	records := make([]Record, len(waiting))
	for i := range waiting {
		records[i] = RecordOf(&waiting[i])
	}

	if err := s.put(records); err != nil {
		s.putBack(waiting, bytes)
		return fmt.Errorf("write the history: %w", err)
	}

	return nil
}

// RecordOf returns the record of a statement with its contents.
func RecordOf(p *state.Past) Record {
	return Record{RID: p.RID, Epoch: p.Epoch, Index: p.Index, At: p.At, H: p.H, Agent: p.Agent, Until: p.Until,
		Kept: p.Keep()}
}

func (s *Store) put(records []Record) error {
	return s.update(func(tx *bbolt.Tx) error {
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

// put writes a record unless it is there.
func put(tx *bbolt.Tx, r *Record) error {
	all, key := tx.Bucket(statements), keyOf(r.RID, r.Epoch, r.Index)

	// A record whose contents were pruned or erased must not get them back.
	if all.Get(key) != nil {
		return nil
	}

	value, err := state.Marshal(r)
	if err == nil {
		err = all.Put(key, value)
	}

	if err == nil {
		err = putName(tx.Bucket(names), r)
	}

	if err == nil && r.Kept != nil {
		err = tx.Bucket(due).Put(dueKey(r.Until, key), nil)
	}

	return err
}

// putName notes the last statement of a registration under its name.
func putName(all *bbolt.Bucket, r *Record) error {
	if r.Agent == "" { // it was erased
		return nil
	}

	key, at := nameKey(r.Agent, r.RID), Position{r.Epoch, r.Index}.bytes()
	if bytes.Compare(all.Get(key), at) >= 0 {
		return nil
	}

	return all.Put(key, at)
}

func ridKey(rid directory.RID) []byte { return []byte(rid.String() + "/") }

func keyOf(rid directory.RID, epoch, index uint64) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(ridKey(rid), epoch), index)
}

func nameKey(agent string, rid directory.RID) []byte { return []byte(agent + "\x00" + rid.String()) }

func dueKey(until int64, key []byte) []byte {
	return append(binary.BigEndian.AppendUint64(nil, uint64(until)), key...)
}

// The bounds of one answer of Of: an owner may replace a large document all day.
const (
	MostRecords  = 1000
	mostContents = 4 << 20 // bytes, exceeded by at most one record
)

// Of returns the last records of a registration before a place, as many as its bounds allow, the first statement
// first; earlier says that there are others before them. A place has an epoch and an index; the zero place is behind
// all others.
func (s *Store) Of(rid directory.RID, before directory.Position) (records []Record, earlier bool, err error) {
	if err := s.Flush(); err != nil {
		return nil, false, err
	}

	if before == (directory.Position{}) {
		before = directory.Position{Epoch: math.MaxUint64, Revision: math.MaxUint64}
	}

	err = s.view(func(tx *bbolt.Tx) error {
		c, prefix := tx.Bucket(statements).Cursor(), ridKey(rid)

		last := c.Prev
		if key, _ := c.Seek(keyOf(rid, before.Epoch, before.Revision)); key == nil {
			last = c.Last
		}

		key, value := last()

		for size := 0; bytes.HasPrefix(key, prefix); key, value = c.Prev() {
			if len(records) == MostRecords || size >= mostContents {
				earlier = true
				break
			}

			var r Record
			if err := state.Unmarshal(value, &r); err != nil {
				return err
			}

			records, size = append(records, r), size+len(value)
		}

		slices.Reverse(records)

		return nil
	})

	return records, earlier, err
}

// Named returns the registrations that had a name, the first one first.
func (s *Store) Named(agent string) (rids []directory.RID, err error) {
	if err := s.Flush(); err != nil {
		return nil, err
	}

	type named struct {
		rid directory.RID
		at  []byte
	}

	var all []named

	err = s.view(func(tx *bbolt.Tx) error {
		c, prefix := tx.Bucket(names).Cursor(), []byte(agent+"\x00")
		for key, at := c.Seek(prefix); bytes.HasPrefix(key, prefix); key, at = c.Next() {
			rid, err := directory.ParseRID(string(key[len(prefix):]))
			if err != nil {
				return err
			}

			all = append(all, named{rid, bytes.Clone(at)})
		}

		return nil
	})

	// The keys are in the order of the rids, and the caller wants that of the statements.
	slices.SortFunc(all, func(a, b named) int { return bytes.Compare(a.at, b.at) })

	for _, n := range all {
		rids = append(rids, n.rid)
	}

	return rids, err
}

// Page returns records behind a key, of at most that many bytes together but one at least, and the
// key of the last one; empty at the end.
func (s *Store) Page(behind []byte, most int) (records []Record, last []byte, err error) {
	if err := s.Flush(); err != nil {
		return nil, nil, err
	}

	err = s.view(func(tx *bbolt.Tx) error {
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
	_ = s.view(func(tx *bbolt.Tx) error {
		bytes = tx.Size() - int64(tx.DB().Stats().FreeAlloc)
		return nil
	})

	return bytes
}

// Prune takes the contents from the records of statements that had ended before a time; hash and time
// remain. It returns how many it has pruned: at most MostPruned at once.
func (s *Store) Prune(before time.Time) (pruned int, err error) {
	s.writing.Lock()
	defer s.writing.Unlock()

	err = s.update(func(tx *bbolt.Tx) error {
		all, queue := tx.Bucket(statements), tx.Bucket(due)

		// Entries are deleted below, because a change of the bucket invalidates the cursor.
		var keys [][]byte

		c := queue.Cursor()
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

			if err := queue.Delete(key); err != nil {
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

	err := s.view(func(tx *bbolt.Tx) error {
		if saved := tx.Bucket(meta).Get(completeAt); bytes.Compare(saved, had) > 0 {
			had = bytes.Clone(saved)
		}

		return nil
	})

	// The snapshot has the effect of the statements between the two positions, and not their contents.
	s.setLacks(s.Lacks() || bytes.Compare(had, at.bytes()) < 0)

	return err
}

// Lacks reports whether statements are to be copied from another member.
func (s *Store) Lacks() bool {
	lacks, _ := s.missing()

	return lacks
}

func (s *Store) setLacks(lacks bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lacks = lacks
}

// Copied notes that this store has the statements of all other members. whole says that one of them lacks
// no statement.
func (s *Store) Copied(whole bool) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.dropped = s.dropped && !whole
	s.lacks = s.dropped
}

// errDropped says why Raft's log is kept.
var errDropped = errors.New("statements are missing in the history that only the log has; free space on the disk, " +
	"and restart this node")

// Saved writes the waiting statements before a snapshot is written, because the log is cut after it.
func (s *Store) Saved(at Position) error {
	if err := s.Flush(); err != nil {
		return err
	}

	switch lacks, dropped := s.missing(); {
	case dropped:
		return errDropped
	case lacks:
		// The position would stand for statements that are still to be copied.
		return nil
	}

	return s.complete(at.bytes())
}

func (s *Store) missing() (lacks, dropped bool) {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.lacks, s.dropped
}

func (s *Store) complete(at []byte) error {
	s.writing.Lock()
	defer s.writing.Unlock()

	return s.update(func(tx *bbolt.Tx) error { return tx.Bucket(meta).Put(completeAt, at) })
}
