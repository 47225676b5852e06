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

// Records that a peer withdraws must disappear from disk too (MESH-025). bbolt doesn't
// overwrite deleted data: a freed or copied page keeps its bytes until it is used again. So
// each deletion wakes a loop that overwrites free pages.

// A wiper overwrites the free pages of a store's file.
type wiper struct {
	dirty chan struct{} // has an item if something was deleted
	file  *os.File
}

// wake makes the loop scan the file again.
func (w *wiper) wake() {
	select {
	case w.dirty <- struct{}{}:
	default:
	}
}

// wipePages is the number of pages written at once. wipeStep is the number of pages scanned
// while changes wait: 16 MiB with pages of 4 KiB.
const (
	wipePages = 64
	wipeStep  = 4096
)

// Wipe overwrites the free pages that aren't empty, in steps. After each step but the last
// it calls rest with the duration of the step, and ends if rest returns false. After a
// complete run, all data deleted before its beginning is gone from the file. A page with
// such data was free by then; Wipe overwrote it, or a later change has reused it.
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

	return s.Disk.Read(s.wiper.file.Sync) // not a change, so other operations continue
}

// WipeSome scans the given number of pages from id on and overwrites the free ones. It
// returns the next page to scan, or 0 at the end of the file. It first waits for readers,
// because those that began before the last change may still use pages that are now free.
// The write transaction changes nothing; it only excludes changes. If the machine stops
// half-way, the file is intact, because the last commit on disk has the same free pages.
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

// A freeRun is a run of adjacent free pages to overwrite.
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

// The pace of wiping: at most one run a second, and at most a twentieth of the time. A file
// of a GiB takes some seconds.
const (
	wipeEvery = time.Second
	wipeShare = 20
)

// Wiping wipes after deletions until ctx ends. It also wipes once at its beginning, because
// the last stop may have left deleted records in the file.
func (s *Store) Wiping(ctx context.Context, sync bool, log *slog.Logger) {
	rest := func(took time.Duration) bool { return pause(ctx, wipeShare*took) }
	for {
		if err := s.Wipe(sync, rest); errors.Is(err, ErrStalled) {
			// The run was cut short, so another one follows once the disk answers.
			s.wiper.wake()
		} else if err != nil {
			log.Error("overwriting deleted records on disk failed", "err", err)
		}

		if !pause(ctx, wipeEvery) || !await(ctx, s.wiper.dirty) || !await(ctx, s.Disk.Answers()) {
			return
		}
	}
}

// Wake makes Wiping scan the file again.
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

// openWiper opens the file a second time, because bbolt doesn't export its file.
func openWiper(path string) (wiper, error) {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return wiper{}, fmt.Errorf("federation: %w", err)
	}

	return wiper{dirty: make(chan struct{}, 1), file: file}, nil
}
