package discovery

import (
	"context"
	"sync"
	"time"

	"github.com/roster-mesh/roster/directory"
)

// What a reader sees a part of is found by that part alone: a word that is withheld
// matches nothing, and counts for nothing. So there is another index for each Redaction
// that policy gives readers, of all registrations as that Redaction shows them, made when
// the first reader with it asks. A reader that sees some registrations whole and some
// in part is answered from several, whose candidates are put together by their scores.
// In those of parts, words alone rank.

const (
	// maxParts bounds the sights that there are indexes for.
	maxParts = 4
	// partIdle is how long an index that nobody asks is kept from making room.
	partIdle = time.Minute
)

// WarnParts says that a result lacks what the reader sees a part of.
const WarnParts = "policy shows parts of registrations in too many ways: not everything was searched"

// redactedFinders are a finder's indexes of parts.
type redactedFinders struct {
	mu      sync.Mutex
	all     map[directory.Redaction]*redactedFinder
	leaving []*Finder // made room, and were following the view when they were to be closed
	closed  bool
}

type redactedFinder struct {
	finder *Finder
	used   time.Time
}

// as returns the finder of a sight; nil where there is no room for one more.
func (f *Finder) as(sight directory.Redaction) *Finder {
	f.parts.mu.Lock()
	defer f.parts.mu.Unlock()

	now := time.Now()
	if p, ok := f.parts.all[sight]; ok {
		p.used = now
		return p.finder
	}

	if f.parts.closed || !f.parts.room(now) {
		return nil
	}

	cfg := f.cfg
	cfg.sight, cfg.Embedder = sight, nil

	finder, err := New(cfg)
	if err != nil {
		return nil // of a configuration that was taken for f
	}

	if f.parts.all == nil {
		f.parts.all = map[directory.Redaction]*redactedFinder{}
	}

	f.parts.all[sight] = &redactedFinder{finder, now}

	return finder
}

// room makes room for one more index, where one was not asked for a while. The caller
// holds mu, so it waits for nobody: an index that follows the view just now, which may
// take long, is closed behind that.
func (ps *redactedFinders) room(now time.Time) bool {
	if len(ps.all) < maxParts {
		return true
	}

	var oldest directory.Redaction

	at := now
	for sight, p := range ps.all {
		if p.used.Before(at) {
			oldest, at = sight, p.used
		}
	}

	if now.Sub(at) < partIdle {
		return false
	}

	if gone := ps.all[oldest].finder; gone.feed.TryLock() {
		gone.watcher.Close()
		gone.feed.Unlock()
	} else {
		ps.leaving = append(ps.leaving, gone)
	}

	delete(ps.all, oldest)

	return true
}

// take returns those that are to be closed, for whoever does it without mu.
func (ps *redactedFinders) take() []*Finder {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	gone := ps.leaving
	ps.leaving = nil

	return gone
}

func (ps *redactedFinders) close() {
	ps.mu.Lock()

	ps.closed = true
	for _, p := range ps.all {
		ps.leaving = append(ps.leaving, p.finder)
	}

	ps.all = nil
	ps.mu.Unlock()

	for _, gone := range ps.take() {
		gone.Close()
	}
}

// followParts has the indexes of parts follow the view.
func (f *Finder) followParts(ctx context.Context) error {
	for _, gone := range f.parts.take() {
		gone.Close()
	}

	f.parts.mu.Lock()

	var all []*Finder
	for _, p := range f.parts.all {
		all = append(all, p.finder)
	}

	f.parts.mu.Unlock()

	for _, part := range all {
		if err := part.CatchUp(ctx); err != nil {
			return err
		}

		if err := part.classify(ctx); err != nil {
			return err
		}
	}

	return nil
}
