package index

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/roster-mesh/roster/directory"
)

// Bounds on the past changes that are kept for a view's watchers.
const (
	// logSize is how many changes a watcher may be behind.
	logSize = 1 << 14
	// logBytes bounds the replaced entries that only the log still holds, in bytes. Without
	// it, frequent replacements of large documents could fill a gigabyte.
	logBytes = 16 << 20
	// logIdle is how long changes are kept after the last watcher has left, so that a
	// watcher that lost its connection can resume.
	logIdle = 5 * time.Minute
	// logPace is the least time between two wake-ups of watchers. Under many writes they
	// read several changes at once.
	logPace = 5 * time.Millisecond
)

// A change is one step of a view: the entry of one rid is added, replaced or removed. An
// entry past its deadline counts as absent: it is nil, as old and as new.
type change struct {
	old, new *directory.Entry // not both nil
	expired  bool             // of one that goes: at its deadline
}

// entry returns the entry that the change is about.
func (c *change) entry() *directory.Entry {
	if c.new != nil {
		return c.new
	}

	return c.old
}

// weight returns about how many bytes only the log still holds for the change: those of the
// old entry. The new one is in the index, or was replaced by a later change.
func (c *change) weight() int {
	if c.old == nil {
		return 0
	}

	return c.old.HeldBytes()
}

// A changeLog is the total order of all changes of a view, expiries included: a ring of the
// latest ones. A writer pays for one atomic load while there are no watchers, and otherwise
// for one slot of the ring and at most one wake-up, however many watchers there are.
type changeLog struct {
	id     uint64        // random: positions of another log mean nothing in this one
	period atomic.Uint64 // counts the times that changes began to be kept; 0 while they are not

	changed     chan struct{} // holds one token where something was written since
	expiryToken chan struct{} // holds one token: its holder reports expiries

	mu       sync.Mutex
	ring     []change // of position p at p % logSize; nil while nothing is kept
	first    uint64   // the oldest position in ring
	next     uint64   // of the next change
	weight   int      // of the changes in ring
	periods  uint64   // highest that period was
	watchers int
	idle     time.Time     // since when there are none
	wake     chan struct{} // closed by the first watcher that receives from the bell
	lastWake time.Time     // when it last was
}

func newChangeLog() *changeLog {
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails
	l := &changeLog{id: binary.BigEndian.Uint64(id[:]), changed: make(chan struct{}, 1),
		expiryToken: make(chan struct{}, 1), wake: make(chan struct{})}
	l.expiryToken <- struct{}{}

	return l
}

// subscribe adds a watcher. The log keeps changes while it has one.
func (l *changeLog) subscribe() {
	l.mu.Lock()
	defer l.mu.Unlock()

	l.watchers++
	if l.period.Load() == 0 {
		l.next++ // a position of the last time is no position of this one
		l.first = l.next
		l.ring = make([]change, logSize)
		l.weight = 0
		l.periods++
		l.period.Store(l.periods)
	}
}

// unsubscribe removes a watcher. Changes are kept for logIdle after the last one.
func (l *changeLog) unsubscribe() {
	l.mu.Lock()
	defer l.mu.Unlock()

	if l.watchers--; l.watchers == 0 {
		l.idle = time.Now()
	}
}

// append adds a change. The caller holds the lock of the index that changes.
func (l *changeLog) append(change change) {
	l.mu.Lock()
	defer l.mu.Unlock()

	switch {
	case l.ring == nil:
		return
	case l.watchers == 0 && time.Since(l.idle) > logIdle:
		// The first change after the pause ends the log, so that no timer is needed.
		l.period.Store(0)
		l.ring = nil

		return
	}

	if l.next-l.first == logSize {
		l.dropOldest()
	}

	l.ring[l.next%logSize] = change
	l.next++

	for l.weight += change.weight(); l.weight > logBytes; {
		l.dropOldest()
	}

	// One token wakes one watcher, which wakes the others: a writer never waits.
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

// dropOldest removes the oldest change. A watcher that has not read it can't resume. The
// caller holds l.mu.
func (l *changeLog) dropOldest() {
	oldest := &l.ring[l.first%logSize]
	l.weight -= oldest.weight()
	*oldest = change{}
	l.first++
}

// position returns the position of the next change. Under the lock of an index it is exact
// for that index: its content is the result of the changes before position.
func (l *changeLog) position() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()

	return l.next
}

// contains reports whether the log has all changes from a position on.
func (l *changeLog) contains(from uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()

	return l.ring != nil && l.first <= from && from <= l.next
}

// read copies the changes of [from, to) into buf, up to its capacity. It returns false if the
// first of them has been dropped.
func (l *changeLog) read(buf []change, from, to uint64) (int, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()

	if l.ring == nil || from < l.first {
		return 0, false
	}

	n := 0
	for p := from; p < min(to, l.next) && n < len(buf); p++ {
		buf[n] = l.ring[p%logSize]
		n++
	}

	return n, true
}

// wakeAfter returns a channel that is closed at the next wake-up, or nil if there are
// changes from a position on already.
func (l *changeLog) wakeAfter(from uint64) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()

	if l.next > from {
		return nil
	}

	return l.wake
}

// wakeAll wakes all watchers, at most once in logPace unless ctx ends. A watcher calls it,
// so that writers don't wait.
func (l *changeLog) wakeAll(ctx context.Context) {
	l.mu.Lock()
	early := logPace - time.Since(l.lastWake)
	l.mu.Unlock()

	// The lock is free during the pause, so that writers go on.
	if early > 0 {
		select {
		case <-time.After(early):
		case <-ctx.Done():
		}
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	l.lastWake = time.Now()
	close(l.wake)
	l.wake = make(chan struct{})
}

// A ResumeToken is a position in one node's order of changes. The zero value is no position.
// Tokens of another node, or of an earlier run of this one, are recognised as such.
type ResumeToken struct{ log, next uint64 }

// IsZero reports whether m is no position.
func (m ResumeToken) IsZero() bool { return m == ResumeToken{} }

// Before reports whether m is before o in the same node's order.
func (m ResumeToken) Before(o ResumeToken) bool { return m.log == o.log && m.next < o.next }

// String gives the text form: two numbers in base 36 with a dot between.
func (m ResumeToken) String() string {
	return strconv.FormatUint(m.log, 36) + "." + strconv.FormatUint(m.next, 36)
}

// ParseResumeToken is the reverse of String; a text that is not two such numbers gives the zero value.
func ParseResumeToken(s string) ResumeToken {
	log, next, _ := strings.Cut(s, ".")
	a, err := strconv.ParseUint(log, 36, 64)

	b, err2 := strconv.ParseUint(next, 36, 64)
	if err != nil || err2 != nil {
		return ResumeToken{}
	}

	return ResumeToken{a, b}
}

// sameForWatchers reports whether two entries of one rid differ in nothing that watchers
// see: a refresh, a renewal or a new signature changes deadlines and provenance alone. A statement of another
// domain has more or fewer members for this one when its policy changes.
func sameForWatchers(entry, b *directory.Entry) bool {
	return entry == b || entry.Statement == b.Statement && entry.UpdatedAt == b.UpdatedAt &&
		entry.RegisteredAt == b.RegisteredAt &&
		entry.Agent == b.Agent && entry.Owner == b.Owner && entry.Redacted == b.Redacted &&
		entry.Provenance.Equal(b.Provenance) &&
		(entry.Document == b.Document || // as after a refresh, for which no document at rest is read
			entry.Document.Kind() == b.Document.Kind() && bytes.Equal(entry.Document.Bytes(), b.Document.Bytes()))
}
