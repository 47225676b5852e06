// Package wipe overwrites the free pages of a bbolt file. bbolt doesn't overwrite deleted data: a page that
// is freed or copied keeps its bytes until it is used again.
package wipe

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"go.etcd.io/bbolt"
)

// FirstPage is the first page that may be free: the two before it have no contents.
const FirstPage = 2

// A File is a bbolt file whose free pages are overwritten.
type File struct {
	db   *bbolt.DB
	file *os.File
	idle func()
}

// Open returns the file of an open database. It opens the file a second time, because bbolt doesn't export
// its own. idle waits for the read transactions that are under way.
func Open(db *bbolt.DB, idle func()) (*File, error) {
	file, err := os.OpenFile(db.Path(), os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("open the file to overwrite its free pages: %w", err)
	}

	return &File{db: db, file: file, idle: idle}, nil
}

// Pages scans the given number of pages from id on and overwrites the free ones. It
// returns the next page to scan, or 0 at the end of the file. It first waits for readers,
// because those that began before the last change may still use pages that are now free.
// The write transaction changes nothing; it only excludes changes. If the machine stops
// half-way, the file is intact, because the last commit on disk has the same free pages.
func (f *File) Pages(id, pages int) (next int, err error) {
	tx, err := f.db.Begin(true)
	if err != nil {
		return 0, err
	}

	defer func() { err = errors.Join(err, tx.Rollback()) }()
	f.idle()

	run := freeRun{file: f.file, size: f.db.Info().PageSize}
	for end := id + pages; id < end; id++ {
		page, err := tx.Page(id)
		if err != nil {
			return 0, err
		}

		if page == nil {
			return 0, run.empty()
		}

		if page.Type == "free" {
			if err := run.add(id); err != nil {
				return 0, err
			}
		}
	}

	return id, run.empty()
}

// Sync has the overwritten pages on disk when it returns.
func (f *File) Sync() error { return f.file.Sync() }

// Close closes the file. The database remains open.
func (f *File) Close() error { return f.file.Close() }

// maxRun is the number of pages that are overwritten at once.
const maxRun = 64

// A freeRun is a run of adjacent free pages to overwrite.
type freeRun struct {
	file     *os.File
	size     int
	first, n int
}

func (r *freeRun) add(id int) error {
	if r.n == maxRun || r.first+r.n != id {
		if err := r.empty(); err != nil {
			return err
		}

		r.first = id
	}

	r.n++

	return nil
}

// empty overwrites the run with zeros, unless it contains only zeros.
func (r *freeRun) empty() error {
	data := make([]byte, r.n*r.size)
	r.n = 0

	at := int64(r.first) * int64(r.size)
	if _, err := r.file.ReadAt(data, at); err != nil {
		return err
	}

	if bytes.Count(data, []byte{0}) == len(data) {
		return nil
	}

	clear(data)
	_, err := r.file.WriteAt(data, at)

	return err
}
