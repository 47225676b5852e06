package index

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/roster-mesh/roster/directory"
)

// Bounds on what is kept of the past for those who watch a view.
const (
	// logSize is how many changes a watcher may be behind.
	logSize = 1 << 14
	// logBytes bounds the entries that nothing but the log holds any more, in bytes:
	// whoever replaces large documents again and again could else fill a gigabyte.
	logBytes = 16 << 20
	// logIdle is how long changes are still kept when nobody watches any more, so
	// that a watcher who lost its connection finds its place again.
	logIdle = 5 * time.Minute
	// logPace is how often watchers are woken at most, so that a busy writer shares
	// the machine with few of them: they find several changes at once.
	logPace = 5 * time.Millisecond
)

// A change is one step of a view: the entry of one rid comes, changes or goes.
// Entries that are past their deadline do not count: an old one that has expired
// is nil, and so is a new one that is dead already.
type change struct {
	old, new *directory.Entry // not both nil
	expired  bool             // of one that goes: at its deadline
}

// entry returns the one that the change is about.
func (c *change) entry() *directory.Entry {
	if c.new != nil {
		return c.new
	}

	return c.old
}

// weight is about how many bytes the log alone holds for the change: those of the entry
// that went. The one that came is in the index, or went by a later change.
func (c *change) weight() int {
	if c.old == nil {
		return 0
	}

	return c.old.HeldBytes()
}

// A changeLog is the one order of all changes of a view, expiries among them: a
// ring of the last ones. A writer pays for one atomic load where nobody watches,
// else for one entry of the ring and at most one goroutine that is woken,
// however many watch.
type changeLog struct {
	id     uint64        // random: positions of another log mean nothing in this one
	period atomic.Uint64 // counts the times that changes began to be kept; 0 while they are not

	changed     chan struct{} // holds one token where something was written since
	expiryToken chan struct{} // holds one token: who has it minds the deadlines

	mu       sync.Mutex
	ring     []change // of position p at p % logSize; nil while nothing is kept
	first    uint64   // the oldest position in ring
	next     uint64   // of the next change
	weight   int      // of the changes in ring
	periods  uint64   // highest that period was
	watchers int
	idle     time.Time     // since when there are none
	wake     chan struct{} // closed by the first watcher who hears the bell
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

// subscribe sees to it that changes are kept, for one more watcher.
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

// unsubscribe is the reverse of keep; changes are kept for a while yet.
func (l *changeLog) unsubscribe() {
	l.mu.Lock()
	defer l.mu.Unlock()

	if l.watchers--; l.watchers == 0 {
		l.idle = time.Now()
	}
}

// append writes a change. The caller holds the lock of the index that changes.
func (l *changeLog) append(change change) {
	l.mu.Lock()
	defer l.mu.Unlock()

	switch {
	case l.ring == nil:
		return
	case l.watchers == 0 && time.Since(l.idle) > logIdle:
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

	select {
	case l.changed <- struct{}{}:
	default:
	}
}

// dropOldest forgets the oldest change. A watcher who hasn't come to it has lost its place.
// l.mu is held.
func (l *changeLog) dropOldest() {
	oldest := &l.ring[l.first%logSize]
	l.weight -= oldest.weight()
	*oldest = change{}
	l.first++
}

// position is that of the next change. Under the lock of an index it is exact for
// that index: what it holds now is what the changes before position made of it.
func (l *changeLog) position() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()

	return l.next
}

// contains reports whether all changes from a position on are here.
func (l *changeLog) contains(from uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()

	return l.ring != nil && l.first <= from && from <= l.next
}

// read copies the changes of [from, to) into buf, as many as it holds. It is
// false where the first ones of them are gone.
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

// wakeAfter returns a channel that is closed once somebody has heard the bell, or
// nil where there are changes from a position on already.
func (l *changeLog) wakeAfter(from uint64) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()

	if l.next > from {
		return nil
	}

	return l.wake
}

// wakeAll wakes all other watchers, at the pace that is kept unless ctx ends. Whoever
// hears the bell does it, so that a writer does not.
func (l *changeLog) wakeAll(ctx context.Context) {
	l.mu.Lock()
	early := logPace - time.Since(l.lastWake)
	l.mu.Unlock()

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

// A ResumeToken is a place in one node's order of changes. The zero value is none.
// Marks of another node, or of one that has started again, are recognised as
// such.
type ResumeToken struct{ log, next uint64 }

// IsZero reports whether m is no place.
func (m ResumeToken) IsZero() bool { return m == ResumeToken{} }

// Before reports whether m is a place before o in the same node's order.
func (m ResumeToken) Before(o ResumeToken) bool { return m.log == o.log && m.next < o.next }

// String gives the text form: two numbers in base 36 with a dot between.
func (m ResumeToken) String() string {
	return strconv.FormatUint(m.log, 36) + "." + strconv.FormatUint(m.next, 36)
}

// ParseResumeToken is the reverse of String; any other text gives the zero value.
func ParseResumeToken(s string) ResumeToken {
	log, next, _ := strings.Cut(s, ".")
	a, err := strconv.ParseUint(log, 36, 64)

	b, err2 := strconv.ParseUint(next, 36, 64)
	if m := (ResumeToken{a, b}); err == nil && err2 == nil && m.String() == s {
		return m
	}

	return ResumeToken{}
}

// sameForWatchers reports whether two entries of one rid say the same but for what a
// refresh, a renewal or a new signature changes: deadlines and how it came here.
func sameForWatchers(entry, b *directory.Entry) bool {
	return entry == b || entry.Statement == b.Statement && entry.UpdatedAt == b.UpdatedAt &&
		entry.RegisteredAt == b.RegisteredAt &&
		entry.Agent == b.Agent && entry.Owner == b.Owner && entry.Redacted == b.Redacted &&
		entry.Visibility.Mesh == b.Visibility.Mesh && slices.Equal(entry.Visibility.Peers, b.Visibility.Peers) &&
		(entry.Document == b.Document || // as after a refresh, for which no document at rest is read
			entry.Document.Kind() == b.Document.Kind() && bytes.Equal(entry.Document.Bytes(), b.Document.Bytes()))
}
