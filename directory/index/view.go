package index

import (
	"iter"
	"slices"
	"strings"
	"sync"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"golang.org/x/text/unicode/norm"

	"github.com/roster-mesh/roster/directory"
)

// A View answers one node's lookups: it has the own domain's index and those of the other
// origins. It shows only registrations that are alive by their origin's clock (rule T4). It
// is safe for concurrent use.
type View struct {
	domain spiffeid.TrustDomain
	clock  *directory.CheckedClock
	own    *Index
	log    *changeLog // of the changes of all indexes

	mu     sync.RWMutex
	others map[spiffeid.TrustDomain]*Index
}

// NewView returns the view of a node of that domain, by the wall clock of time.Now.
func NewView(domain spiffeid.TrustDomain) *View { return NewViewBy(domain, nil) }

// NewViewBy returns the view of a node of that domain, by its clock.
func NewViewBy(domain spiffeid.TrustDomain, clock *directory.CheckedClock) *View {
	v := &View{domain: domain, clock: clock, own: New(), log: newChangeLog(),
		others: map[spiffeid.TrustDomain]*Index{}}
	v.own.Clock.Checked = clock
	v.own.expiries.log = v.log

	return v
}

// Domain returns the own domain.
func (v *View) Domain() spiffeid.TrustDomain { return v.domain }

// Clock returns the node's clock.
func (v *View) Clock() *directory.CheckedClock { return v.clock }

// Own returns the own domain's index.
func (v *View) Own() *Index { return v.own }

// Origin returns another domain's index, and creates it if needed. The own domain's is Own.
func (v *View) Origin(td spiffeid.TrustDomain) *Index {
	if x, ok := v.indexOf(td); ok {
		return x
	}

	v.mu.Lock()
	defer v.mu.Unlock()

	index, ok := v.others[td]
	if !ok {
		index = newForeignIndex()
		index.Clock.Checked = v.clock
		index.expiries = expiryQueue{log: v.log, period: v.log.period.Load(), complete: true} // of nothing
		v.others[td] = index
	}

	return index
}

// indexOf returns the index of an origin, if there is one.
func (v *View) indexOf(td spiffeid.TrustDomain) (*Index, bool) {
	if td == v.domain {
		return v.own, true
	}

	v.mu.RLock()
	defer v.mu.RUnlock()
	x, ok := v.others[td]

	return x, ok
}

// Drop removes another domain's index.
func (v *View) Drop(td spiffeid.TrustDomain) {
	if x, ok := v.indexOf(td); ok {
		x.retire() // before it leaves the view, so that no reader sees only one of the two
	}

	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.others, td)
}

// Origins returns the other domains that have an index, sorted by name.
func (v *View) Origins() []spiffeid.TrustDomain {
	v.mu.RLock()
	defer v.mu.RUnlock()

	origins := make([]spiffeid.TrustDomain, 0, len(v.others))
	for domain := range v.others {
		origins = append(origins, domain)
	}

	slices.SortFunc(origins, spiffeid.TrustDomain.Compare)

	return origins
}

// A Page is one page of a lookup's answer.
type Page struct {
	Entries []*directory.Entry
	More    bool
	Next    Cursor // behind the last entry, where More is set
}

// A Viewer returns an entry as its reader may see it: unchanged, redacted (kinds.Redact), or
// nil if it is hidden. A nil Viewer shows everything.
type Viewer func(*directory.Entry) *directory.Entry

// of returns an entry as the reader sees it, or nil if that does not match: redacted members
// match nothing. m has the query; it is used for entries that the viewer changed.
func (show Viewer) of(entry *directory.Entry, matcher *matcher) *directory.Entry {
	if show == nil {
		return entry
	}

	if v := show(entry); v == entry || v != nil && matcher.matches(v) {
		return v
	}

	return nil
}

// Lookup returns one page of the registrations that are alive, visible and match q. The
// viewer is called without a lock. A count outside 1 to MaxCount is MaxCount.
//
// Following Next while entries come and go neither repeats nor omits an entry that was
// present throughout (AD-032).
func (v *View) Lookup(query Query, show Viewer) Page {
	m := &matcher{Query: &query}

	if query.Count < 1 || query.Count > MaxCount {
		query.Count = MaxCount
	}

	skip := query.Skip

	if !query.After.IsZero() {
		skip = 0
	}

	page := Page{Entries: make([]*directory.Entry, 0, min(query.Count, 16))}
	for found := range v.find(&query) {
		entry := show.of(found, m)
		switch {
		case entry == nil:
		case skip > 0:
			skip--
		case len(page.Entries) == query.Count:
			// One more visible entry shows that there is a next page.
			page.More, page.Next = true, v.CursorOf(page.Entries[query.Count-1])
			return page
		default:
			page.Entries = append(page.Entries, entry)
		}
	}

	return page
}

// find yields the entries of all indexes that match q, in order.
func (v *View) find(query *Query) iter.Seq[*directory.Entry] {
	return func(yield func(*directory.Entry) bool) {
		if query.After.Origin.IsZero() && (query.Origin.IsZero() || query.Origin == v.domain) {
			for e := range v.own.find(query, sortKey{query.After.Created, query.After.RID}) {
				if !yield(e) {
					return
				}
			}
		}

		if query.OwnOnly {
			return
		}

		for _, td := range v.Origins() {
			before := strings.Compare(td.Name(), query.After.Origin.Name())

			// An origin may have been dropped since they were listed.
			index, ok := v.indexOf(td)
			if !ok || !query.Origin.IsZero() && query.Origin != td || before < 0 {
				continue
			}

			var after sortKey
			if before == 0 {
				after.rid = query.After.RID
			}

			for e := range index.find(query, after) {
				if !yield(e) {
					return
				}
			}
		}
	}
}

// CursorOf returns the position after an entry.
func (v *View) CursorOf(entry *directory.Entry) Cursor {
	if entry.Origin == v.domain {
		return Cursor{Created: entry.Created, RID: entry.RID}
	}

	return Cursor{Origin: entry.Origin, RID: entry.RID}
}

// Find returns the living registrations that a path's id names, by rid or by agent name: the
// own domain's, or else those of all other domains, sorted by origin. A rid takes precedence
// over a name.
func (v *View) Find(id string) []*directory.Entry {
	return v.FindVisible(id, func(*directory.Entry) bool { return true })
}

// FindVisible is Find among the entries for which visible returns true: hidden ones have no
// influence. It calls visible without a lock.
func (v *View) FindVisible(id string, seen func(*directory.Entry) bool) []*directory.Entry {
	rid, err := directory.ParseRID(id)
	name := norm.NFC.String(id)
	origins := append([]spiffeid.TrustDomain{v.domain}, v.Origins()...)

	var found []*directory.Entry
	for i, td := range origins {
		if e, ok := v.Get(td, rid); ok && err == nil && seen(e) {
			found = append(found, e)
		}

		// The own domain's registration hides those of others: no peer can take over its id.
		if i == 0 && len(found) > 0 {
			return found
		}
	}

	if len(found) > 0 {
		return found
	}

	for i, td := range origins {
		for _, e := range v.named(td, name) {
			if seen(e) {
				found = append(found, e)
			}
		}

		if i == 0 && len(found) > 0 {
			return found
		}
	}

	return found
}

// named returns the living registrations of that name.
func (v *View) named(td spiffeid.TrustDomain, name string) []*directory.Entry {
	index, ok := v.indexOf(td)
	if !ok {
		return nil
	}

	now := index.Clock.Now().UnixMilli()

	return slices.DeleteFunc(index.Named(name), func(e *directory.Entry) bool { return !e.AliveAt(now) })
}

// Peek returns the registration of that origin and rid, alive or not.
func (v *View) Peek(origin spiffeid.TrustDomain, rid directory.RID) (*directory.Entry, bool) {
	if x, ok := v.indexOf(origin); ok {
		return x.Get(rid)
	}

	return nil, false
}

// Get returns the living registration of that origin and rid.
func (v *View) Get(origin spiffeid.TrustDomain, rid directory.RID) (*directory.Entry, bool) {
	index, ok := v.indexOf(origin)
	if !ok {
		return nil, false
	}

	entry, ok := index.Get(rid)
	if !ok || !entry.AliveAt(index.Clock.Now().UnixMilli()) {
		return nil, false
	}

	return entry, true
}
