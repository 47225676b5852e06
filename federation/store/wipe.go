package store

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/roster-mesh/roster/directory/wipe"
)

// Records that a peer withdraws must disappear from disk too (MESH-025). So each deletion wakes a loop that
// overwrites free pages.

// A wiper overwrites the free pages of a store's file.
type wiper struct {
	dirty chan struct{} // has an item if something was deleted
	file  *wipe.File
}

// wake makes the loop scan the file again.
func (w *wiper) wake() {
	select {
	case w.dirty <- struct{}{}:
	default:
	}
}

// wipeStep is the number of pages scanned while changes wait: 16 MiB with pages of 4 KiB.
const wipeStep = 4096

// Wipe overwrites the free pages that aren't empty, in steps. After each step but the last
// it calls rest with the duration of the step, and ends if rest returns false. After a
// complete run, all data deleted before its beginning is gone from the file. A page with
// such data was free by then; Wipe overwrote it, or a later change has reused it.
func (s *Store) Wipe(sync bool, rest func(time.Duration) bool) error {
	for id := wipe.FirstPage; id > 0; {
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
// returns the next page to scan, or 0 at the end of the file.
func (s *Store) WipeSome(id, pages int) (next int, err error) { return s.wiper.file.Pages(id, pages) }

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
