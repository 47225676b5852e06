package index

import (
	"iter"
	"math"
	"slices"

	"github.com/roster-mesh/roster/directory"
)

// Bounds on what one hold of the lock looks at, so that a long lookup keeps no
// writer waiting.
const (
	findFirst = 2 * MaxCount // entries looked at by the first hold; later ones double it …
	findMost  = 1024         // … up to here, which takes a third of a millisecond
)

// An extent is the entries that have a text of one field, or a text that begins with it.
type extent struct {
	field  int
	text   string
	prefix bool
}

// along returns the slots of an extent of one text whose keys are behind one.
func (x *Index) along(r extent, behind key) stretch {
	if r.field == fieldAgent {
		return x.named(r.text, behind)
	}
	t, _ := x.fields[r.field].text(r.text)
	if t == nil {
		return stretch{of: &order{}}
	}
	o := t.slots()
	return stretch{o, o.first(x.stock.upTo(behind)), o.end()}
}

// named returns the slots of an agent name whose keys are behind one.
func (x *Index) named(agent string, behind key) stretch {
	return x.names.stretch(x.stock.named(agent, x.stock.upTo(behind)), x.stock.named(agent, always))
}

// nameBegins returns the slots whose names begin with a text, from a waypoint on.
func (x *Index) nameBegins(text string, from waypoint) stretch {
	return x.names.stretch(x.stock.named(from.text, x.stock.before(from.key)), x.stock.named(text+lastByte, always))
}

// lastByte is behind all UTF-8.
const lastByte = "\xff"

func always(uint32) bool { return true }

// size returns how many entries an extent has, at least where it is of many texts.
func (x *Index) size(r extent) int {
	postings := &x.fields[r.field]
	switch {
	case r.field == fieldAgent && r.prefix:
		return x.nameBegins(r.text, waypoint{text: r.text}).size()
	case r.field == fieldAgent:
		return x.named(r.text, key{}).size()
	case r.prefix:
		return postings.sizeOf(r.text)
	}
	if t, _ := postings.text(r.text); t != nil {
		return t.size()
	}
	return 0
}

// find yields the living entries behind the key after that q asks for, in
// order. It holds no lock while it yields. Its cost follows the smallest of the
// extents that q names, not the size of the index.
func (x *Index) find(query *Query, after key) iter.Seq[*directory.Entry] {
	return func(yield func(*directory.Entry) bool) {
		now := x.Clock.Now().UnixMilli()
		along, size, byPrefix, most := x.plan(query)
		m := &matcher{Query: query, marks: query.marksOf()}
		last, more, want := after, true, query.wanted()
		for budget := findFirst; more; budget = min(2*budget, findMost) {
			var found []*directory.Entry
			if most > 0 {
				budget = min(budget, most)
				found, last, more = x.scan(along, m, last, now, budget, want)
				most, want = most-budget, findMost // not all were visible: no more of small holds
			} else if found, more = x.gather(byPrefix, m, last, now, size/2); more {
				most = math.MaxInt // it gave up
			}
			if !m.spend() {
				return
			}
			for _, e := range found {
				if !yield(e) {
					return
				}
			}
		}
	}
}

// plan chooses how to answer q: to scan along the smallest extent of one text,
// which is in order, and has so many entries. Where a prefix has not half as many, these are
// gathered and sorted, but not before as many have been scanned, since most pages fill
// sooner. So neither costs more than twice what the other would have.
func (x *Index) plan(query *Query) (along extent, size int, byPrefix extent, most int) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	along = extent{field: fieldAll}
	size = x.stock.byRID.Len()
	var prefixes []extent
	for _, r := range query.extents() {
		if r.prefix {
			prefixes = append(prefixes, r)
		} else if n := x.size(r); n < size {
			along, size = r, n
		}
	}
	most = math.MaxInt
	for _, r := range prefixes {
		if n := x.size(r); n < size/2 && n < most {
			byPrefix, most = r, n
		}
	}
	return along, size, byPrefix, most
}

// extents returns a superset of what q asks for by each of its filters.
func (q *Query) extents() []extent {
	var rs []extent
	for _, p := range q.Agent {
		rs = append(rs, extent{fieldAgent, p.Text, p.Prefix})
	}
	for _, p := range q.CapName {
		rs = append(rs, extent{fieldCapName, p.Text, p.Prefix})
	}
	add := func(field int, texts []string) {
		for _, t := range texts {
			if field != fieldStatus || t != directory.StatusActive {
				rs = append(rs, extent{field: field, text: t})
			}
		}
	}
	add(fieldCapType, q.CapType)
	add(fieldTag, q.Tag)
	add(fieldCapName, q.Requirements.Capabilities)
	add(fieldTag, q.Requirements.Tags)
	add(fieldProtocol, q.Protocol)
	add(fieldStatus, q.Status)
	return rs
}

// wanted is how many entries a page needs where all of them are visible, and one
// more that tells whether there is another page.
func (q *Query) wanted() int {
	if q.Count < 1 || q.Count > MaxCount {
		return MaxCount + 1
	}
	return min(q.Skip, findMost) + q.Count + 1
}

// scan looks at up to budget entries of r behind the key after, until it has
// found as many entries that q asks for as are wanted. It returns them, the key
// of the last one looked at, and whether there are more.
func (x *Index) scan(r extent, matcher *matcher, after key, now int64, budget, want int) (found []*directory.Entry, last key, more bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.scanHeld(r, matcher, after, now, budget, want)
}

// scanHeld is scan for who holds the lock.
func (x *Index) scanHeld(r extent, matcher *matcher, after key, now int64, budget, want int) (found []*directory.Entry, last key, more bool) {
	last = after
	for n := range x.along(r, after).all() {
		if budget == 0 || len(found) == want {
			return found, last, true
		}
		budget--
		matcher.looked++
		at := x.stock.slots.At(n)
		last = at.key
		if e := at.e; at.marks.has(matcher.marks) && e.AliveAt(now) && matcher.matches(e) {
			found = append(found, e)
		}
	}
	return found, last, false
}

// gather returns all entries of r, whose texts are of one beginning, behind the key after that q
// asks for, in the order of keys. It gives up, and says that there are more, where it has looked
// at too many: an entry may have several such texts, and plan knows only of some texts how many
// entries have them.
func (x *Index) gather(r extent, matcher *matcher, after key, now int64, most int) (found []*directory.Entry, more bool) {
	var slots []slot
	for at, goesOn := (waypoint{text: r.text}), true; goesOn; {
		at, goesOn = x.gatherSome(&slots, r, matcher, at, after, now)
		most -= matcher.looked
		if !matcher.spend() {
			return nil, false
		}
		if goesOn && most <= 0 {
			return nil, true
		}
	}
	slices.SortFunc(slots, func(a, b slot) int { return a.key.compare(b.key) })
	// An entry may have several names with one beginning, and be refreshed in between.
	slots = slices.CompactFunc(slots, func(a, b slot) bool { return a.key == b.key })
	for _, s := range slots {
		found = append(found, s.e)
	}
	return found, false
}

// A waypoint is an entry by a text that it has and its key, which it is found by again when
// others have come and gone.
type waypoint struct {
	text string
	key  key
}

// gatherSome adds those of the next entries of r, from one on, as many as one hold of
// the lock looks at. It returns the one to go on with, and whether there is one.
func (x *Index) gatherSome(slots *[]slot, r extent, matcher *matcher, from waypoint, after key, now int64) (waypoint, bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	looked := 0
	for text, part := range x.parts(r, from) {
		for n := range part.all() {
			at := x.stock.slots.At(n)
			if looked == findMost {
				if r.field == fieldAgent {
					text = at.e.Agent
				}
				return waypoint{text, at.key}, true
			}
			looked++
			matcher.looked++
			if at.marks.has(matcher.marks) && at.key.compare(after) > 0 && at.e.AliveAt(now) && matcher.matches(at.e) {
				*slots = append(*slots, *at)
			}
		}
	}
	return waypoint{}, false
}

// parts yields the entries of an extent of texts with one beginning, from one on: text by
// text, or those of all names at once and without a text.
func (x *Index) parts(r extent, from waypoint) iter.Seq2[string, stretch] {
	return func(yield func(string, stretch) bool) {
		if r.field == fieldAgent {
			yield("", x.nameBegins(r.text, from))
			return
		}
		p := &x.fields[r.field]
		for n := range p.beginning(r.text, from.text).all() {
			t := p.texts.At(n)
			sorted, begin := t.slots(), spot{}
			if t.s == from.text {
				begin = sorted.first(x.stock.before(from.key))
			}
			if !yield(t.s, stretch{sorted, begin, sorted.end()}) {
				return
			}
		}
	}
}
