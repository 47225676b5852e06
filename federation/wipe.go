package federation

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"go.etcd.io/bbolt"
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

// wipePages is how many pages are written at once.
const wipePages = 64

// wipe overwrites what is free and has something on it. Readers that began before
// the last change still use pages that are free by now, so it waits for them; later
// ones don't, and no change is made meanwhile. Should the machine stop half way, the
// free pages are the same by the last commit, which is on disk.
func (s *store) wipe(sync bool) error {
	return s.db.Update(func(tx *bbolt.Tx) error {
		s.readers.Lock()
		s.readers.Unlock() //nolint:staticcheck // only waits
		run := freeRun{file: s.wiper.file, size: s.db.Info().PageSize}
		for id := 2; ; id++ { // the first two have no contents
			page, err := tx.Page(id)
			switch {
			case err != nil:
				return err
			case page == nil:
				if err := run.empty(); err != nil || !sync {
					return err
				}
				return s.wiper.file.Sync()
			case page.Type == "free":
				err = run.add(id)
			}
			if err != nil {
				return err
			}
		}
	})
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
	b := make([]byte, r.n*r.size)
	r.n = 0
	at := int64(r.first) * int64(r.size)
	if _, err := r.file.ReadAt(b, at); err != nil {
		return err
	}
	if bytes.Count(b, []byte{0}) == len(b) {
		return nil
	}
	clear(b)
	_, err := r.file.WriteAt(b, at)
	return err
}

// The pace of wiping: at most once a second, and a twentieth of the time.
const (
	wipeEvery = time.Second
	wipeShare = 20
)

// wiping wipes after deletions until ctx ends, and once at its beginning for those
// that a stop left behind.
func (m *Mesh) wiping(ctx context.Context) {
	for {
		began := time.Now()
		if err := m.store.wipe(!m.cfg.noSync); err != nil {
			m.cfg.Logger.Error("can't overwrite what peers took back", "error", err)
		}
		if !wait(ctx, nil, max(wipeEvery, wipeShare*time.Since(began))) || !wait(ctx, m.store.wiper.dirty, 0) {
			return
		}
	}
}

// openWiper opens the file for itself: bbolt keeps its own to itself.
func openWiper(path string) (wiper, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return wiper{}, fmt.Errorf("federation: %w", err)
	}
	return wiper{dirty: make(chan struct{}, 1), file: f}, nil
}

func (s *store) close() error { return errors.Join(s.wiper.file.Close(), s.db.Close()) }
