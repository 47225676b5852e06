package directory

import (
	"iter"
	"math"
	"slices"
)

// Bounds on what one hold of the lock looks at, so that a long lookup keeps no
// writer waiting.
const (
	findFirst = 2 * MaxCount // postings looked at by the first hold; later ones double it …
	findMost  = 1024         // … up to here, which takes a third of a millisecond
)

// An extent is a run of one field's postings: those of one text, or those whose
// texts begin with it.
type extent struct {
	field  int
	text   string
	prefix bool
}

// behind returns the spots at which the part of r behind k starts and ends.
// Only an extent of one text is in the order of keys; of a prefix it is all.
func (x *Index) behind(r extent, k key) (from, to spot) {
	p := &x.fields[r.field]
	if r.prefix {
		return p.seek(r.text, key{}), p.seek(r.text+"\xff", key{}) // UTF-8 has no byte 0xff
	}
	from = p.seek(r.text, k)
	if o, after, ok := p.next(from); ok && p.text(o) == r.text && p.keyOf(o) == k {
		from = after
	}
	return from, p.seek(r.text+"\x00", key{})
}

func (x *Index) size(r extent) int {
	from, to := x.behind(r, key{})
	return x.fields[r.field].between(from, to)
}

// find yields the living entries behind the key after that q asks for, in
// order. It holds no lock while it yields. Its cost follows the smallest of the
// extents that q names, not the size of the index.
func (x *Index) find(q *Query, after key) iter.Seq[*Entry] {
	return func(yield func(*Entry) bool) {
		now := x.Clock.Now().UnixMilli()
		along, byPrefix, most := x.plan(q)
		m := &matcher{Query: q, marks: q.marksOf()}
		last, more, want := after, true, q.wanted()
		for budget := findFirst; more; budget = min(2*budget, findMost) {
			var found []*Entry
			if most > 0 {
				budget = min(budget, most)
				found, last, more = x.scan(along, m, last, now, budget, want)
				most, want = most-budget, findMost // not all were visible: no more of small holds
			} else {
				found, more = x.gather(byPrefix, m, last, now), false
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
// which is in order. Where a prefix has still fewer entries, these are gathered
// and sorted, but not before as many have been scanned, since most pages fill
// sooner. So neither costs more than twice what the other would have.
func (x *Index) plan(q *Query) (along, byPrefix extent, most int) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	along = extent{field: fieldAll}
	size := x.stock.byRID.Len()
	var prefixes []extent
	for _, r := range q.extents() {
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
	return along, byPrefix, most
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
			if field != fieldStatus || t != statusActive {
				rs = append(rs, extent{field: field, text: t})
			}
		}
	}
	add(fieldCapType, q.CapType)
	add(fieldTag, q.Tag)
	add(fieldCapName, q.Need.Capabilities)
	add(fieldTag, q.Need.Tags)
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

// scan looks at up to budget postings of r behind the key after, until it has
// found as many entries that q asks for as are wanted. It returns them, the key
// of the last one looked at, and whether there are more.
func (x *Index) scan(r extent, q *matcher, after key, now int64, budget, want int) (found []*Entry, last key, more bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.scanHeld(r, q, after, now, budget, want)
}

// scanHeld is scan for who holds the lock.
func (x *Index) scanHeld(r extent, q *matcher, after key, now int64, budget, want int) (found []*Entry, last key, more bool) {
	p := &x.fields[r.field]
	last = after
	s, end := x.behind(r, after)
	for ; s != end; budget-- {
		if budget == 0 || len(found) == want {
			return found, last, true
		}
		q.looked++
		var o posting
		o, s, _ = p.next(s)
		at := x.stock.slots.At(o.slot)
		last = at.key
		if e := at.e; at.marks.has(q.marks) && e.living(now) && q.matches(e) {
			found = append(found, e)
		}
	}
	return found, last, false
}

// gather returns all entries of r, whose texts are of one beginning, behind the key after that q asks for, in the
// order of keys.
func (x *Index) gather(r extent, q *matcher, after key, now int64) []*Entry {
	var slots []slot
	for at, more := (waypoint{text: r.text}), true; more; {
		if at, more = x.gatherSome(&slots, r, q, at, after, now); !q.spend() {
			return nil
		}
	}
	slices.SortFunc(slots, func(a, b slot) int { return a.key.compare(b.key) })
	// An entry may have several names with one beginning, and be refreshed in between.
	slots = slices.CompactFunc(slots, func(a, b slot) bool { return a.key == b.key })
	found := make([]*Entry, len(slots))
	for i, s := range slots {
		found[i] = s.e
	}
	return found
}

// A waypoint is a posting by what it says, which it is found by again when others have come
// and gone.
type waypoint struct {
	text string
	key  key
}

// gatherSome adds those of the next postings of r, from one on, as many as one hold of
// the lock looks at. It returns the one to go on with, and whether there is one.
func (x *Index) gatherSome(slots *[]slot, r extent, q *matcher, from waypoint, after key, now int64) (waypoint, bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	p := &x.fields[r.field]
	end := p.seek(r.text+"\xff", key{})
	for s, n := p.seek(from.text, from.key), 0; s != end; n++ {
		o, next, _ := p.next(s)
		at := x.stock.slots.At(o.slot)
		if n == findMost {
			return waypoint{p.text(o), at.key}, true
		}
		q.looked++
		if s = next; at.marks.has(q.marks) && at.key.compare(after) > 0 && at.e.living(now) && q.matches(at.e) {
			*slots = append(*slots, *at)
		}
	}
	return waypoint{}, false
}
