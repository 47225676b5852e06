package disk

import (
	"sync"

	"github.com/hashicorp/raft"
)

// A Trail knows the size of the newest entries of the log. Raft keeps a number of entries
// behind a snapshot, for followers that are not far behind; their sizes differ a
// thousandfold, so the number is computed from a bound in bytes at every snapshot.
type Trail struct {
	mu    sync.Mutex
	last  uint64
	sizes []entrySize // of the entry of index i at i % len
	most  int         // bytes of the largest entry
}

type entrySize struct {
	index uint64
	bytes int
}

func newTrail(entries uint64, most int) *Trail {
	return &Trail{sizes: make([]entrySize, entries), most: most}
}

// note notes entries that were written.
func (t *Trail) note(entries []*raft.Log) {
	t.mu.Lock()
	defer t.mu.Unlock()

	for _, e := range entries {
		t.sizes[e.Index%uint64(len(t.sizes))] = entrySize{e.Index, len(e.Data)}
		t.last = e.Index
	}
}

// Within returns the number of the newest entries that have at most that many bytes together.
// An entry that was written before this start counts as a full one.
func (t *Trail) Within(bytes int64) (n uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()

	for n < min(t.last, uint64(len(t.sizes))) {
		size := t.sizes[(t.last-n)%uint64(len(t.sizes))]
		if size.index != t.last-n {
			size.bytes = t.most
		}

		if bytes -= int64(size.bytes); bytes < 0 {
			break
		}

		n++
	}

	return n
}
