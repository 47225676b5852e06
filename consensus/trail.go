package consensus

import (
	"sync"

	"github.com/hashicorp/raft"
)

// A trail knows how large the newest entries of the log are. Raft keeps a number of
// entries behind a snapshot, for followers that are not far behind, and an entry may be
// a word or half a megabyte: so the number is made anew of the bytes that it may be, at
// every snapshot.
type trail struct {
	mu    sync.Mutex
	last  uint64
	sizes []entrySize // of the entry of index i at i % len
}

type entrySize struct {
	index uint64
	bytes int
}

func newTrail(entries uint64) *trail { return &trail{sizes: make([]entrySize, entries)} }

// note notes entries that were written.
func (t *trail) note(entries []*raft.Log) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range entries {
		t.sizes[e.Index%uint64(len(t.sizes))] = entrySize{e.Index, len(e.Data)}
		t.last = e.Index
	}
}

// within returns how many of the newest entries have so many bytes at most. One that
// was written before this start counts as a full one.
func (t *trail) within(bytes int64) (n uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for n < min(t.last, uint64(len(t.sizes))) {
		size := t.sizes[(t.last-n)%uint64(len(t.sizes))]
		if size.index != t.last-n {
			size.bytes = maxBatchBytes
		}
		if bytes -= int64(size.bytes); bytes < 0 {
			break
		}
		n++
	}
	return n
}

// shorten has Raft keep no more of the log behind the next snapshot than comes between
// two of them.
func (s *Store) shorten() {
	r := s.running.Load()
	if r == nil {
		return // it starts, and writes no snapshot yet
	}
	c := r.ReloadableConfig()
	c.TrailingLogs = s.disk.trail.within(s.growth.limit.Load())
	if err := r.ReloadConfig(c); err != nil {
		s.log.Warn("the log may be longer than it should", "error", err)
	}
}
