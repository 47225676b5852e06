package history

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"go.etcd.io/bbolt"

	"github.com/roster-mesh/roster/consensus/state"
	"github.com/roster-mesh/roster/directory"
)

var erasedUpTo = []byte("erased")

// Erased returns the revision up to which the contents of erased registrations are gone from this disk.
func (s *Store) Erased() (revision uint64, err error) {
	err = s.view(func(tx *bbolt.Tx) error {
		if noted := tx.Bucket(meta).Get(erasedUpTo); noted != nil {
			revision = binary.BigEndian.Uint64(noted)
		}

		return nil
	})

	return revision, err
}

// NoteErased notes that revision.
func (s *Store) NoteErased(revision uint64) error {
	s.writing.Lock()
	defer s.writing.Unlock()

	return s.update(func(tx *bbolt.Tx) error {
		return tx.Bucket(meta).Put(erasedUpTo, binary.BigEndian.AppendUint64(nil, revision))
	})
}

// Erase takes the contents and names from the records of registrations, so that no byte of them is in the
// file: pages that are free keep theirs, so the file is written anew. Hashes and times remain.
func (s *Store) Erase(rids []directory.RID) error {
	s.writing.Lock()
	defer s.writing.Unlock()

	// Statements that wait in memory have contents, too.
	err := s.flush()
	if err == nil {
		err = s.update(func(tx *bbolt.Tx) error {
			for _, rid := range rids {
				if err := erase(tx, rid); err != nil {
					return err
				}
			}

			return nil
		})
	}

	if err == nil {
		err = s.rewrite()
	}

	if err != nil {
		return fmt.Errorf("erase from the history: %w", err)
	}

	return nil
}

func erase(tx *bbolt.Tx, rid directory.RID) error {
	all, prefix := tx.Bucket(statements), ridKey(rid)

	var records []Record

	// The records are collected first, because a change of the bucket invalidates the cursor.
	c := all.Cursor()
	for key, value := c.Seek(prefix); bytes.HasPrefix(key, prefix); key, value = c.Next() {
		var r Record
		if err := state.Unmarshal(value, &r); err != nil {
			return err
		}

		records = append(records, r)
	}

	for i := range records {
		r, key := &records[i], keyOf(rid, records[i].Epoch, records[i].Index)

		err := errors.Join(tx.Bucket(due).Delete(dueKey(r.Until, key)), tx.Bucket(names).Delete(nameKey(r.Agent, rid)))
		if err != nil {
			return err
		}

		r.Agent, r.Kept = "", nil

		value, err := state.Marshal(r)
		if err == nil {
			err = all.Put(key, value)
		}

		if err != nil {
			return err
		}
	}

	return nil
}

// rewriteBytes bounds a transaction of a rewrite.
const rewriteBytes = 4 << 20

// rewrite puts a copy of the file in its place. Readers wait while the two change places.
func (s *Store) rewrite() error {
	next := s.path + ".tmp"

	// A process that ended in between may have left its copy.
	if err := os.Remove(next); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}

	copied, err := openFile(next)
	if err != nil {
		return err
	}

	if err := errors.Join(s.copyTo(copied), copied.Close()); err != nil {
		return errors.Join(err, os.Remove(next))
	}

	// The caller holds writing, so no statement has come since the copy was made.
	s.opened.Lock()
	defer s.opened.Unlock()

	// The directory is synced, because a crash might bring the former file back, with its contents.
	err = errors.Join(s.db.Close(), os.Rename(next, s.path), syncDir(filepath.Dir(s.path)))

	// If the rename has failed, the former file is opened again: the store goes on with it.
	db, opening := openFile(s.path)
	if opening != nil {
		return errors.Join(err, opening)
	}

	s.db = db

	return err
}

func (s *Store) copyTo(copied *bbolt.DB) error {
	s.opened.RLock()
	defer s.opened.RUnlock()

	return errors.Join(bbolt.Compact(copied, s.db, rewriteBytes), copied.Sync())
}

func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}

	return errors.Join(dir.Sync(), dir.Close())
}
