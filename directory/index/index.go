package index

import (
	"cmp"
	"iter"
	"slices"
	"sync"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/table"
)

// An Index holds one origin's registrations and finds them by the filters of a lookup. It is
// safe for concurrent use; entries are never modified.
type Index struct {
	Clock directory.Clock // the origin's time (rule T4)

	byRID bool // the order: by rid, or else by Created

	mu       sync.RWMutex
	entries  entryTable
	names    sortedRows // of rows, by their agents' names
	alike    lookalikes
	fields   [fieldCount]postings
	expiries expiryQueue
	terms    [2][]term // room for those of the entry that is put, and of the one before
}

// Fields by which entries are found: names by their order, the rest by postings.
const (
	fieldAll = iota // every entry, with an empty text
	fieldAgent
	fieldCapName
	fieldCapType
	fieldTag
	fieldProtocol
	fieldStatus // except active, which nearly all are
	fieldCount
)

// New returns an empty index in the order of the own domain: by Created.
func New() *Index {
	x := &Index{}
	x.clear()

	return x
}

// newForeignIndex returns an empty index in the order of other domains: by rid.
func newForeignIndex() *Index {
	x := &Index{byRID: true}
	x.clear()

	return x
}

func (x *Index) clear() {
	x.entries, x.names, x.alike = newEntryTable(), sortedRows{}, newLookalikes()
	for i := range x.fields {
		x.fields[i] = postings{entries: &x.entries}
	}

	x.fields[fieldCapName].words = &table.Paged[string]{}
	x.fields[fieldCapName].sort()
}

func (x *Index) sortKeyOf(entry *directory.Entry) sortKey {
	if x.byRID {
		return sortKey{rid: entry.RID}
	}

	return sortKey{entry.Created, entry.RID}
}

// An Edit is one change of an index: the new entry of a rid, nil to remove it.
type Edit struct {
	RID   directory.RID
	Entry *directory.Entry
}

// Apply applies edits in order; readers see all of them or none. For many edits it is much
// faster than one by one, since it waits for readers once.
func (x *Index) Apply(edits []Edit) {
	x.mu.Lock()
	defer x.mu.Unlock()

	for _, edit := range edits {
		if edit.Entry != nil {
			x.put(edit.Entry)
		} else {
			x.delete(edit.RID)
		}
	}
}

// Put adds an entry or replaces the one of the same rid.
func (x *Index) Put(entry *directory.Entry) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.put(entry)
}

func (x *Index) put(entry *directory.Entry) {
	k := x.sortKeyOf(entry)

	row, n := x.entries.find(entry.RID)

	// A refresh keeps key, name and contents, so no order and no posting changes.
	if row != nil && row.key == k && row.entry.Agent == entry.Agent && row.entry.SharesContents(entry) { // a refresh
		x.recordChange(row.entry, entry)
		row.entry = entry

		return
	}

	terms := termsOf(&x.terms[0], entry)

	// The sorted orders find a row by its key, so a key never changes in place.
	if row != nil && row.key != k {
		x.drop(row, n)
		row = nil
	}

	if row == nil {
		row, n = x.entries.add(k)
	}

	x.recordChange(row.entry, entry)

	var old []term
	if row.entry != nil {
		old = termsOf(&x.terms[1], row.entry)
	}

	// The names are sorted by the entries of their rows, so old terms go before the entry is replaced.
	for _, t := range old {
		if _, kept := slices.BinarySearchFunc(terms, t, term.compare); !kept {
			x.unlink(t, n)
		}
	}

	row.entry, row.mask = entry, maskOf(terms)
	for _, t := range terms {
		if _, had := slices.BinarySearchFunc(old, t, term.compare); !had {
			x.link(t, n)
		}
	}
}

// link adds a row to the postings of a term.
func (x *Index) link(t term, n uint32) {
	if t.field == fieldAgent {
		before := x.entries.before(x.entries.rows.At(n).key)
		x.names.insert(n, x.entries.nameBefore(t.text, before))
		x.alike.insert(n, t.text, before)
	} else {
		x.fields[t.field].insert(t.text, n)
	}
}

// unlink is the reverse of link.
func (x *Index) unlink(t term, n uint32) {
	if t.field == fieldAgent {
		x.names.remove(x.names.first(x.entries.nameBefore(t.text, x.entries.before(x.entries.rows.At(n).key))))
		x.alike.remove(n, t.text)
	} else {
		x.fields[t.field].remove(t.text, n)
	}
}

// Delete removes the entry of that rid, if there is one.
func (x *Index) Delete(rid directory.RID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.delete(rid)
}

func (x *Index) delete(rid directory.RID) {
	if s, n := x.entries.find(rid); s != nil {
		x.drop(s, n)
	}
}

func (x *Index) drop(s *row, n uint32) {
	x.recordChange(s.entry, nil)

	for _, t := range termsOf(&x.terms[1], s.entry) {
		x.unlink(t, n)
	}

	x.entries.remove(n)
}

// retire removes all entries and detaches x from its view: later changes of x are not
// reported to watchers.
func (x *Index) retire() {
	x.mu.Lock()
	defer x.mu.Unlock()

	// The removals are reported before the index is detached.
	x.empty()
	x.expiries = expiryQueue{}
}

// Clear removes all entries at once.
func (x *Index) Clear() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.empty()
}

func (x *Index) empty() {
	for _, s := range x.entries.rows.All() {
		if e := s.entry; e != nil {
			x.recordChange(e, nil)
		}
	}

	x.clear()
}

// Get returns the entry of that rid, alive or not.
func (x *Index) Get(rid directory.RID) (*directory.Entry, bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()

	if s, _ := x.entries.find(rid); s != nil {
		return s.entry, true
	}

	return nil, false
}

// Named returns the entries of an agent name, alive or not, in the index's order. In the own
// domain's index that is at most one, apart from expired ones that are not swept yet.
func (x *Index) Named(agent string) []*directory.Entry {
	x.mu.RLock()
	defer x.mu.RUnlock()

	var es []*directory.Entry
	for n := range x.rowsNamed(agent, sortKey{}).all() {
		es = append(es, x.entries.rows.At(n).entry)
	}

	return es
}

// Len returns the number of entries, alive or not.
func (x *Index) Len() int {
	x.mu.RLock()
	defer x.mu.RUnlock()

	return x.entries.byRID.Len()
}

// All yields the newest entry of every rid that is present from its call on, alive or not,
// in no particular order. Entries that are added or removed meanwhile may or may not be
// yielded; a concurrent load may replace all. It holds no lock while it yields.
func (x *Index) All() iter.Seq[*directory.Entry] {
	return func(yield func(*directory.Entry) bool) {
		room := make([]*directory.Entry, 0, maxScan)
		for from, more := uint32(0), true; more; from += maxScan {
			var es []*directory.Entry

			es, more = x.some(room, from)
			for _, e := range es {
				if !yield(e) {
					return
				}
			}
		}
	}
}

// some adds the entries of the next rows under one hold of the lock, and reports whether
// there are more. A row keeps the rid of its entry.
func (x *Index) some(es []*directory.Entry, from uint32) (_ []*directory.Entry, more bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	all := &x.entries.rows

	end := min(from+maxScan, all.Len())
	for n := from; n < end; n++ {
		if e := all.At(n).entry; e != nil {
			es = append(es, e)
		}
	}

	return es, end < all.Len()
}

// A term is a text of one field that an entry has.
type term struct {
	field int
	text  string
}

func (t term) compare(o term) int {
	return cmp.Or(cmp.Compare(t.field, o.field), cmp.Compare(t.text, o.text))
}

// projectionPool has projections whose lists termsOf reuses.
var projectionPool = sync.Pool{New: func() any { return new(directory.Projection) }}

// termsOf returns the terms of an entry, sorted and each once, in the given buffer. Texts
// are in NFC, as those of queries are (AD-059).
func termsOf(room *[]term, entry *directory.Entry) []term {
	ts := append((*room)[:0], term{fieldAll, ""}, term{fieldAgent, entry.Agent})

	add := func(field int, texts ...string) {
		for _, t := range texts {
			ts = append(ts, term{field, nfc(t)})
		}
	}
	if !entry.Packed.IsZero() {
		projection := projectionPool.Get().(*directory.Projection)
		defer projectionPool.Put(projection)
		entry.UnpackFilterable(projection)
		add(fieldTag, projection.Tags...)
		add(fieldProtocol, projection.Protocols...)

		if projection.Status != directory.StatusActive {
			add(fieldStatus, projection.Status)
		}

		for i := range projection.Capabilities {
			capability := &projection.Capabilities[i]
			add(fieldCapName, capability.Name)
			add(fieldCapType, capability.Type)
			add(fieldTag, capability.Tags...)
		}
	}

	slices.SortFunc(ts, term.compare)
	*room = slices.Compact(ts)

	return *room
}
