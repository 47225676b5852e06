package discovery

import (
	"hash/maphash"
	"math/bits"
	"sync"
	"time"

	"github.com/roster-mesh/roster/directory"
)

// A sieve is the hard filters of a request: what is in ok may be a candidate.
type sieve struct {
	ok      bitset // the reader's, which is not to be written, until it is own
	own     bool
	room    bitset // for ok
	scratch bitset
	// Excluded counts those of the reader's registrations that each filter has
	// left out, in the order in which filters are applied.
	excluded map[string]int
	left     int
}

// sieve applies the request's filters to what its reader sees, cheap before
// dear. The caller holds the finder's lock, and gives the sieve back before it lets go.
func (f *Finder) sieve(q *Query, s *seen) *sieve {
	v := sieves.Get().(*sieve)
	v.ok, v.own, v.excluded, v.left = s.slots, false, map[string]int{}, s.count
	x := f.index
	if !q.AnyStatus && x.terms.has(x.hash(markInactive)) {
		v.without("status", x, markInactive)
	}
	r := q.Request
	if len(r.Constraints.Origins) > 0 {
		v.within("origins", x, terms1(markOrigin, r.Constraints.Origins))
	}
	if len(r.Constraints.Regions) > 0 {
		v.within("region", x, terms1(markRegion, r.Constraints.Regions))
	}
	if len(r.Protocols) > 0 {
		v.within("protocols", x, terms1(markProtocol, r.Protocols))
	}
	for _, t := range r.RequiredTags {
		wanted := []string{markTag + NormalTag(t)}
		if r.Expand {
			wanted = append(wanted, f.narrower(t)...)
		}
		v.within("required_tags", x, wanted)
	}
	for _, t := range r.ExcludedTags {
		for _, term := range append(f.narrower(t), markTag+NormalTag(t)) {
			if x.terms.has(x.hash(term)) {
				v.without("excluded_tags", x, term)
			}
		}
	}
	return v
}

// sieves are done with.
var sieves = sync.Pool{New: func() any { return new(sieve) }}

func (v *sieve) close() {
	v.ok, v.excluded = nil, nil
	sieves.Put(v)
}

func (x *index) hash(l string) uint64 { return maphash.String(x.seed, l) | 1 }

func terms1(mark string, texts []string) []string {
	ts := make([]string, len(texts))
	for i, t := range texts {
		ts[i] = mark + t
	}
	return ts
}

// narrower returns the terms of the tags that are kinds of one.
func (f *Finder) narrower(tag string) []string {
	var ts []string
	for _, n := range f.taxonomies.expand(NormalTag(tag)) {
		ts = append(ts, markTag+n.tag)
	}
	return ts
}

// within leaves those that have one of the terms.
func (v *sieve) within(reason string, x *index, wanted []string) {
	v.scratch = append(v.scratch[:0], make(bitset, len(v.ok))...)
	for _, t := range wanted {
		x.mark(t, v.scratch)
	}
	v.leave(reason, 0)
}

// without leaves out those that have a term.
func (v *sieve) without(reason string, x *index, term string) {
	v.scratch = append(v.scratch[:0], make(bitset, len(v.ok))...)
	x.mark(term, v.scratch)
	v.leave(reason, ^uint64(0))
}

// mark puts the slots that have a label into a set, and some dead ones.
func (x *index) mark(label string, set bitset) {
	l, ok := x.terms.get(x.hash(label))
	switch {
	case !ok:
	case l.dense != nil:
		l.dense.into(set)
	default:
		l.mark(set)
	}
}

// leave leaves of ok what scratch has, or with all ones in but what it has, and counts
// what is gone. The reader's own set stays as it is.
func (v *sieve) leave(reason string, but uint64) {
	if !v.own {
		v.room = append(v.room[:0], v.ok...)
		v.ok, v.own = v.room, true
	}
	left := 0
	for i, have := range v.scratch {
		v.ok[i] &= have ^ but
		left += bits.OnesCount64(v.ok[i])
	}
	if n := v.left - left; n > 0 {
		v.excluded[reason] += n
	}
	v.left = left
}

// late applies the filters that ask for what changes without a change of the
// index: deadlines, ages, and what the caller's own functions look at. It returns
// why an entry is left out; "" where it isn't.
func (f *Finder) late(q *Query, e *directory.Entry, status string, now time.Time) string {
	c := &q.Request.Constraints
	switch {
	case !q.Reader.sees(e, f.cfg.sight):
		return hidden
	case !q.AnyStatus && status != statusActive && status != "":
		return "status"
	case c.MaxAge >= 0 && ageOf(e, now) > c.MaxAge:
		return "max_results_age_seconds"
	case f.cfg.Verification(e) < c.MinVerification:
		return "min_verification"
	case q.Where != nil:
		return q.Where(f.cfg.sight.See(e))
	}
	return ""
}

// hidden is the reason that is told to nobody.
const hidden = "hidden"

// ageOf returns the seconds since the last refresh of e that this node has
// verified (XU-009).
func ageOf(e *directory.Entry, now time.Time) int64 {
	refreshed := e.ExpiresAt - 1000*int64(e.Lifetime)
	if e.Lifetime == 0 {
		refreshed = e.UpdatedAt
	}
	return max(0, (now.UnixMilli()-refreshed)/1000)
}

// freshnessOf returns the component freshness: 1 for what is renewed in time,
// falling to .9 at the deadline for what isn't.
func freshnessOf(e *directory.Entry, now time.Time) float64 {
	if e.Lifetime == 0 {
		return 1
	}
	used := float64(ageOf(e, now)) / float64(e.Lifetime)
	return 1 - .2*min(max(used-.5, 0), .5)
}

// applied tells the filters as they were applied (XU-055).
func (q *Query) applied() appliedFilters {
	r, a := q.Request, appliedFilters{}
	if !q.AnyStatus {
		a["status"] = filterValue([]any{statusActive, nil})
	}
	put := func(name string, values []string) {
		if len(values) > 0 {
			a[name] = filterValue(values)
		}
	}
	put("required_tags", r.RequiredTags)
	put("excluded_tags", r.ExcludedTags)
	put("protocols", r.Protocols)
	put("region", r.Constraints.Regions)
	put("origins", r.Constraints.Origins)
	if r.Constraints.MaxAge >= 0 {
		a["max_results_age_seconds"] = filterValue(r.Constraints.MaxAge)
	}
	if r.Constraints.MinVerification > Pending {
		a["min_verification"] = filterValue(r.Constraints.MinVerification.String())
	}
	return a
}
