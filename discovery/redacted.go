package discovery

import (
	"context"
	"sync"
	"time"

	"github.com/roster-mesh/roster/directory"
)

// A registration that a reader sees in part is found by that part alone: a word that is
// withheld matches nothing and counts for nothing. So there is another index for each Redaction
// that policy gives readers, of all registrations as that Redaction shows them. It is made when
// the first reader with it queries. A reader that sees some registrations whole and some in
// part is answered from several indexes, whose candidates are merged by their scores. Indexes
// of parts rank by words alone.

const (
	// maxParts bounds the sights that there are indexes for.
	maxParts = 4
	// partIdle is the time after its last query for which an index keeps its place.
	partIdle = time.Minute
)

// WarnParts warns that registrations which the reader sees redacted were not searched.
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

// as returns the finder of a redaction, or nil if there is no room for one more.
func (f *Finder) as(sight directory.Redaction) *Finder { return f.parts.finder(f.cfg, sight) }

// finder returns the finder of a redaction, which it makes by cfg if there is none.
func (ps *redactedFinders) finder(cfg Config, sight directory.Redaction) *Finder {
	ps.mu.Lock()
	defer ps.mu.Unlock()

	now := time.Now()
	if p, ok := ps.all[sight]; ok {
		p.used = now
		return p.finder
	}

	if ps.closed || !ps.room(now) {
		return nil
	}

	cfg.redaction, cfg.Embedder = sight, nil

	finder, err := New(cfg)
	if err != nil {
		return nil // of a configuration that was taken before
	}

	if ps.all == nil {
		ps.all = map[directory.Redaction]*redactedFinder{}
	}

	ps.all[sight] = &redactedFinder{finder, now}

	return finder
}

// finders returns the finders of all redactions.
func (ps *redactedFinders) finders() (all []*Finder) {
	ps.mu.Lock()
	defer ps.mu.Unlock()

	for _, p := range ps.all {
		all = append(all, p.finder)
	}

	return all
}

// room makes room for one more index, by dropping one that was not used for a while. The
// caller holds mu; an index that is following the view just now is closed later, since that
// may take long.
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

// take returns the finders to close; the caller closes them without holding mu.
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

	// Close waits for an index that follows the view, so the lock is free meanwhile.
	for _, gone := range ps.take() {
		gone.Close()
	}
}

// followParts lets the indexes of redactions follow the view.
func (f *Finder) followParts(ctx context.Context) error {
	for _, gone := range f.parts.take() {
		gone.Close()
	}

	for _, part := range f.parts.finders() {
		if err := part.CatchUp(ctx); err != nil {
			return err
		}

		if err := part.classify(ctx); err != nil {
			return err
		}
	}

	return nil
}
