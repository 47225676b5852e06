package store

import (
	"bytes"
	"errors"

	"github.com/roster-mesh/roster/directory"
	"golang.org/x/sync/errgroup"
)

// A StoredEntry entry is one whose record is on disk.
type StoredEntry struct {
	RID    directory.RID
	Entry  Entry
	Record *Record
}

// FillBatch bounds the entries that are read at a time while a stream is loaded.
const FillBatch = 1000

// Scan reads a whole stream in batches and fills Places. It passes the entries with a record
// that pick selects to use, and reads a batch ahead meanwhile. Neither function is called by
// two goroutines at once. The stream must not change meanwhile.
func (s *Store) Scan(id StreamID, pick func(*Tx, directory.RID, *Entry) bool, use func([]StoredEntry)) error {
	batches := make(chan []StoredEntry)

	var reading errgroup.Group
	reading.Go(func() error {
		defer close(batches)

		for after, more := []byte(nil), true; more; {
			var (
				batch []StoredEntry
				err   error
			)

			batch, after, more, err = s.scanSome(id, after, pick)

			// The entries that were read before an error are used too.
			batches <- batch

			if err != nil {
				return err
			}
		}

		return nil
	})

	for batch := range batches {
		use(batch)
	}

	return reading.Wait()
}

// scanSome reads the batch of Scan after a key.
func (s *Store) scanSome(id StreamID, after []byte, pick func(*Tx, directory.RID, *Entry) bool) (batch []StoredEntry,
	last []byte, more bool, err error) {
	moves := make([]move, 0, FillBatch)

	last, more, err = s.EntriesAfter(id, after, FillBatch, func(t *Tx, rid directory.RID, held *Entry) error {
		picked := pick(t, rid, held)
		if held.Record != RecordHeld {
			return nil
		}

		// Every stored record gets its place, because those that pick leaves out are served as well.
		moves = append(moves, move{h: held.H, place: held.Place})

		if !picked {
			return nil
		}

		e, err := t.StoredEntryOf(rid, held)
		batch = append(batch, e)

		return err
	})

	s.Places.note(id, moves)

	return batch, last, more, err
}

// EntriesAfter reads up to limit entries of a stream after the key after. It returns the key
// of the last one, and whether there are more. The limit matters because growing or wiping
// the file waits for readers, and the pages of all origins wait for that.
func (s *Store) EntriesAfter(id StreamID, after []byte, limit int,
	see func(*Tx, directory.RID, *Entry) error) (last []byte, more bool, err error) {
	err = s.Read(id, func(t *Tx) error {
		cursor := t.Entries.Cursor()

		// The entry at after may have been removed since; Seek then finds the one behind it.
		k, data := cursor.Seek(after)
		if k != nil && bytes.Equal(k, after) {
			k, data = cursor.Next()
		}

		for n := 0; k != nil; k, data = cursor.Next() {
			if more = n == limit; more {
				return nil
			}

			rid, h, err := readHeld(k, data)
			if err == nil {
				err = see(t, rid, h)
			}

			if err != nil {
				return err
			}

			n++
			after = bytes.Clone(k)
		}

		return nil
	})

	return after, more && err == nil, err
}

// UsageOf returns the usage of one entry.
func (t *Tx) UsageOf(held *Entry) (usage Usage) {
	switch held.Record {
	case RecordHeld:
		usage.Records, usage.Bytes = 1, t.Size(held)
	}

	usage.Count(held, 1)

	return usage
}

// StoredEntry reads an entry with its record; the zero value if there is none.
func (t *Tx) StoredEntry(rid directory.RID) (StoredEntry, error) {
	held, err := t.Get(rid)
	if err != nil || held == nil {
		return StoredEntry{}, err
	}

	return t.StoredEntryOf(rid, held)
}

func readHeld(k, data []byte) (directory.RID, *Entry, error) {
	held := new(Entry)

	rid, err := directory.ParseRID(string(k))
	if err = errors.Join(err, Unmarshal(data, held)); err != nil {
		return rid, nil, ErrStore
	}

	return rid, held, nil
}

func (t *Tx) StoredEntryOf(rid directory.RID, h *Entry) (stored StoredEntry, err error) {
	stored = StoredEntry{RID: rid, Entry: *h}
	stored.Record, err = t.Record(h)

	return stored, err
}
