package history

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"go.etcd.io/bbolt"

	"github.com/roster-mesh/roster/consensus/state"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/wipe"
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

// erasePages is how many pages of the file are overwritten while writers wait: 16 MiB with pages of 4 KiB.
const erasePages = 4096

// Erase takes the contents and names from the records of registrations, so that no byte of them is in the
// file when it returns. Hashes and times remain. If it fails, it is to be repeated.
func (s *Store) Erase(rids []directory.RID) error {
	err := s.eraseRecords(rids)

	for id := wipe.FirstPage; err == nil && id > 0; {
		id, err = s.wipePages(id)
	}

	if err == nil {
		err = s.pages.Sync()
	}

	if err != nil {
		return fmt.Errorf("erase from the history: %w", err)
	}

	return nil
}

func (s *Store) eraseRecords(rids []directory.RID) error {
	s.writing.Lock()
	defer s.writing.Unlock()

	// Statements that wait in memory have contents, too.
	if err := s.flush(); err != nil {
		return err
	}

	return s.update(func(tx *bbolt.Tx) error {
		for _, rid := range rids {
			if err := erase(tx, rid); err != nil {
				return err
			}
		}

		return nil
	})
}

func (s *Store) wipePages(id int) (next int, err error) {
	s.writing.Lock()
	defer s.writing.Unlock()

	return s.pages.Pages(id, erasePages)
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
