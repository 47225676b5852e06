package discovery

import (
	"hash/maphash"
	"math/bits"
	"slices"
	"sync"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/kinds"
	"github.com/roster-mesh/roster/discovery/content"
	"github.com/roster-mesh/roster/discovery/postings"
)

// A filters is the hard filters of a request: the slots in ok may be candidates.
type filters struct {
	ok      postings.Bitset // the reader's, which is not to be written, until it is own
	own     bool
	room    postings.Bitset // for ok
	scratch postings.Bitset
	// Excluded counts those of the reader's registrations that each filter has
	// left out, in the order in which filters are applied.
	excluded map[string]int
	left     int
}

// sieve applies the request's filters to the registrations that its reader sees, the
// cheap ones first. The caller holds the finder's lock and returns the filters to the
// pool before it unlocks.
func (f *Finder) sieve(query *Query, s *visibleSet) *filters {
	v := filterPool.Get().(*filters)
	v.ok = s.slots
	v.own = false
	v.excluded = map[string]int{}
	v.left = s.count

	terms := f.index

	// Without an inactive registration in the index, the filter costs nothing.
	if !query.AnyStatus && terms.terms.Has(terms.hash(content.MarkInactive)) {
		v.without("status", terms, content.MarkInactive)
	}

	r := query.Request
	if len(r.Constraints.Origins) > 0 {
		v.within("origins", terms, terms1(content.MarkOrigin, r.Constraints.Origins))
	}

	if len(r.Constraints.Owners) > 0 {
		v.withinOwners(terms, r.Constraints.Owners, f.cfg.redaction.Allows(directory.KindAD, "reg", "owner"))
	}

	if len(r.Constraints.Regions) > 0 {
		v.within("region", terms, terms1(content.MarkRegion, r.Constraints.Regions))
	}

	if len(r.Protocols) > 0 {
		v.within("protocols", terms, terms1(content.MarkProtocol, r.Protocols))
	}

	for _, t := range r.RequiredTags {
		wanted := []string{content.MarkTag + content.NormalTag(t)}
		if r.Expand {
			wanted = append(wanted, f.narrower(t)...)
		}

		v.within("required_tags", terms, wanted)
	}

	for _, t := range r.ExcludedTags {
		for _, term := range append(f.narrower(t), content.MarkTag+content.NormalTag(t)) {
			if terms.terms.Has(terms.hash(term)) {
				v.without("excluded_tags", terms, term)
			}
		}
	}

	return v
}

// filterPool are done with.
var filterPool = sync.Pool{New: func() any { return new(filters) }}

func (v *filters) close() {
	v.ok, v.excluded = nil, nil
	filterPool.Put(v)
}

func (x *termIndex) hash(l string) uint64 { return maphash.String(x.seed, l) | 1 }

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
	for _, n := range f.taxonomies.Expand(content.NormalTag(tag)) {
		ts = append(ts, content.MarkTag+n.Tag)
	}

	return ts
}

// within leaves those that have one of the terms.
func (v *filters) within(reason string, terms *termIndex, wanted []string) {
	v.scratch = append(v.scratch[:0], make(postings.Bitset, len(v.ok))...)
	for _, t := range wanted {
		terms.mark(t, v.scratch)
	}

	v.leave(reason, 0)
}

// without leaves out those that have a term.
func (v *filters) without(reason string, x *termIndex, term string) {
	v.scratch = append(v.scratch[:0], make(postings.Bitset, len(v.ok))...)
	x.mark(term, v.scratch)
	v.leave(reason, ^uint64(0))
}

// withinOwners leaves the registrations of the owners, of any origin. It leaves none if the
// reader may not see owners: a result would disclose one.
func (v *filters) withinOwners(terms *termIndex, owners []string, told bool) {
	v.scratch = append(v.scratch[:0], make(postings.Bitset, len(v.ok))...)
	if told {
		var wanted []uint32
		for _, text := range owners {
			if id, err := directory.ParseIdentity(text); err == nil {
				wanted = append(wanted, terms.hashOwner(id))
			}
		}

		postings.Each(v.ok, func(n uint32) {
			if slices.Contains(wanted, terms.slots.At(n).owner) {
				v.scratch.Set(n)
			}
		})
	}

	v.leave("owners", 0)
}

// withoutOwners leaves out the registrations of some owners, which no filter does, so
// it counts none. It goes by the hashes that slots have of owners: one in 2^32 of the
// others is left out as well.
func (v *filters) withoutOwners(terms *termIndex, without ownerSet) {
	if len(without) == 0 {
		return
	}

	type key struct {
		origin uint16
		owner  uint32
	}
	unwanted := map[key]bool{}

	var near [256]bool // whether an unwanted owner's hash may end so: most slots need no map
	for owner := range without {
		origin, ok := terms.numbers[owner.origin]
		if !ok {
			continue
		}

		hash := terms.hashOwner(owner.id)
		unwanted[key{origin, hash}] = true
		near[uint8(hash)] = true
	}

	v.scratch = append(v.scratch[:0], make(postings.Bitset, len(v.ok))...)
	postings.Each(v.ok, func(n uint32) {
		s := terms.slots.At(n)
		if near[uint8(s.owner)] && unwanted[key{s.origin, s.owner}] {
			v.scratch.Set(n)
		}
	})
	v.keep(^uint64(0))
}

// mark puts the slots that have a label into a set, and some dead ones.
func (x *termIndex) mark(label string, set postings.Bitset) {
	list, ok := x.terms.Get(x.hash(label))
	switch {
	case !ok:
	case list.Dense != nil:
		list.Dense.AddTo(set)
	default:
		list.AddTo(set)
	}
}

// leave keeps the slots of ok that are in scratch, or, if but is all ones, those that are not.
// It counts the removed slots under reason.
func (v *filters) leave(reason string, but uint64) {
	if n := v.keep(but); n > 0 {
		v.excluded[reason] += n
	}
}

// keep is leave, but returns how many are gone. The reader's own set stays as it is.
func (v *filters) keep(but uint64) int {
	// The reader's set is shared between queries, so the first filter copies it.
	if !v.own {
		v.room = append(v.room[:0], v.ok...)
		v.ok, v.own = v.room, true
	}

	left := 0
	for i, have := range v.scratch {
		v.ok[i] &= have ^ but
		left += bits.OnesCount64(v.ok[i])
	}

	gone := v.left - left
	v.left = left

	return gone
}

// late applies the filters whose result changes without a change of the index: deadlines, ages,
// and the caller's own functions. It returns the reason why an entry is left out, or "".
func (f *Finder) late(query *Query, entry *directory.Entry, status string, now time.Time) string {
	constraints := &query.Request.Constraints
	switch {
	case !query.Reader.sees(entry, f.cfg.redaction):
		return hidden
	case !query.AnyStatus && status != directory.StatusActive && status != "":
		return "status"
	case len(constraints.Owners) > 0 && !slices.Contains(constraints.Owners, entry.Owner.String()):
		return hidden // by a hash that another owner has
	case constraints.MaxAge >= 0 && ageOf(entry, now) > constraints.MaxAge:
		return "max_results_age_seconds"
	case constraints.MinVerification > Pending && f.verificationOf(entry) < constraints.MinVerification:
		return "min_verification"
	case query.Where != nil:
		return query.Where(kinds.Redact(entry, f.cfg.redaction))
	}

	return ""
}

// verificationOf returns how far this node has verified the origin of an entry.
func (f *Finder) verificationOf(entry *directory.Entry) Verification {
	if entry.Origin == f.cfg.View.Domain() {
		return Local
	}

	switch at, logged := f.cfg.Logged(entry); {
	case logged && at.Witnesses != nil:
		return Witnessed
	case logged:
		return Logged
	default:
		return Verified
	}
}

// hidden is the reason that no caller sees.
const hidden = "hidden"

// ageOf returns the seconds since the last refresh of e that this node has
// verified (XU-009).
func ageOf(entry *directory.Entry, now time.Time) int64 {
	refreshed := entry.ExpiresAt - 1000*int64(entry.Lifetime)
	if entry.Lifetime == 0 {
		refreshed = entry.UpdatedAt
	}

	return max(0, (now.UnixMilli()-refreshed)/1000)
}

// freshnessOf returns the component freshness: 1 for a registration that is refreshed in time,
// falling to .9 at the deadline otherwise.
func freshnessOf(entry *directory.Entry, now time.Time) float64 {
	if entry.Lifetime == 0 {
		return 1
	}

	used := float64(ageOf(entry, now)) / float64(entry.Lifetime)

	return 1 - .2*min(max(used-.5, 0), .5)
}

// applied returns the filters as they were applied (XU-055).
func (q *Query) applied() appliedFilters {
	r, filters := q.Request, appliedFilters{}
	if !q.AnyStatus {
		filters["status"] = filterValue([]any{directory.StatusActive, nil})
	}

	put := func(name string, values []string) {
		if len(values) > 0 {
			filters[name] = filterValue(values)
		}
	}
	put("required_tags", r.RequiredTags)
	put("excluded_tags", r.ExcludedTags)
	put("protocols", r.Protocols)
	put("region", r.Constraints.Regions)
	put("origins", r.Constraints.Origins)
	put("owners", r.Constraints.Owners)

	if r.Constraints.MaxAge >= 0 {
		filters["max_results_age_seconds"] = filterValue(r.Constraints.MaxAge)
	}

	if r.Constraints.MinVerification > Pending {
		filters["min_verification"] = filterValue(r.Constraints.MinVerification.String())
	}

	return filters
}
