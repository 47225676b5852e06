package replica

import (
	"container/heap"
	"iter"
	"maps"
	"math"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/federation/protocol"
)

// The pace of asking again for records that no holder gave.
const (
	MissingPause     = time.Second
	MissingPauseMost = time.Minute
)

// Due returns up to limit missing records of one stream to request now. If there are none,
// it returns the time until the next are due.
func (o *Origin) Due(limit int) (*Stream, []signed.Digest, time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()

	now, next := time.Now(), MissingPauseMost
	clock := o.Shown.Index.Clock.Now().Unix()

	for _, st := range []*Stream{o.Mesh.Cur, o.Mesh.next, o.Private.Cur,
		o.Private.next} {
		if st == nil {
			continue
		}

		digests, expired := st.Missing.dueBy(now, clock, limit)
		if expired {
			// An expired record doesn't delay the position any more.
			o.reached.Store(nil)
		}

		if len(digests) > 0 {
			return st, digests, 0
		}

		next = min(next, st.Missing.untilDue(now))
	}

	return nil, nil, next
}

// Postpone delays the next request for records that no holder gave, longer each time.
func (o *Origin) Postpone(st *Stream, asked []signed.Digest) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.reached.Store(nil)

	// A record whose request failed doesn't delay the position any more, so the cached one is outdated.
	for _, digest := range asked {
		st.Missing.postpone(digest, time.Now())
	}
}

// MissingRecords are the entries of a stream whose records aren't here. A peer chooses how many
// there are, up to a part of its quota, and readers wait for the lock that guards them. So each
// record is found without looking at the others.
type MissingRecords struct {
	byRID   map[directory.RID]*missingRecord
	due     missingQueue // by the time of the next request
	untried missingQueue // those that no request has failed for, by revision
}

// A missingRecord is an entry whose record isn't here.
type missingRecord struct {
	digest   signed.Digest
	failures int
	next     time.Time // not requested before
	places   [2]int    // in due and in untried; absent if it isn't there
}

// Indices of missingRecord.places.
const (
	byTime = iota
	byRevision
)

// absent is the place of a record that is not in a queue.
const absent = -1

func newMissingRecords() *MissingRecords {
	return &MissingRecords{
		byRID:   map[directory.RID]*missingRecord{},
		due:     missingQueue{by: byTime},
		untried: missingQueue{by: byRevision},
	}
}

// Len returns how many records are missing.
func (m *MissingRecords) Len() int { return len(m.byRID) }

// All returns the registrations whose records are missing.
func (m *MissingRecords) All() iter.Seq[directory.RID] { return maps.Keys(m.byRID) }

// Has reports whether the record of a registration is missing.
func (m *MissingRecords) Has(rid directory.RID) bool { return m.byRID[rid] != nil }

// add notes that the record of a digest is missing. It is to be requested at once, unless the
// digest renews another one, whose record was requested without success.
func (m *MissingRecords) add(digest signed.Digest) {
	old := m.byRID[digest.RID]
	m.remove(digest.RID)

	record := &missingRecord{digest: digest, places: [2]int{absent, absent}}
	if old != nil && protocol.NameOf(old.digest) == protocol.NameOf(digest) {
		record.failures = old.failures
		record.next = old.next
	}

	m.byRID[digest.RID] = record
	heap.Push(&m.due, record)

	// Only untried records delay the position.
	if record.failures == 0 {
		heap.Push(&m.untried, record)
	}
}

// remove forgets a registration, if its record is missing.
func (m *MissingRecords) remove(rid directory.RID) {
	record := m.byRID[rid]
	if record == nil {
		return
	}

	delete(m.byRID, rid)
	m.due.remove(record)
	m.untried.remove(record)
}

// dueBy returns up to limit records to request now. A record that has expired by clock is not
// requested any more, because no holder gives it, and no reader waits for it. expired reports
// that there was one.
func (m *MissingRecords) dueBy(now time.Time, clock int64, limit int) (digests []signed.Digest, expired bool) {
	var due []*missingRecord

	for len(m.due.records) > 0 && len(due) < limit && !m.due.records[0].next.After(now) {
		record := m.due.records[0]

		// The next record comes to the top. Records that are due are put back below, and expired ones are not.
		m.due.remove(record)

		if clock >= record.digest.Deadline {
			expired = true

			// It counts as a failed request, so that a renewal of the entry doesn't delay readers again.
			record.failures = max(record.failures, 1)
			m.untried.remove(record)

			continue
		}

		due = append(due, record)
		digests = append(digests, record.digest)
	}

	for _, record := range due {
		heap.Push(&m.due, record)
	}

	return digests, expired
}

// untilDue returns the time until the next record is due, at most MissingPauseMost.
func (m *MissingRecords) untilDue(now time.Time) time.Duration {
	if len(m.due.records) == 0 {
		return MissingPauseMost
	}

	return min(MissingPauseMost, max(0, m.due.records[0].next.Sub(now)))
}

// postpone notes that a request for a record failed. Nothing changes if the record has arrived
// or changed meanwhile.
func (m *MissingRecords) postpone(digest signed.Digest, now time.Time) {
	record := m.byRID[digest.RID]
	if record == nil || protocol.NameOf(record.digest) != protocol.NameOf(digest) {
		return
	}

	record.next = now.Add(min(MissingPause<<min(record.failures, 6), MissingPauseMost))
	record.failures++

	m.untried.remove(record)

	if place := record.places[byTime]; place != absent {
		heap.Fix(&m.due, place)
	}
}

// complete returns the revision up to which every record is here, or was requested without
// success.
func (m *MissingRecords) complete() uint64 {
	if len(m.untried.records) == 0 {
		return math.MaxUint64
	}

	return m.untried.records[0].digest.Revision - 1
}

// A missingQueue is a heap of missing records, by time or by revision.
type missingQueue struct {
	by      int
	records []*missingRecord
}

// remove takes a record out of the queue, if it is there.
func (q *missingQueue) remove(record *missingRecord) {
	if place := record.places[q.by]; place != absent {
		heap.Remove(q, place)
	}
}

// Len implements heap.Interface.
func (q *missingQueue) Len() int { return len(q.records) }

// Less implements heap.Interface.
func (q *missingQueue) Less(i, j int) bool {
	if q.by == byTime {
		return q.records[i].next.Before(q.records[j].next)
	}

	return q.records[i].digest.Revision < q.records[j].digest.Revision
}

// Swap implements heap.Interface.
func (q *missingQueue) Swap(i, j int) {
	q.records[i], q.records[j] = q.records[j], q.records[i]
	q.records[i].places[q.by] = i
	q.records[j].places[q.by] = j
}

// Push implements heap.Interface.
func (q *missingQueue) Push(record any) {
	missing := record.(*missingRecord)
	missing.places[q.by] = len(q.records)
	q.records = append(q.records, missing)
}

// Pop implements heap.Interface.
func (q *missingQueue) Pop() any {
	last := len(q.records) - 1
	record := q.records[last]
	record.places[q.by] = absent
	q.records[last] = nil
	q.records = q.records[:last]

	return record
}
