package state

import (
	"cmp"
	"iter"
	"slices"
	"sort"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/ledger"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/directory/table"
)

// Streams are the digests announced to each audience.
type Streams struct {
	history *History

	byAudience map[directory.Audience]*stream
	endings    table.Heap[ending] // derived; may have stale entries
	uncovered  []uncovered        // empty between commands
}

func newStreams() Streams {
	return Streams{byAudience: map[directory.Audience]*stream{}}
}

// Scan returns the digests of a stream with a revision above since in ascending order,
// at most limit of them, and the revision up to which they are all (rule G2).
func (t *Streams) Scan(aud directory.Audience, since uint64, limit int) (digests []signed.Digest, to uint64) {
	return t.byAudience[aud].scan(since, limit, t.history.revision)
}

// Current returns the digest by which a registration is in a stream.
func (t *Streams) Current(rid directory.RID, aud directory.Audience) (signed.Digest, bool) {
	entry, ok := t.byAudience[aud].live(rid)
	if !ok {
		return signed.Digest{}, false
	}

	return entry.digest(), true
}

// Tip returns the highest revision that was ever announced in a stream (rule G5).
func (t *Streams) Tip(aud directory.Audience) uint64 {
	if stream := t.byAudience[aud]; stream != nil {
		return stream.tip
	}

	return 0
}

// A stream holds the digests announced to one audience: each registration's latest
// digest, and the order of their revisions (rules G2, G4, G5).
type stream struct {
	entries ridTable[announced]
	order   places // also has places that a later change made stale
	tip     uint64 // the highest revision ever announced, kept when entries are freed
}

// announced is a registration's latest digest in a stream. It has no pointers: of
// 10^6 the collector looks at none.
type announced struct {
	rid      directory.RID
	h, m     directory.Hash
	revision uint64
	deadline int64
	highest  int64 // deadline ever announced, in seconds: x_max
	lifetime uint32
	op       opCode
}

// An opCode is the number of a signed.Op in ops.
type opCode uint8

var ops = [...]signed.Op{"", signed.OpPut, signed.OpRenew, signed.OpEnd, signed.OpDrop}

func announcedAs(d signed.Digest, highest int64) announced {
	op := opCode(max(0, slices.Index(ops[:], d.Op)))
	return announced{d.RID, d.H, d.M, d.Revision, d.Deadline, highest, d.Lifetime, op}
}

func (a *announced) digest() signed.Digest {
	return signed.Digest{RID: a.rid, Revision: a.revision, Op: ops[a.op], H: a.h, M: a.m, Deadline: a.deadline,
		Lifetime: a.lifetime}
}

func (a announced) id() directory.RID { return a.rid }

func newStream() *stream { return &stream{entries: newRIDTable[announced]()} }

// live returns the entry of a rid, and whether the registration is in the stream.
func (s *stream) live(rid directory.RID) (announced, bool) {
	if s == nil {
		return announced{}, false
	}

	a := s.entries.get(rid)

	return a, ops[a.op] == signed.OpPut || ops[a.op] == signed.OpRenew
}

// announce makes d the latest digest of its registration. Its revision is above
// all that were announced before.
func (s *stream) announce(digest signed.Digest) (a announced) {
	s.entries.replace(digest.RID, func(old announced) announced { // or nothing
		a = announcedAs(digest, max(old.highest, digest.Deadline))
		return a
	})
	s.order.add(place{digest.Revision, digest.RID}, s.stale)
	s.tip = digest.Revision

	return a
}

func (s *stream) stale(p place) bool {
	a := s.entries.get(p.rid)
	return a.revision != p.revision
}

// scan returns the digests with a revision above since in ascending order, at
// most limit of them, and the revision up to which they are all (rule G2); at is
// the revision applied.
func (s *stream) scan(since uint64, limit int, at uint64) (ds []signed.Digest, to uint64) {
	if s == nil {
		return nil, at
	}

	for p := range s.order.above(since) {
		announced := s.entries.get(p.rid)
		if announced.revision != p.revision {
			continue
		}

		// This digest is behind the limit, so the part ends before it.
		if len(ds) == limit {
			return ds, ds[limit-1].Revision
		}

		ds = append(ds, announced.digest())
	}

	return ds, at
}

// An ending is an end or drop entry that is kept for a while (rule G4).
type ending struct {
	at       int64 // Unix seconds of committed time at which it is freed
	audience directory.Audience
	rid      directory.RID
	revision uint64 // of the entry; another one there makes this stale
}

func (e ending) Compare(o ending) int {
	return cmp.Or(cmp.Compare(e.at, o.at), e.rid.Compare(o.rid),
		byName(e.audience, o.audience), cmp.Compare(e.revision, o.revision))
}

// maxFreed bounds how many entries one log entry frees.
const maxFreed = 1024

// free drops end and drop entries that no receiver needs any more. How many is
// a function of the log alone, so all members free the same ones at the same
// entry.
func (t *Streams) free() {
	for freed := 0; freed < maxFreed && t.endings.Len() > 0; {
		ending := t.endings.First()
		if ending.at > t.history.now/1000 {
			return
		}

		t.endings.Pop()

		st := t.byAudience[ending.audience]

		// A registration that is in the stream again has a later entry, which stays.
		if a := st.entries.get(ending.rid); a.revision == ending.revision {
			st.entries.remove(ending.rid)
			freed++
		}
	}
}

// announce puts a digest into a stream. Where the digest has no statement of its
// own, the ledger gets it with the others of its command.
func (t *Streams) announce(aud directory.Audience, digest signed.Digest, covered bool) {
	st := t.byAudience[aud]
	if st == nil {
		st = newStream()
		t.byAudience[aud] = st
	}

	a := st.announce(digest)
	if !digest.Live() {
		// Receivers that miss the end keep the registration to its highest deadline, by clocks that may be behind.
		t.endings.Push(ending{a.highest + int64(directory.Skew.Seconds()), aud, digest.RID, digest.Revision})
	}

	if !covered {
		t.uncovered = append(t.uncovered, uncovered{aud, digest})
	}
}

// uncovered is a digest that was announced without a statement of its own: a
// later or lower deadline, other members, or no longer any.
type uncovered struct {
	audience directory.Audience
	digest   signed.Digest
}

// pin writes one leaf for each audience to which the command announced something without
// a statement, in the order of the audiences' names, so that an announced deadline cannot
// be denied later.
func (t *Streams) pin() {
	slices.SortStableFunc(t.uncovered, func(a, b uncovered) int {
		return byName(a.audience, b.audience)
	})

	for rest := t.uncovered; len(rest) > 0; {
		n := 1
		for n < len(rest) && rest[n].audience == rest[0].audience {
			n++
		}

		ds := make([]signed.Digest, n)
		for i := range ds {
			ds[i] = rest[i].digest
		}

		t.history.log(ledger.Announced, signed.AppendDigests(nil, ds))
		rest = rest[n:]
	}

	t.uncovered = t.uncovered[:0]
}

// publish brings every stream up to date with a registration and its grants. covered is
// whether this revision has a statement of its own.
func (t *Streams) publish(reg *Registration, made *Made, revision uint64, covered bool) {
	entry := &reg.entry
	for i, grant := range reg.grants {
		hash := made.shown(i)
		if was, in := t.byAudience[grant.Audience].live(entry.RID); in && was.h == reg.h && was.m == hash {
			continue
		}

		t.announce(grant.Audience, signed.Digest{
			RID: entry.RID, Revision: revision, Op: signed.OpPut,
			H: reg.h, M: hash, Deadline: entry.ExpiresAt / 1000, Lifetime: entry.Lifetime,
		}, covered)
	}

	for _, aud := range t.audiences(entry.RID) {
		if !slices.ContainsFunc(reg.grants, func(g directory.Grant) bool { return g.Audience == aud }) {
			t.announce(aud, signed.Digest{RID: entry.RID, Revision: revision, Op: signed.OpDrop}, false)
		}
	}
}

// renew announces a registration's deadline in each stream whose announced deadline pick
// selects.
func (t *Streams) renew(reg *Registration, revision uint64, pick func(x int64) bool) {
	entry := &reg.entry
	for _, aud := range t.audiences(entry.RID) {
		was, _ := t.byAudience[aud].live(entry.RID)
		if !pick(was.deadline) {
			continue
		}

		digest := was.digest()
		digest.Revision = revision
		digest.Op = signed.OpRenew
		digest.Deadline = entry.ExpiresAt / 1000
		digest.Lifetime = entry.Lifetime
		t.announce(aud, digest, false)
	}
}

// audiences returns the streams that rid is in, in the order of their names.
func (t *Streams) audiences(rid directory.RID) []directory.Audience {
	var in []directory.Audience
	for aud, st := range t.byAudience {
		if _, ok := st.live(rid); ok {
			in = append(in, aud)
		}
	}

	slices.SortFunc(in, byName)

	return in
}

// byName orders audiences by their names.
func byName(a, b directory.Audience) int { return cmp.Compare(a.String(), b.String()) }

// announced returns the lowest deadline by which rid is in a stream.
func (t *Streams) announced(rid directory.RID) (x int64, in bool) {
	for _, st := range t.byAudience {
		if a, ok := st.live(rid); ok && (!in || a.deadline < x) {
			x, in = a.deadline, true
		}
	}

	return x, in
}

// A place is where a change of a registration is in a stream.
type place struct {
	revision uint64
	rid      directory.RID
}

// places are a stream's, by revision, ascending. They are kept in runs, so that stale places
// are dropped from a few runs at a time and no caller waits for a scan of 10^6.
type places struct {
	runs [][]place // none is empty
	next int       // the run that is thinned next
}

// add appends a place, whose revision is above all others.
func (o *places) add(p place, stale func(place) bool) {
	if last := len(o.runs) - 1; last >= 0 && len(o.runs[last]) < runLength {
		o.runs[last] = append(o.runs[last], p)
		return
	}

	for n := 0; n < thinned && len(o.runs) > 0; n++ {
		o.thin(stale)
	}

	o.runs = append(o.runs, []place{p})
}

// thin drops the stale places of one run, and makes one of it and the one before
// where they are short.
func (o *places) thin(stale func(place) bool) {
	if o.next >= len(o.runs) {
		o.next = 0
	}

	i := o.next

	run := slices.DeleteFunc(o.runs[i], stale)
	if i > 0 && len(o.runs[i-1])+len(run) <= runLength {
		o.runs[i-1] = append(o.runs[i-1], run...)
		run = nil
	}

	if len(run) == 0 {
		o.runs = slices.Delete(o.runs, i, i+1)
		return
	}

	o.runs[i] = run
	o.next++
}

// above yields the places whose revision is above since.
func (o *places) above(since uint64) iter.Seq[place] {
	return func(yield func(place) bool) {
		i := sort.Search(len(o.runs), func(i int) bool { return o.runs[i][len(o.runs[i])-1].revision > since })
		for ; i < len(o.runs); i++ {
			for _, p := range o.runs[i] {
				if p.revision > since && !yield(p) {
					return
				}
			}
		}
	}
}

// A full run is followed by a new one, and four older ones are thinned then: even if all
// are half full, at most every other place is stale.
const (
	runLength = 512
	thinned   = 4
)
