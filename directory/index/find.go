package index

import (
	"iter"
	"math"
	"slices"

	"github.com/roster-mesh/roster/directory"
)

// Bounds on the entries that are scanned under one hold of the lock, so that a long lookup
// delays no writer. Each hold scans twice the number of the one before.
const (
	firstScan = 2 * MaxCount
	maxScan   = 1024 // takes about a third of a millisecond
)

// A textFilter selects the entries that have a text in one field, or a text with a prefix.
type textFilter struct {
	field  int
	text   string
	prefix bool
}

// rowsOf returns the rows that match a filter of one whole text, after a key.
func (x *Index) rowsOf(r textFilter, behind sortKey) rowRange {
	if r.field == fieldAgent {
		return x.rowsNamed(r.text, behind)
	}

	p := &x.fields[r.field]

	t, _ := p.text(r.text)
	if t == nil {
		return rowRange{of: &sortedRows{}}
	}

	o := p.rows(t)

	return rowRange{o, o.first(x.entries.upTo(behind)), o.end()}
}

// rowsNamed returns the rows of an agent name, after a key.
func (x *Index) rowsNamed(agent string, behind sortKey) rowRange {
	return x.names.between(x.entries.nameBefore(agent, x.entries.upTo(behind)), x.entries.nameBefore(agent, always))
}

// rowsNamedFrom returns the rows whose names have a prefix, from a place on.
func (x *Index) rowsNamedFrom(text string, from textPlace) rowRange {
	return x.names.between(x.entries.nameBefore(from.text, x.entries.before(from.key)),
		x.entries.nameBefore(text+lastByte, always))
}

// lastByte sorts after all UTF-8.
const lastByte = "\xff"

func always(uint32) bool { return true }

// size returns how many entries match a filter; for a prefix of many texts, a lower bound.
func (x *Index) size(r textFilter) int {
	postings := &x.fields[r.field]
	switch {
	case r.field == fieldAgent && r.prefix:
		return x.rowsNamedFrom(r.text, textPlace{text: r.text}).size()
	case r.field == fieldAgent:
		return x.rowsNamed(r.text, sortKey{}).size()
	case r.prefix:
		return postings.sizeOf(r.text)
	}

	if t, _ := postings.text(r.text); t != nil {
		return postings.size(t)
	}

	return 0
}

// find yields the living entries after a key that match q, in order. It holds no lock while
// it yields. Its cost follows the smallest filter of q, not the size of the index.
func (x *Index) find(query *Query, after sortKey) iter.Seq[*directory.Entry] {
	return func(yield func(*directory.Entry) bool) {
		now := x.Clock.Now().UnixMilli()
		plan := x.plan(query)
		m := &matcher{Query: query, mask: query.mask()}
		last := after
		more := true

		want := query.pageSize()
		for budget := firstScan; more; budget = min(2*budget, maxScan) {
			var found []*directory.Entry
			if plan.most > 0 {
				budget = min(budget, plan.most)
				found, last, more = x.scan(plan.along, m, last, now, budget, want)
				plan.most -= budget

				// The reader sees not all of the first matches, so short holds would not fill the page.
				want = maxScan
			} else if found, more = x.collectByPrefix(plan.byPrefix, m, last, now, plan.size/2); more {
				plan.most = math.MaxInt // it gave up
			}

			// The charge comes first: a reader beyond its quota gets no entries.
			if !m.charge() {
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

// A scanPlan is the way in which a query is answered: the rows of one filter are scanned,
// and after some of them the rows of a prefix may be collected instead.
type scanPlan struct {
	along    textFilter // its rows are scanned, in order
	size     int        // the number of rows of along
	byPrefix textFilter // its rows are collected and sorted
	most     int        // how many rows are scanned before that; math.MaxInt for all
}

// plan chooses between two ways to answer q: scanning the rows of the smallest filter of a
// whole text, which are in order; or collecting and sorting all rows of a prefix, if these are
// fewer than half. The scan first reads as many rows as the prefix has, since most pages fill
// sooner. So neither costs more than twice the other.
func (x *Index) plan(query *Query) scanPlan {
	x.mu.RLock()
	defer x.mu.RUnlock()

	plan := scanPlan{along: textFilter{field: fieldAll}, size: x.entries.byRID.Len(), most: math.MaxInt}

	var prefixes []textFilter
	for _, r := range query.textFilters() {
		if r.prefix {
			prefixes = append(prefixes, r)
		} else if n := x.size(r); n < plan.size {
			plan.along = r
			plan.size = n
		}
	}

	for _, r := range prefixes {
		if n := x.size(r); n < plan.size/2 && n < plan.most {
			plan.byPrefix = r
			plan.most = n
		}
	}

	return plan
}

// textFilters returns, for each filter of q, a superset of its matches.
func (q *Query) textFilters() []textFilter {
	var rs []textFilter
	for _, p := range q.Agent {
		rs = append(rs, textFilter{fieldAgent, p.Text, p.Prefix})
	}

	for _, p := range q.CapName {
		rs = append(rs, textFilter{fieldCapName, p.Text, p.Prefix})
	}

	add := func(field int, texts []string) {
		for _, t := range texts {
			// Nearly all entries are active, so that filter would select nothing.
			if field != fieldStatus || t != directory.StatusActive {
				rs = append(rs, textFilter{field: field, text: t})
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

// pageSize is the number of entries that a page needs if all are visible, and one more, which
// shows whether there is a next page.
func (q *Query) pageSize() int {
	return min(q.Skip, maxScan) + q.Count + 1
}

// scan looks at up to budget rows of a filter after a key, until it has found want matches of
// q. It returns the matches, the key of the last row it looked at, and whether there are more
// rows.
func (x *Index) scan(r textFilter, matcher *matcher, after sortKey, now int64, budget,
	want int) (found []*directory.Entry, last sortKey, more bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()

	return x.scanHeld(r, matcher, after, now, budget, want)
}

// scanHeld is scan for callers that hold the lock.
func (x *Index) scanHeld(r textFilter, matcher *matcher, after sortKey, now int64, budget,
	want int) (found []*directory.Entry, last sortKey, more bool) {
	last = after
	for n := range x.rowsOf(r, after).all() {
		if budget == 0 || len(found) == want {
			return found, last, true
		}

		budget--
		matcher.looked++
		at := x.entries.rows.At(n)

		last = at.key
		if e := at.entry; at.mask.has(matcher.mask) && e.AliveAt(now) && matcher.matches(e) {
			found = append(found, e)
		}
	}

	return found, last, false
}

// collectByPrefix returns all matches of q among the rows of a prefix filter, after a key
// and in the order of keys. It gives up, and reports that there are more, after looking at
// too many rows: an entry may have several such texts, so plan's estimate may be too low.
func (x *Index) collectByPrefix(r textFilter, matcher *matcher, after sortKey, now int64,
	most int) (found []*directory.Entry, more bool) {
	var rows []row
	for at, goesOn := (textPlace{text: r.text}), true; goesOn; {
		at, goesOn = x.collectSome(&rows, r, matcher, at, after, now)

		// The charge resets the number, so it is subtracted before.
		most -= matcher.looked
		if !matcher.charge() {
			return nil, false
		}

		if goesOn && most <= 0 {
			return nil, true
		}
	}

	slices.SortFunc(rows, func(a, b row) int { return a.key.compare(b.key) })
	// An entry may have several names with one beginning, and be refreshed in between.
	rows = slices.CompactFunc(rows, func(a, b row) bool { return a.key == b.key })
	for _, s := range rows {
		found = append(found, s.entry)
	}

	return found, false
}

// A textPlace is a row by its text and key. It stays valid while rows come and go.
type textPlace struct {
	text string
	key  sortKey
}

// collectSome adds the matches among the next rows from a place on, under one hold of the
// lock. It returns the place to continue from, and whether there is one.
func (x *Index) collectSome(rows *[]row, r textFilter, matcher *matcher, from textPlace, after sortKey,
	now int64) (textPlace, bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()

	looked := 0
	for text, part := range x.parts(r, from) {
		for n := range part.all() {
			at := x.entries.rows.At(n)
			if looked == maxScan {
				// The next hold begins with this row.
				if r.field == fieldAgent {
					text = at.entry.Agent
				}

				return textPlace{text, at.key}, true
			}

			looked++

			matcher.looked++
			if at.mask.has(matcher.mask) && at.key.compare(after) > 0 && at.entry.AliveAt(now) &&
				matcher.matches(at.entry) {
				*rows = append(*rows, *at)
			}
		}
	}

	return textPlace{}, false
}

// parts yields the rows of a prefix filter from a place on: text by text, or for agent names
// all at once and without a text.
func (x *Index) parts(r textFilter, from textPlace) iter.Seq2[string, rowRange] {
	return func(yield func(string, rowRange) bool) {
		if r.field == fieldAgent {
			yield("", x.rowsNamedFrom(r.text, from))
			return
		}

		p := &x.fields[r.field]
		for n := range p.beginning(r.text, from.text).all() {
			text := *p.words.At(n)

			sorted, begin := p.rows(p.texts.At(n)), place{}
			if text == from.text {
				begin = sorted.first(x.entries.before(from.key))
			}

			if !yield(text, rowRange{sorted, begin, sorted.end()}) {
				return
			}
		}
	}
}
