package federation

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/roster-mesh/roster/directory"
)

// What is taken of an origin is bounded in records and in bytes of records, together and
// of each owner. An entry is taken at once with its page, since the page would else stand
// in the way of all behind it. Its record is counted when it comes: until then nobody
// knows whose it is and how large. One without room isn't kept, and is asked for again
// when there is room.

// An ownerKey stands for an owner of an origin's registrations: the beginning of a hash
// of the identity. All whose owner is withheld, or isn't understood, are one: zero.
// An owner who looks for another of the same key finds one in 2^64 tries, and shares its
// share then.
type ownerKey uint64

func ownerKeyOf(e *directory.Entry) ownerKey {
	if e == nil || e.Owner.IsZero() {
		return 0
	}
	hash := sha256.Sum256([]byte(e.Owner.String()))
	return ownerKey(max(1, binary.BigEndian.Uint64(hash[:])))
}

// A quota bounds what is held; 0 is no bound.
type quota struct{ records, bytes uint64 }

// ownerShare is the part of a quota that one owner may take, one in so many, unless the
// peering says otherwise.
const ownerShare = 16

// leastShare is how much of a small quota one owner may take in any case: what an
// identity may have in its own domain by the limits that are shipped, as records.
var leastShare = quota{records: 10_000, bytes: 32 << 20}

// quota bounds what is held of the origin.
func (o *origin) quota() quota {
	rules := &o.peering.Load().Import
	limit := o.defaults
	if rules.Records > 0 {
		limit.records = rules.Records
	}
	if rules.Bytes > 0 {
		limit.bytes = rules.Bytes
	}
	return limit
}

// ownerQuota bounds what is held of each owner of the origin's registrations.
func (o *origin) ownerQuota() quota {
	parts := uint64(o.peering.Load().Import.OwnerShare)
	if parts == 0 {
		parts = ownerShare
	}
	of := func(whole, least uint64) uint64 {
		if whole == 0 || parts == 1 {
			return whole
		}
		return max(whole/parts, min(whole, least))
	}
	all := o.quota()
	return quota{of(all.records, leastShare.records), of(all.bytes, leastShare.bytes)}
}

// fits reports whether added may be added to what is used. What adds nothing fits always:
// a quota that was lowered takes nothing away.
func (q quota) fits(used, added usage) bool {
	room := func(limit uint64, used, added int64) bool {
		return limit == 0 || added <= 0 || used+added <= 0 || uint64(used+added) <= limit
	}
	return room(q.records, used.records, added.records) && room(q.bytes, used.bytes, added.bytes)
}

// An owned is what the records of one owner take.
type owned struct{ records, bytes int64 }

func (u owned) plus(o owned) owned { return owned{u.records + o.records, u.bytes + o.bytes} }

func (u owned) usage() usage { return usage{records: u.records, bytes: u.bytes} }

// owners are what the records of each owner take, or how that changes.
type owners map[ownerKey]owned

// add adds to what one owner has.
func (all owners) add(key ownerKey, change owned) {
	sum := all[key].plus(change)
	if sum == (owned{}) {
		delete(all, key)
		return
	}
	all[key] = sum
}

// absorb adds all that changed.
func (all owners) absorb(changes owners) {
	for key, change := range changes {
		all.add(key, change)
	}
}

// usedBy is used, of one owner.
func (o *origin) usedBy(key ownerKey, st *stream, delta owners) usage {
	sum := st.owners[key].plus(delta[key])
	f := o.feedOf(st.id.aud)
	other := o.other(f)
	switch {
	case st == f.next && other.next != nil:
		sum = sum.plus(other.next.owners[key])
	case other.cur != nil:
		sum = sum.plus(other.cur.owners[key])
	}
	return sum.usage()
}

// hasRoom reports whether h's record, whose owner and size h has, may be held in the
// place of old, which is nil where there is none.
func (o *origin) hasRoom(st *stream, t *streamTx, old, h *held) bool {
	added := usage{records: 1, bytes: int64(h.Size)}
	ofOwner := added
	if old != nil && old.Record == recordHeld {
		was := usage{records: -1, bytes: -t.size(old)}
		added = added.plus(was)
		if old.Owner == h.Owner {
			ofOwner = added
		}
	}
	return o.quota().fits(o.used(st, t.delta), added) &&
		o.ownerQuota().fits(o.usedBy(h.Owner, st, t.owners), ofOwner)
}

// A reservation is room for records that are asked for again.
type reservation struct {
	all    usage
	owners owners
}

// reserve reports whether there is room for the record of an entry that was refused for
// want of it, beside what is reserved, and reserves it. Of one that never came nothing is
// known but that it is one more.
func (o *origin) reserve(r *reservation, st *stream, h *held) bool {
	needs := usage{records: 1, bytes: int64(max(1, h.Size))}
	if !o.quota().fits(o.used(st, r.all), needs) {
		return false
	}
	if h.Size > 0 {
		if !o.ownerQuota().fits(o.usedBy(h.Owner, st, r.owners), needs) {
			return false
		}
		r.owners.add(h.Owner, owned{needs.records, needs.bytes})
	}
	r.all = r.all.plus(needs)
	return true
}
