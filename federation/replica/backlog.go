package replica

import (
	"time"

	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/federation/protocol"
)

// A backlog knows which records of an origin's streams are missing.
type backlog struct{ streams *streams }

// The pace of asking again for records that no holder gave.
const (
	MissingPause     = time.Second
	MissingPauseMost = time.Minute
)

// Due returns up to limit missing records of one stream to request now. If there are none,
// it returns the time until the next are due.
func (bl *backlog) Due(limit int) (*Stream, []signed.Digest, time.Duration) {
	bl.streams.mu.Lock()
	defer bl.streams.mu.Unlock()
	now := time.Now()
	next := MissingPauseMost

	clock := bl.streams.Shown.Index.Clock.Now().Unix()
	for _, st := range []*Stream{bl.streams.Pair.Mesh.Cur, bl.streams.Pair.Mesh.next, bl.streams.Pair.Private.Cur,
		bl.streams.Pair.Private.next} {
		if st == nil {
			continue
		}

		var ds []signed.Digest
		for _, w := range st.Missing {
			if clock >= w.digest.Deadline { // expired: no holder gives the record, and no reader waits
				bl.streams.Reached.Store(nil)
				w.tries = max(w.tries, 1)
			} else if pause := w.next.Sub(now); pause > 0 {
				next = min(next, pause)
			} else if ds = append(ds, w.digest); len(ds) == limit {
				break
			}
		}

		if len(ds) > 0 {
			return st, ds, 0
		}
	}

	return nil, nil, next
}

// Postpone delays the next request for records that no holder gave, longer each time.
func (bl *backlog) Postpone(st *Stream, asked []signed.Digest) {
	bl.streams.mu.Lock()
	defer bl.streams.mu.Unlock()
	bl.streams.Reached.Store(nil)

	for _, d := range asked {
		if w := st.Missing[d.RID]; w != nil && protocol.NameOf(w.digest) == protocol.NameOf(d) {
			w.next = time.Now().Add(min(MissingPause<<min(w.tries, 6), MissingPauseMost))
			w.tries++
		}
	}
}
