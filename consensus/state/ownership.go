package state

import (
	"slices"
	"strings"
	"time"

	"github.com/roster-mesh/roster/directory"
)

// Ownership has the usage of each owner and decides, by the domain's rules, about free names.
type Ownership struct {
	history *History

	rules    Rules
	holds    holds
	former   formers
	holdings holdings // derived from the registrations
}

func newOwnership() Ownership {
	return Ownership{
		holds:    newHolds(),
		former:   formers{owners: map[directory.RID]former{}},
		holdings: newHoldings(),
	}
}

// Rules returns the rules in force.
func (o *Ownership) Rules() Rules { return o.rules }

// maxHolds bounds how many names are held; the oldest are freed first.
const maxHolds = 100_000

// holds are free names that only their former owners may take.
type holds struct {
	names map[string]hold
	queue []hold // in the order in which they became free; those not in names are obsolete
}

type hold struct {
	Agent    string             `cbor:"1,keyasint"`
	Owner    directory.Identity `cbor:"2,keyasint"`
	Until    int64              `cbor:"3,keyasint"` // Unix seconds of committed time
	Revision uint64             `cbor:"4,keyasint"` // of the change that freed the name
}

func newHolds() holds { return holds{names: map[string]hold{}} }

// add adds a hold, and lets at most two go, so that no single change pays for many. The
// outcome depends on the holds alone, not on stale entries of the queue.
func (h *holds) add(hold hold, now int64) {
	h.names[hold.Agent] = hold

	h.queue = append(h.queue, hold)
	if len(h.queue) > 2*len(h.names)+64 {
		h.queue = h.all()
	}

	for gone := 0; gone < 2; {
		// The new hold is behind the oldest, or is the oldest itself and stays.
		oldest := h.queue[0]

		current := h.names[oldest.Agent] == oldest
		if current {
			if oldest == hold || oldest.Until > now && len(h.names) <= maxHolds {
				return
			}

			delete(h.names, oldest.Agent)
			gone++
		}

		h.queue = h.queue[1:]
	}
}

// restore adds one that a snapshot has.
func (h *holds) restore(o hold) {
	h.names[o.Agent] = o
	h.queue = append(h.queue, o)
}

// all returns the holds, the oldest first.
func (h *holds) all() []hold {
	all := make([]hold, 0, len(h.names))
	for _, o := range h.queue {
		if h.names[o.Agent] == o {
			all = append(all, o)
		}
	}

	return all
}

// hold keeps the name of a registration that ended at that time (Unix seconds) for its
// owner.
func (o *Ownership) hold(reg *Registration, at int64) {
	if o.rules.Hold > 0 {
		h := o.holdOf(reg, at)

		// The name must not keep the memory of the registration, which goes.
		h.Agent = strings.Clone(h.Agent)
		o.holds.add(h, o.history.now/1000)
	}
}

func (o *Ownership) holdOf(reg *Registration, at int64) hold {
	return hold{reg.entry.Agent, reg.entry.Owner, at + int64(o.rules.Hold), o.history.revision}
}

// vacant refuses a free name that is held for another owner. gone is the registration under
// that name that is past its deadline, but not swept yet; or nil. Quotas are checked apart.
func (o *Ownership) vacant(register *Register, owner directory.Identity, gone *Registration) error {
	hold := o.holds.names[register.Agent]
	if gone != nil {
		hold = o.holdOf(gone, gone.entry.ExpiresAt/1000)
	}

	if hold.Until > o.history.now/1000 && hold.Owner != owner {
		return directory.Refuse(directory.NameTaken, "agent name '%s' is held for its former registrant until %s",
			register.Agent, time.Unix(hold.Until, 0).UTC().Format(time.RFC3339))
	}

	return nil
}

// setRules puts new rules in force. Names that are held stay held for the time that
// was set then, unless the new rules hold no names.
func (o *Ownership) setRules(r *Rules) {
	o.rules = *r
	o.recountShares()

	if r.Hold == 0 {
		o.holds = newHolds()
	}
}

// named returns a provenance for a registration to keep: nil for an empty one, which
// nearly all are, else in the memory of identities that are owners already.
func (o *Ownership) named(provenance directory.Provenance) *directory.Provenance {
	if provenance.IsZero() {
		return nil
	}

	provenance.Registrant = o.shared(provenance.Registrant)
	provenance.RegisteredBy = o.shared(provenance.RegisteredBy)
	provenance.TransferredBy = o.shared(provenance.TransferredBy)

	return &provenance
}

// formers remember the owners of expired registrations, the oldest first.
type formers struct {
	owners map[directory.RID]former
	queue  []former
}

type former struct {
	RID   directory.RID      `cbor:"1,keyasint"`
	Owner directory.Identity `cbor:"2,keyasint"`
	At    int64              `cbor:"3,keyasint"` // Unix seconds of committed time
}

// add adds one that a snapshot has.
func (f *formers) add(o former) {
	f.owners[o.RID] = o
	f.queue = append(f.queue, o)
}

// remember adds one, and forgets at most two, so that no single expiry pays for
// many.
func (f *formers) remember(former former) {
	f.add(former)

	for range 2 {
		if oldest := f.queue[0]; len(f.queue) > formerCount || oldest.At+formerSeconds <= former.At {
			delete(f.owners, oldest.RID)
			f.queue = f.queue[1:]
		}
	}
}

// forget forgets the owner of one.
func (f *formers) forget(rid directory.RID) {
	if _, known := f.owners[rid]; known {
		delete(f.owners, rid)
		f.queue = slices.DeleteFunc(slices.Clone(f.queue), func(o former) bool { return o.RID == rid })
	}
}

// owner returns the former owner of the registration that expired under this rid.
func (f *formers) owner(rid directory.RID, now int64) (directory.Identity, bool) {
	o, ok := f.owners[rid]
	return o.Owner, ok && o.At+formerSeconds > now
}

// formerSeconds and formerCount bound the time and the number of remembered owners of expired
// registrations (AD-058). They are constants, because the configurations of two members may
// differ.
const (
	formerSeconds = directory.MaxLifetime
	formerCount   = 100_000
)
