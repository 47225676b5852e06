package state

import (
	"slices"

	"github.com/roster-mesh/roster/directory"
)

// A quota bounds a usage; 0 is no bound.
type quota struct{ records, bytes uint64 }

// quotaOf is an identity's quota.
func (r *Rules) quotaOf(owner directory.Identity) quota {
	return quota{
		records: mostOf(r.Owners, owner, uint64(r.PerOwner)),
		bytes:   mostOf(r.OwnersBytes, owner, r.BytesPerOwner),
	}
}

func mostOf(rules []OwnerRule, owner directory.Identity, others uint64) uint64 {
	i := slices.IndexFunc(rules, func(o OwnerRule) bool { return o.Who.Matches(owner) })
	if i >= 0 {
		return rules[i].Most
	}

	return others
}

// A holding is an identity's usage. All its registrations share its text.
type holding struct {
	owner directory.Identity
	usage
}

// holdings count the usage of all registrations, by owner and in total.
type holdings struct {
	byOwner map[directory.Identity]holding
	total   usage
	// shares counts the owners by how much of their quotas they use, in steps, so that
	// the largest share is known without a look at each of a million owners.
	shares [shareSteps + 1]int
}

// shareSteps is how exactly the largest share is known.
const shareSteps = 64

func newHoldings() holdings { return holdings{byOwner: map[directory.Identity]holding{}} }

// count adds to an owner's usage.
func (o *Ownership) count(owner directory.Identity, added usage) {
	if added == (usage{}) {
		return
	}

	own := &o.holdings
	own.total = own.total.plus(added)

	held, known := own.byOwner[owner]

	limit := o.rules.quotaOf(owner)
	if known {
		own.shares[limit.share(held.usage)]--
	} else {
		// Later registrations of the owner share this memory.
		held.owner = owner
	}

	held.usage = held.usage.plus(added)
	if held.records == 0 {
		delete(own.byOwner, owner)
		return
	}

	own.shares[limit.share(held.usage)]++
	own.byOwner[held.owner] = held
}

// share is how much of the quota is used, in shareSteps.
func (q quota) share(used usage) int {
	of := func(used int64, limit uint64) int {
		if limit == 0 {
			return 0
		}

		return int(min(float64(used)/float64(limit), 1) * shareSteps)
	}

	return max(of(used.records, q.records), of(used.bytes, q.bytes))
}

// recountShares counts the shares again, after the rules have changed.
func (o *Ownership) recountShares() {
	o.holdings.shares = [shareSteps + 1]int{}
	for owner, held := range o.holdings.byOwner {
		o.holdings.shares[o.rules.quotaOf(owner).share(held.usage)]++
	}
}

// largestShare is the largest share of its quota that any owner uses, from 0 to 1.
func (h *holdings) largestShare() float64 {
	for step := shareSteps; step > 0; step-- {
		if h.shares[step] > 0 {
			return float64(step) / shareSteps
		}
	}

	return 0
}

// shared returns an identity in the memory of those registrations that it owns
// already.
func (o *Ownership) shared(owner directory.Identity) directory.Identity {
	if held, ok := o.holdings.byOwner[owner]; ok {
		return held.owner
	}

	return owner
}

// A Demand is the claim of one change on the quotas.
type Demand struct {
	owner directory.Identity
	asks  directory.Identity // the caller, to whom only its own usage is disclosed
	// ends is the registration that the change ends first: one past its deadline that the sweep
	// has not reached.
	ends *Registration
	// forOwner and forDomain are added to the usage of the owner and the domain.
	forOwner, forDomain usage
	// unbound is a commissioning tool that registers for itself, which has no quota.
	unbound bool
}

// replaces is the demand of new contents for a registration of owner; old is nil for a
// new one.
func replaces(old *Registration, owner directory.Identity, size int) Demand {
	added := usage{1, int64(size)}.minus(old.usage())
	return Demand{owner: owner, asks: owner, forOwner: added, forDomain: added}
}

// demand returns the demand of a registration. old is the registration that it replaces,
// and ends the expired one under the same name; nil for none.
func (c *Register) demand(old, ends *Registration, owner directory.Identity) Demand {
	d := replaces(old, owner, directory.LoadDocument(c.Kind, c.Document).Size())
	d.asks, d.ends = c.Caller, ends
	d.unbound = c.Commissioning && c.For.IsZero() && owner == c.Caller

	return d
}

func (c *Update) Demand(old *Registration) Demand {
	kind := old.entry.Document.Kind()
	demand := replaces(old, old.entry.Owner, directory.LoadDocument(kind, c.Document).Size())
	demand.asks = c.Caller
	demand.unbound = c.Commissioning && old.entry.Owner == c.Caller

	return demand
}

// Demand returns the demand of the accepted contents of old.
func (c *Accept) Demand(old *Registration) Demand {
	return Demand{owner: c.Caller, asks: c.Caller, forOwner: old.usage()}
}

func (c *Transfer) Demand(old *Registration) Demand {
	return Demand{owner: c.Granted.Owner, asks: c.Caller, forOwner: old.usage()}
}

// Affords refuses a demand for which a quota has no room. A demand that adds nothing to a
// quota's count is never refused for it, though a lowered quota or a backup may have left
// more than it allows.
func (o *Ownership) Affords(demand Demand) error {
	owned, all := o.holdings.byOwner[demand.owner].usage, o.holdings.total

	// An expired registration makes room by its end, in its own owner's quota and in the domain's.
	if demand.ends != nil {
		all = all.minus(demand.ends.usage())
		if demand.ends.entry.Owner == demand.owner {
			owned = owned.minus(demand.ends.usage())
		}
	}

	if !demand.unbound {
		if err := o.ownerAffords(demand, owned); err != nil {
			return err
		}
	}

	limit := quota{o.rules.Registrations, o.rules.Bytes}
	if !hasRoom(limit.records, all.records, demand.forDomain.records) {
		return directory.Refuse(directory.QuotaExceeded,
			"limits.registrations_per_domain: the directory holds %d registrations and allows %d; its operator "+
				"may allow more",
			all.records, limit.records)
	}

	if !hasRoom(limit.bytes, all.bytes, demand.forDomain.bytes) {
		return directory.Refuse(directory.QuotaExceeded,
			"limits.bytes_per_domain: the directory holds %d bytes of documents and allows %d, and this would "+
				"add %d; its operator may allow more",
			all.bytes, limit.bytes, demand.forDomain.bytes)
	}

	return nil
}

// ownerAffords is Affords for the owner's quotas. The owner's usage is disclosed to the owner
// alone, because part of it may be hidden from other callers.
func (o *Ownership) ownerAffords(demand Demand, owned usage) error {
	limit := o.rules.quotaOf(demand.owner)
	if !hasRoom(limit.records, owned.records, demand.forOwner.records) {
		if demand.asks != demand.owner {
			return directory.Refuse(directory.QuotaExceeded,
				"limits.registrations_per_owner: %s has no room for another registration; this directory allows %d",
				demand.owner, limit.records)
		}

		return directory.Refuse(directory.QuotaExceeded,
			"limits.registrations_per_owner: %s owns %d registrations; this directory allows %d: remove one, or "+
				"let one expire",
			demand.owner, owned.records, limit.records)
	}

	if !hasRoom(limit.bytes, owned.bytes, demand.forOwner.bytes) {
		if demand.asks != demand.owner {
			return directory.Refuse(directory.QuotaExceeded,
				"limits.bytes_per_owner: %s has no room for %d more bytes of documents; this directory allows %d",
				demand.owner, demand.forOwner.bytes, limit.bytes)
		}

		return directory.Refuse(directory.QuotaExceeded,
			"limits.bytes_per_owner: %s has %d bytes of documents and this would add %d; this directory allows %d: "+
				"remove a registration, or make documents smaller",
			demand.owner, owned.bytes, demand.forOwner.bytes, limit.bytes)
	}

	return nil
}

// hasRoom reports whether something may be added to the used part of a limit; limit 0
// means no limit.
func hasRoom(limit uint64, used, added int64) bool {
	return limit == 0 || added <= 0 || uint64(used+added) <= limit
}

// Quotas are the domain's usage and its limits; limit 0 means no limit.
type Quotas struct {
	Registrations, RegistrationsLimit uint64
	Bytes, BytesLimit                 uint64
	Owners                            int
	LargestShare                      float64 // of any owner's quota; to a 64th
}

// Quotas returns how much of its quotas the domain uses.
func (o *Ownership) Quotas() Quotas {
	held, rules := &o.holdings, &o.rules

	return Quotas{
		Registrations:      uint64(held.total.records),
		RegistrationsLimit: rules.Registrations,
		Bytes:              uint64(held.total.bytes),
		BytesLimit:         rules.Bytes,
		Owners:             len(held.byOwner),
		LargestShare:       held.largestShare(),
	}
}
