package discovery

import (
	"slices"
	"sync"

	"github.com/roster-mesh/roster/directory"
)

// A Reader is on whose behalf a query is answered. What it may not see
// influences nothing in its answers: no candidate, no count, no document
// frequency.
type Reader struct {
	// Key names those who see the same: an identity. What Sees said of a class is
	// remembered under it while Config.Generation stays the same.
	Key string
	// Sees is policy's word; nil lets everything be seen. It answers the same for
	// entries of one class (Config.Class).
	Sees func(*directory.Entry) bool
}

// maxReaders bounds the readers whose sets are remembered.
const maxReaders = 64

// readers remembers what readers see. Its lock comes after the finder's.
type readers struct {
	mu   sync.Mutex
	sets []*seen // the last used first
}

// A seen is the set of slots that a reader sees. While the finder's lock is held
// for reading it doesn't change once it is up to date.
type seen struct {
	key string

	mu         sync.Mutex
	decided    []decision // by class
	slots      bitset
	count      int
	version    uint64 // of the index
	generation uint64 // of what was decided
	made       bool
}

// A decision is what policy said about a class.
type decision struct {
	round uint32 // of the class; 0 where there is none
	yes   bool
}

// of returns the set of a reader, up to date. The caller holds the finder's lock.
func (r *readers) of(x *index, view *directory.View, reader Reader) *seen {
	if reader.Sees == nil {
		return &seen{slots: x.alive, count: x.count}
	}
	generation := x.cfg.Generation() // before Sees is asked
	s := r.take(reader.Key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.generation != generation {
		s.decided, s.generation, s.made = nil, generation, false
	}
	switch behind := x.version - s.version; {
	case !s.made, behind > changesKept:
		s.slots, s.count = s.slots[:0], 0
		for n := range x.slots.Len() {
			s.look(x, view, reader, n)
		}
	default:
		for v := s.version; v < x.version; v++ {
			s.look(x, view, reader, x.changes[v%changesKept])
		}
	}
	s.version, s.made = x.version, true
	return s
}

// forget forgets all sets: the index is another one.
func (r *readers) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sets = nil
}

// take returns the set of that key, which is now the last used.
func (r *readers) take(key string) *seen {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.IndexFunc(r.sets, func(s *seen) bool { return s.key == key })
	if i < 0 {
		if len(r.sets) == maxReaders {
			r.sets = r.sets[:maxReaders-1]
		}
		r.sets = slices.Insert(r.sets, 0, &seen{key: key})
		return r.sets[0]
	}
	s := r.sets[i]
	copy(r.sets[1:i+1], r.sets[:i])
	r.sets[0] = s
	return s
}

// look puts a slot into the set, or out of it.
func (s *seen) look(x *index, view *directory.View, reader Reader, n uint32) {
	had, has := s.slots.has(n), x.alive.has(n) && s.sees(x, view, reader, n)
	switch {
	case has && !had:
		s.slots.set(n)
		s.count++
	case had && !has:
		s.slots.unset(n)
		s.count--
	}
}

func (s *seen) sees(x *index, view *directory.View, reader Reader, n uint32) bool {
	slot := x.slots.At(n)
	class := x.classes.At(slot.class)
	if class.generation != s.generation {
		e, ok := view.Peek(x.origins[slot.origin], slot.rid)
		return ok && reader.Sees(e) // nobody knows yet what it is like now
	}
	round := class.round
	for int(slot.class) >= len(s.decided) {
		s.decided = append(s.decided, decision{})
	}
	if d := s.decided[slot.class]; d.round == round {
		return d.yes
	}
	e, ok := view.Peek(x.origins[slot.origin], slot.rid)
	if !ok || x.classOf(e) != class.className {
		return false // it has changed since: the feed will tell
	}
	yes := reader.Sees(e)
	s.decided[slot.class] = decision{round, yes}
	return yes
}

// all reports whether the reader sees everything.
func (s *seen) all(x *index) bool { return s.count == x.count }
