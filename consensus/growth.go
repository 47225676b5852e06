package consensus

import (
	"sync/atomic"
	"time"
)

// A growth is how much of the log a start would apply again: what came after the
// newest snapshot. Raft counts entries, of which one may hold hundreds of
// registrations, or one word.
type growth struct {
	bytes atomic.Int64
	limit atomic.Int64  // from which on there is a new snapshot
	due   chan struct{} // holds one
}

// grow notes an entry that was applied.
func (g *growth) grow(bytes int) {
	if g.bytes.Add(int64(bytes)) >= g.limit.Load() {
		signal(g.due)
	}
}

// snapshotRetry is how long after a snapshot that failed the next one is tried.
const snapshotRetry = 10 * time.Second

// snapshotLoop makes a snapshot whenever the log has grown enough.
func (s *Store) snapshotLoop() {
	for {
		s.growth.limit.Store(s.enough())
		select {
		case <-s.growth.due:
		case <-s.closing.Done():
			return
		}
		if s.growth.bytes.Load() < s.growth.limit.Load() {
			continue // Raft made one meanwhile
		}
		err := s.raft.Snapshot().Error()
		if err == nil || s.closing.Err() != nil {
			continue
		}
		s.log.Warn("cannot make a snapshot; a start takes longer until there is one", "error", err)
		select {
		case <-time.After(snapshotRetry):
		case <-s.closing.Done():
			return
		}
	}
}

// snapshotShare is by how many parts of the newest snapshot's size the log grows at
// least until there is another.
const snapshotShare = 4

// enough is the next snapshot's limit: where the newest one is large, to write
// another costs more than to apply some more log at a start.
func (s *Store) enough() int64 {
	limit := s.cfg.Timing.SnapshotBytes
	if list, err := s.disk.Snapshots.List(); err == nil && len(list) > 0 {
		limit = max(limit, list[0].Size/snapshotShare)
	}
	return limit
}
