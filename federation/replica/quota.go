package replica

import (
	"github.com/roster-mesh/roster/federation/store"
)

// Quotas bound the number and the bytes of an origin's records, in total and per owner. An
// entry is accepted with its page, because a refused page would block all pages behind it.
// A record is counted on arrival, because its owner and size are unknown before. A record
// that exceeds a quota isn't kept; it is requested again when there is room.

// A Quota bounds records and bytes; 0 is no bound.
type Quota struct{ Records, Bytes uint64 }

// ownerShare is the divisor of a quota that gives the share of one owner. The import policy
// of the peering may set another.
const ownerShare = 16

// LeastShare is the share of a small quota that one owner may always use. It corresponds to
// the shipped limits on one identity's registrations in its own domain.
var LeastShare = Quota{Records: 10_000, Bytes: 32 << 20}

// Quota returns the bound of all records of the origin.
func (o *Origin) Quota() Quota {
	rules := &o.Peering.Load().Import

	limit := Quota{o.Cfg.Records, o.Cfg.Bytes}
	if rules.Records > 0 {
		limit.Records = rules.Records
	}

	if rules.Bytes > 0 {
		limit.Bytes = rules.Bytes
	}

	return limit
}

// OwnerQuota returns the bound of the records of each owner.
func (o *Origin) OwnerQuota() Quota {
	parts := uint64(o.Peering.Load().Import.OwnerShare)
	if parts == 0 {
		parts = ownerShare
	}

	of := func(whole, least uint64) uint64 {
		if whole == 0 || parts == 1 {
			return whole
		}

		return max(whole/parts, min(whole, least))
	}
	all := o.Quota()

	return Quota{of(all.Records, LeastShare.Records), of(all.Bytes, LeastShare.Bytes)}
}

// Fits reports whether used and added together are within the quota. A change that adds
// nothing always fits, because lowering a quota removes no record.
func (q Quota) Fits(used, added store.Usage) bool {
	room := func(limit uint64, used, added int64) bool {
		return limit == 0 || added <= 0 || used+added <= 0 || uint64(used+added) <= limit
	}

	return room(q.Records, used.Records, added.Records) && room(q.Bytes, used.Bytes, added.Bytes)
}

// usedBy returns the usage of one owner, counted as by used.
func (o *Origin) usedBy(key store.OwnerKey, st *Stream, delta store.Owners) store.Usage {
	return st.Owners[key].Plus(delta[key]).Plus(o.beside(st).Owners[key]).Usage()
}

// hasRoom reports whether the quotas allow the record of held in place of old's. The owner
// and size of held are set; old may be nil.
func (o *Origin) hasRoom(st *Stream, t *store.Tx, old, held *store.Entry) bool {
	added := store.Usage{Records: 1, Bytes: int64(held.Size)}

	ofOwner := added
	if old != nil && old.Record == store.RecordHeld {
		was := store.Usage{Records: -1, Bytes: -t.Size(old)}

		added = added.Plus(was)

		// The replaced record is room for its own owner only.
		if old.Owner == held.Owner {
			ofOwner = added
		}
	}

	return o.Quota().Fits(o.used(st, t.Delta), added) &&
		o.OwnerQuota().Fits(o.usedBy(held.Owner, st, t.Owners), ofOwner)
}

// reserve reserves room for a record that exceeded a quota before. It reports whether there
// is room beside earlier reservations. If the record never arrived, its owner and size are
// unknown, and it counts as one record of one byte.
func (o *Origin) reserve(r *reservation, st *Stream, held *store.Entry) bool {
	needs := store.Usage{Records: 1, Bytes: int64(max(1, held.Size))}
	if !o.Quota().Fits(o.used(st, r.all), needs) {
		return false
	}

	if held.Size > 0 {
		if !o.OwnerQuota().Fits(o.usedBy(held.Owner, st, r.owners), needs) {
			return false
		}

		r.owners.Add(held.Owner, store.Share{Records: needs.Records, Bytes: needs.Bytes})
	}

	r.all = r.all.Plus(needs)

	return true
}

// used returns the usage of the origin after st changes by delta. The caller holds change or mu.
func (o *Origin) used(st *Stream, delta store.Usage) store.Usage {
	return st.Used.Plus(delta).Plus(o.beside(st).Used)
}

// beside returns the stream of the other audience that counts together with st, noStream for
// none. A new epoch that is gathered beside an old one is counted by itself (rule P3).
func (o *Origin) beside(st *Stream) *Stream {
	feed := o.FeedOf(st.Id.Audience)

	other := o.other(feed)
	switch {
	case st == feed.next && other.next != nil:
		return other.next
	case other.Cur != nil:
		return other.Cur
	}

	return noStream
}

// missingShare is the divisor of a quota of records that gives the number of missing records, and
// leastMissing is the number that a small quota allows. A peer may announce records that it never
// delivers, each of which takes memory and is requested again and again (rule S17).
const (
	missingShare = 16
	leastMissing = 4096
)

// missingRoom returns how many more records of st may be missing after it changes by delta. It is
// negative if there are more than allowed. The caller holds change or mu.
func (o *Origin) missingRoom(st *Stream, delta store.Usage) int64 {
	records := o.Quota().Records
	if records == 0 {
		records = uint64(o.Cfg.Quota)
	}

	return int64(max(leastMissing, records/missingShare)) - o.used(st, delta).Missing
}

// full reports whether nothing can be added to st.
func (o *Origin) full(st *Stream, delta store.Usage) bool {
	return !o.Quota().Fits(o.used(st, delta), store.Usage{Records: 1, Bytes: 1})
}
