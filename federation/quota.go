package federation

import "github.com/roster-mesh/roster/federation/store"

// What is taken of an origin is bounded in records and in bytes of records, together and
// of each owner. An entry is taken at once with its page, since the page would else stand
// in the way of all behind it. Its record is counted when it comes: until then nobody
// knows whose it is and how large. One without room isn't kept, and is asked for again
// when there is room.

// A quota bounds what is held; 0 is no bound.
type quota struct{ records, bytes uint64 }

// ownerShare is the part of a quota that one owner may take, one in so many, unless the
// peering says otherwise.
const ownerShare = 16

// leastShare is how much of a small quota one owner may take in any case: what an
// identity may have in its own domain by the limits that are shipped, as records.
var leastShare = quota{records: 10_000, bytes: 32 << 20}

// quota bounds what is held of the origin.
func (qs *quotas) quota() quota {
	rules := &qs.peering.Load().Import
	limit := quota{qs.cfg.Records, qs.cfg.Bytes}
	if rules.Records > 0 {
		limit.records = rules.Records
	}
	if rules.Bytes > 0 {
		limit.bytes = rules.Bytes
	}
	return limit
}

// ownerQuota bounds what is held of each owner of the origin's registrations.
func (qs *quotas) ownerQuota() quota {
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
	all := qs.quota()
	return quota{of(all.records, leastShare.records), of(all.bytes, leastShare.bytes)}
}

// fits reports whether added may be added to what is used. What adds nothing fits always:
// a quota that was lowered takes nothing away.
func (q quota) fits(used, added store.Usage) bool {
	room := func(limit uint64, used, added int64) bool {
		return limit == 0 || added <= 0 || used+added <= 0 || uint64(used+added) <= limit
	}
	return room(q.records, used.Records, added.Records) && room(q.bytes, used.Bytes, added.Bytes)
}

// usedBy is used, of one owner.
func (qs *quotas) usedBy(key store.OwnerKey, st *stream, delta store.Owners) store.Usage {
	sum := st.owners[key].Plus(delta[key])
	f := qs.pair.feedOf(st.id.Audience)
	other := qs.pair.other(f)
	switch {
	case st == f.next && other.next != nil:
		sum = sum.Plus(other.next.owners[key])
	case other.cur != nil:
		sum = sum.Plus(other.cur.owners[key])
	}
	return sum.Usage()
}

// hasRoom reports whether h's record, whose owner and size h has, may be held in the
// place of old, which is nil where there is none.
func (qs *quotas) hasRoom(st *stream, t *store.Tx, old, h *store.Entry) bool {
	added := store.Usage{Records: 1, Bytes: int64(h.Size)}
	ofOwner := added
	if old != nil && old.Record == store.RecordHeld {
		was := store.Usage{Records: -1, Bytes: -t.Size(old)}
		added = added.Plus(was)
		if old.Owner == h.Owner {
			ofOwner = added
		}
	}
	return qs.quota().fits(qs.used(st, t.Delta), added) &&
		qs.ownerQuota().fits(qs.usedBy(h.Owner, st, t.Owners), ofOwner)
}

// A reservation is room for records that are asked for again.
type reservation struct {
	all    store.Usage
	owners store.Owners
}

// reserve reports whether there is room for the record of an entry that was refused for
// want of it, beside what is reserved, and reserves it. Of one that never came nothing is
// known but that it is one more.
func (qs *quotas) reserve(r *reservation, st *stream, h *store.Entry) bool {
	needs := store.Usage{Records: 1, Bytes: int64(max(1, h.Size))}
	if !qs.quota().fits(qs.used(st, r.all), needs) {
		return false
	}
	if h.Size > 0 {
		if !qs.ownerQuota().fits(qs.usedBy(h.Owner, st, r.owners), needs) {
			return false
		}
		r.owners.Add(h.Owner, store.Share{Records: needs.Records, Bytes: needs.Bytes})
	}
	r.all = r.all.Plus(needs)
	return true
}
