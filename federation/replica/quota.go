package replica

import (
	"sync/atomic"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/federation/store"
)

// What is taken of an origin is bounded in records and in bytes of records, together and
// of each owner. An entry is taken at once with its page, since the page would else stand
// in the way of all behind it. Its record is counted when it comes: until then nobody
// knows whose it is and how large. One without room isn't kept, and is asked for again
// when there is room.

// A Quota bounds what is held; 0 is no bound.
type Quota struct{ Records, Bytes uint64 }

// ownerShare is the part of a quota that one owner may take, one in so many, unless the
// peering says otherwise.
const ownerShare = 16

// LeastShare is how much of a small quota one owner may take in any case: what an
// identity may have in its own domain by the limits that are shipped, as records.
var LeastShare = Quota{Records: 10_000, Bytes: 32 << 20}

// Quota bounds what is held of the origin.
func (qs *quotas) Quota() Quota {
	rules := &qs.peering.Load().Import

	limit := Quota{qs.cfg.Records, qs.cfg.Bytes}
	if rules.Records > 0 {
		limit.Records = rules.Records
	}

	if rules.Bytes > 0 {
		limit.Bytes = rules.Bytes
	}

	return limit
}

// OwnerQuota bounds what is held of each owner of the origin's registrations.
func (qs *quotas) OwnerQuota() Quota {
	parts := uint64(qs.peering.Load().Import.OwnerShare)
	if parts == 0 {
		parts = ownerShare
	}

	of := func(whole, least uint64) uint64 {
		if whole == 0 || parts == 1 {
			return whole
		}

		return max(whole/parts, min(whole, least))
	}
	all := qs.Quota()

	return Quota{of(all.Records, LeastShare.Records), of(all.Bytes, LeastShare.Bytes)}
}

// Fits reports whether added may be added to what is used. What adds nothing fits always:
// a quota that was lowered takes nothing away.
func (q Quota) Fits(used, added store.Usage) bool {
	room := func(limit uint64, used, added int64) bool {
		return limit == 0 || added <= 0 || used+added <= 0 || uint64(used+added) <= limit
	}

	return room(q.Records, used.Records, added.Records) && room(q.Bytes, used.Bytes, added.Bytes)
}

// usedBy is used, of one owner.
func (qs *quotas) usedBy(key store.OwnerKey, st *Stream, delta store.Owners) store.Usage {
	sum := st.Owners[key].Plus(delta[key])
	feed := qs.pair.FeedOf(st.Id.Audience)

	other := qs.pair.other(feed)
	switch {
	case st == feed.next && other.next != nil:
		sum = sum.Plus(other.next.Owners[key])
	case other.Cur != nil:
		sum = sum.Plus(other.Cur.Owners[key])
	}

	return sum.Usage()
}

// hasRoom reports whether h's record, whose owner and size h has, may be held in the
// place of old, which is nil if there is none.
func (qs *quotas) hasRoom(st *Stream, t *store.Tx, old, held *store.Entry) bool {
	added := store.Usage{Records: 1, Bytes: int64(held.Size)}

	ofOwner := added
	if old != nil && old.Record == store.RecordHeld {
		was := store.Usage{Records: -1, Bytes: -t.Size(old)}

		added = added.Plus(was)
		if old.Owner == held.Owner {
			ofOwner = added
		}
	}

	return qs.Quota().Fits(qs.used(st, t.Delta), added) &&
		qs.OwnerQuota().Fits(qs.usedBy(held.Owner, st, t.Owners), ofOwner)
}

// reserve reports whether there is room for the record of an entry that was refused for
// want of it, beside what is reserved, and reserves it. Of one that never came nothing is
// known but that it is one more.
func (qs *quotas) reserve(r *reservation, st *Stream, held *store.Entry) bool {
	needs := store.Usage{Records: 1, Bytes: int64(max(1, held.Size))}
	if !qs.Quota().Fits(qs.used(st, r.all), needs) {
		return false
	}

	if held.Size > 0 {
		if !qs.OwnerQuota().Fits(qs.usedBy(held.Owner, st, r.owners), needs) {
			return false
		}

		r.owners.Add(held.Owner, store.Share{Records: needs.Records, Bytes: needs.Bytes})
	}

	r.all = r.all.Plus(needs)

	return true
}

// quotas bound what is held of an origin. The holder of its streams' change or lock may
// ask them.
type quotas struct {
	cfg     *Config
	peering *atomic.Pointer[directory.Peering]
	pair    *feedPair
}

// used returns what is held of the origin when st has changed by delta. A new epoch
// that is gathered beside an old one is reckoned by itself (rule P3). o.change or o.mu
// is held.
func (qs *quotas) used(st *Stream, delta store.Usage) store.Usage {
	all := st.Used.Plus(delta)
	feed := qs.pair.FeedOf(st.Id.Audience)

	other := qs.pair.other(feed)
	switch {
	case st == feed.next && other.next != nil:
		return all.Plus(other.next.Used)
	case other.Cur != nil:
		return all.Plus(other.Cur.Used)
	}

	return all
}

// full reports whether nothing can be added to st.
func (qs *quotas) full(st *Stream, delta store.Usage) bool {
	return !qs.Quota().Fits(qs.used(st, delta), store.Usage{Records: 1, Bytes: 1})
}
