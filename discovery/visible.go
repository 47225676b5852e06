package discovery

import (
	"slices"
	"sync"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/index"
	"github.com/roster-mesh/roster/discovery/postings"
)

// A Reader is the identity on whose behalf a query is answered. Registrations that it may
// not see have no influence on its answers: no candidate, no count, no document frequency.
type Reader struct {
	// Key identifies readers with the same permissions. The results of Sees are cached under
	// it while Config.Generation stays the same.
	Key string
	// Sees returns policy's decision whether an entry is visible, and its redaction. It must
	// return the same for entries of one class (Config.Class). Nil shows everything.
	Sees func(*directory.Entry) (directory.Redaction, bool)
}

// maxReaders bounds the readers whose sets are cached.
const maxReaders = 64

// readers caches the visible sets of readers. Its lock comes after the finder's.
type readers struct {
	mu   sync.Mutex
	sets []*visibleSet // the last used first
}

// sees reports whether the reader sees an entry with exactly that redaction.
func (r *Reader) sees(entry *directory.Entry, sight directory.Redaction) bool {
	if r.Sees == nil {
		return sight.ShowsAll()
	}

	s, ok := r.Sees(entry)

	return ok && s == sight
}

// A visibleSet is the set of slots that a reader sees. Once it is up to date, it does not
// change while the finder's lock is held for reading.
type visibleSet struct {
	key        string
	generation uint64 // of the decisions; another generation gets another set

	mu      sync.Mutex
	decided []decision // by class
	slots   postings.Bitset
	count   int
	version uint64 // of the index
	made    bool
	others  map[directory.Redaction]bool // by which the reader sees other slots
}

// A decision is policy's answer about a class.
type decision struct {
	round uint32 // of the class; 0 if undecided
	yes   bool
}

// of returns the set of a reader, up to date. The caller holds the finder's lock.
func (r *readers) of(terms *termIndex, view *index.View, reader Reader) *visibleSet {
	if reader.Sees == nil {
		return &visibleSet{slots: terms.alive, count: terms.count}
	}

	generation := terms.cfg.Generation() // before Sees is asked
	s := r.take(reader.Key, generation)
	s.update(terms, view, reader)

	return s
}

// update decides about the slots that changed since the last update.
func (s *visibleSet) update(terms *termIndex, view *index.View, reader Reader) {
	s.mu.Lock()
	defer s.mu.Unlock()

	switch behind := terms.version - s.version; {
	case !s.made, behind > changesKept:
		// The remembered changes don't cover the gap, so every slot is looked at.
		s.slots, s.count = s.slots[:0], 0
		for n := range terms.slots.Len() {
			s.look(terms, view, reader, n)
		}
	default:
		for v := s.version; v < terms.version; v++ {
			s.look(terms, view, reader, terms.changes[v%changesKept])
		}
	}

	s.version, s.made = terms.version, true
}

// forget drops all sets, when the index is replaced.
func (r *readers) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sets = nil
}

// take returns the set of a key and generation, and marks it as the most recently used. A
// set of another generation is left to its present users.
func (r *readers) take(key string, generation uint64) *visibleSet {
	r.mu.Lock()
	defer r.mu.Unlock()

	i := slices.IndexFunc(r.sets, func(s *visibleSet) bool { return s.key == key })
	if i < 0 {
		if len(r.sets) == maxReaders {
			r.sets = r.sets[:maxReaders-1]
		}

		r.sets = slices.Insert(r.sets, 0, &visibleSet{key: key, generation: generation})

		return r.sets[0]
	}

	s := r.sets[i]
	if s.generation != generation {
		s = &visibleSet{key: key, generation: generation}
	}

	copy(r.sets[1:i+1], r.sets[:i])
	r.sets[0] = s

	return s
}

// look adds a slot to the set or removes it.
func (s *visibleSet) look(x *termIndex, view *index.View, reader Reader, n uint32) {
	had, has := s.slots.Has(n), x.alive.Has(n) && s.sees(x, view, reader, n)
	switch {
	case has && !had:
		s.slots.Set(n)
		s.count++
	case had && !has:
		s.slots.Unset(n)
		s.count--
	}
}

func (s *visibleSet) sees(terms *termIndex, view *index.View, reader Reader, n uint32) bool {
	slot := terms.slots.At(n)

	class := terms.classes.At(slot.class)
	if class.generation != s.generation {
		e, ok := view.Peek(terms.origins[slot.origin], slot.rid)
		return ok && s.judge(terms, reader, e) // the entry's present class is unknown
	}

	round := class.round
	for int(slot.class) >= len(s.decided) {
		s.decided = append(s.decided, decision{})
	}

	if d := s.decided[slot.class]; d.round == round {
		return d.yes
	}

	entry, ok := view.Peek(terms.origins[slot.origin], slot.rid)
	if !ok || terms.classOf(entry) != class.className {
		return false // it has changed since: the feed brings the change
	}

	yes := s.judge(terms, reader, entry)
	s.decided[slot.class] = decision{round, yes}

	return yes
}

// judge asks whether the reader sees an entry with the finder's redaction, and notes other
// redactions.
func (s *visibleSet) judge(terms *termIndex, reader Reader, e *directory.Entry) bool {
	sight, ok := reader.Sees(e)
	if ok && sight != terms.cfg.redaction {
		if s.others == nil {
			s.others = map[directory.Redaction]bool{}
		}

		s.others[sight] = true
	}

	return ok && sight == terms.cfg.redaction
}

// all reports whether the reader sees every registration.
func (s *visibleSet) all(x *termIndex) bool { return s.count == x.count }

// redactions returns the redactions of the registrations that are not in the set, in a fixed
// order.
func (s *visibleSet) redactions() []directory.Redaction {
	var all []directory.Redaction
	for sight := range s.others {
		all = append(all, sight)
	}

	slices.SortFunc(all, directory.Redaction.Compare)

	return all
}
