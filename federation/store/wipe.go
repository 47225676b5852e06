package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"
)

// What a peer takes back is to be gone from disk too (MESH-025), and bbolt only
// forgets: a page that it wrote anew elsewhere, or freed, keeps its bytes until it
// is used again. So whoever deletes a record says so, and a loop overwrites the
// free pages that may still have something on them.

// A wiper overwrites the free pages of a store's file.
type wiper struct {
	dirty chan struct{} // has room for one: something was deleted
	file  *os.File
}

// wake has the loop look at the file again.
func (w *wiper) wake() {
	select {
	case w.dirty <- struct{}{}:
	default:
	}
}

// wipePages is how many pages are written at once, and wipeStep how many are looked at
// while no change is made: 16 MiB of them, of pages of 4 KiB.
const (
	wipePages = 64
	wipeStep  = 4096
)

// Wipe overwrites what is free and has something on it, in steps, and calls rest after
// each with the time that it took; where rest says no, it ends. When it has returned
// without an error, whatever was deleted before it began is gone from the file: a page
// with it on was free by then, and is overwritten here, or since by what took its place.
func (s *Store) Wipe(sync bool, rest func(time.Duration) bool) error {
	for id := 2; id > 0; { // the first two have no contents
		began := time.Now()

		err := s.Disk.Change(func() (err error) {
			id, err = s.WipeSome(id, wipeStep)
			return err
		})
		if err != nil {
			return err
		}

		if id > 0 && !rest(time.Since(began)) {
			return nil
		}
	}

	if !sync {
		return nil
	}

	return s.Disk.Read(s.wiper.file.Sync) // not a change: others go on meanwhile
}

// WipeSome looks at so many pages from id on, and returns where to go on; 0 for nowhere.
// Readers that began before the last change still use pages that are free by now, so
// it waits for them; later ones don't, and no change is made meanwhile. Should the
// machine stop half way, the free pages are the same by the last commit, which is on
// disk. The transaction is for the lock that comes with it, and changes nothing.
func (s *Store) WipeSome(id, pages int) (next int, err error) {
	tx, err := s.db.Begin(true)
	if err != nil {
		return 0, err
	}

	defer func() { err = errors.Join(err, tx.Rollback()) }()
	s.readers.Lock()
	s.readers.Unlock() //lint:ignore SA2001 only waits

	run := freeRun{file: s.wiper.file, size: s.db.Info().PageSize}
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

// A freeRun is free pages in a row that are to be emptied.
type freeRun struct {
	file     *os.File
	size     int
	first, n int
}

func (r *freeRun) add(id int) error {
	if r.n == wipePages || r.first+r.n != id {
		if err := r.empty(); err != nil {
			return err
		}

		r.first = id
	}

	r.n++

	return nil
}

// empty writes nothing over what is empty already.
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

// The pace of wiping: at most once a second, and a twentieth of the time, so that of a
// file of a GiB it takes some seconds.
const (
	wipeEvery = time.Second
	wipeShare = 20
)

// Wiping wipes after deletions until ctx ends, and once at its beginning for those
// that a stop left behind.
func (s *Store) Wiping(ctx context.Context, sync bool, log *slog.Logger) {
	rest := func(took time.Duration) bool { return pause(ctx, wipeShare*took) }
	for {
		if err := s.Wipe(sync, rest); errors.Is(err, ErrStalled) {
			s.wiper.wake()
		} else if err != nil {
			log.Error("overwriting deleted records on disk failed", "err", err)
		}

		if !pause(ctx, wipeEvery) || !await(ctx, s.wiper.dirty) || !await(ctx, s.Disk.Answers()) {
			return
		}
	}
}

// Wake has the loop that wipes look again.
func (s *Store) Wake() { s.wiper.wake() }

// pause returns false if ctx ends first.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()

	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// await returns false if ctx ends first.
func await(ctx context.Context, c <-chan struct{}) bool {
	select {
	case <-ctx.Done():
		return false
	case <-c:
		return true
	}
}

// openWiper opens the file for itself: bbolt keeps its own to itself.
func openWiper(path string) (wiper, error) {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return wiper{}, fmt.Errorf("federation: %w", err)
	}

	return wiper{dirty: make(chan struct{}, 1), file: file}, nil
}

func (s *Store) Close() error { return errors.Join(s.wiper.file.Close(), s.db.Close()) }
