package disk

import (
	"sync"

	"github.com/hashicorp/raft"
)

// Bounds of the newest log entries that are kept in memory for followers: twice the entries of
// one message to them, and a number of bytes. An entry has up to half a megabyte
// (Options.LargestEntry). Without the second bound, a caller that replaces large documents
// repeatedly would take 64 MiB of every member. A follower that is further behind reads the
// log's files.
const (
	recentEntries = 128
	recentBytes   = 8 << 20
)

// A recentLog is a log with its newest entries in memory.
type recentLog struct {
	raft.LogStore

	mu     sync.RWMutex
	ring   [recentEntries]*raft.Log // those of the indexes from first to last, by index
	first  uint64
	last   uint64 // below first if empty
	weight int    // bytes of all
}

func newRecentLog(store raft.LogStore) *recentLog { return &recentLog{LogStore: store, first: 1} }

// IsMonotonic reports to Raft that the log has no gaps, as raft-wal demands.
func (l *recentLog) IsMonotonic() bool { return true }

// GetLog reads an entry, from memory where it is there.
func (l *recentLog) GetLog(index uint64, entry *raft.Log) error {
	l.mu.RLock()

	if l.first <= index && index <= l.last {
		*entry = *l.ring[index%recentEntries]
		l.mu.RUnlock()

		return nil
	}

	l.mu.RUnlock()

	return l.LogStore.GetLog(index, entry)
}

// StoreLog is StoreLogs of one.
func (l *recentLog) StoreLog(entry *raft.Log) error { return l.StoreLogs([]*raft.Log{entry}) }

// StoreLogs stores entries, and keeps the newest in memory once they are.
func (l *recentLog) StoreLogs(entries []*raft.Log) error {
	if err := l.LogStore.StoreLogs(entries); err != nil {
		return err
	}

	l.mu.Lock()
	defer l.mu.Unlock()

	for _, entry := range entries {
		l.keep(entry)
	}

	return nil
}

// keep keeps an entry in memory, and drops old ones for it. l.mu is held.
func (l *recentLog) keep(entry *raft.Log) {
	if entry.Index != l.last+1 || l.first > l.last {
		l.drop(l.last + 1)
		l.first = entry.Index
		l.last = entry.Index - 1
	}

	if l.last-l.first+1 == recentEntries {
		l.drop(l.first + 1)
	}

	l.last = entry.Index
	l.ring[entry.Index%recentEntries] = entry

	l.weight += weightOf(entry)
	for l.weight > recentBytes && l.first < l.last {
		l.drop(l.first + 1)
	}
}

// drop drops the entries before that index from memory. l.mu is held.
func (l *recentLog) drop(before uint64) {
	for ; l.first < before; l.first++ {
		place := &l.ring[l.first%recentEntries]
		l.weight -= weightOf(*place)
		*place = nil
	}
}

func weightOf(entry *raft.Log) int { return len(entry.Data) + len(entry.Extensions) }

// DeleteRange deletes entries, and keeps none in memory.
func (l *recentLog) DeleteRange(from, to uint64) error {
	l.mu.Lock()
	l.drop(l.last + 1)
	l.mu.Unlock()

	return l.LogStore.DeleteRange(from, to)
}
