package state

import (
	"cmp"
	"slices"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/table"
)

// Bounds of the open offers of a domain. A registration has one at most, and a new one
// replaces it.
const (
	maxOffers     = 1 << 16
	maxOffersEach = 1 << 12 // of one owner
)

// An openOffer is an offer that has not ended. It is never modified. Other contents than the
// offered ones void it: it stays until it ends, so that an acceptance fails with the reason.
type openOffer struct {
	RID       directory.RID      `cbor:"1,keyasint"`
	Owner     directory.Identity `cbor:"2,keyasint"`
	To        directory.Identity `cbor:"3,keyasint"`
	Statement uint64             `cbor:"4,keyasint"`
	Until     int64              `cbor:"5,keyasint"` // Unix seconds of committed time
}

// Offers are the open offers of ownership, of all registrations.
type Offers struct {
	history *History
	regs    *registry

	open map[directory.RID]openOffer

	// Derived from open.
	parties map[directory.Identity]map[directory.RID]bool // both of each offer
	each    map[directory.Identity]int                    // of owners
	ends    table.Heap[expiryCheck]                       // one for each, and obsolete ones
}

func newOffers() Offers {
	return Offers{
		open:    map[directory.RID]openOffer{},
		parties: map[directory.Identity]map[directory.RID]bool{},
		each:    map[directory.Identity]int{},
	}
}

// Of returns the open offer of a registration.
func (o *Offers) Of(rid directory.RID) (directory.Offer, bool) {
	offer, ok := o.open[rid]
	if !ok || offer.Until <= o.history.now/1000 {
		return directory.Offer{}, false
	}

	reg := o.regs.get(rid)
	if reg == nil {
		return directory.Offer{}, false
	}

	return directory.Offer{
		RID: rid, Agent: reg.entry.Agent, Owner: offer.Owner, To: offer.To, Statement: offer.Statement,
		ExpiresAt: offer.Until * 1000, Changed: offer.Statement != reg.entry.Statement,
	}, true
}

// Involving returns up to limit open offers that an identity makes or is made, in the order
// of their rids, from the first behind after.
func (o *Offers) Involving(party directory.Identity, after directory.RID, limit int) []directory.Offer {
	var rids []directory.RID
	for rid := range o.parties[party] {
		if rid.Compare(after) > 0 {
			rids = append(rids, rid)
		}
	}

	slices.SortFunc(rids, directory.RID.Compare)

	var offers []directory.Offer
	for _, rid := range rids {
		if offer, ok := o.Of(rid); ok && len(offers) < limit {
			offers = append(offers, offer)
		}
	}

	return offers
}

// Made returns the offer that is made to an identity, if it may accept it now.
func (o *Offers) Made(rid directory.RID, to directory.Identity) error {
	offer, ok := o.Of(rid)

	switch {
	case !ok || offer.To != to:
		return noOffer(rid)
	case offer.Changed:
		return directory.Refuse(directory.OfferChanged,
			"registration %s has changed since it was offered; its owner may offer it again", rid)
	}

	return nil
}

func noOffer(rid directory.RID) error {
	return directory.Refuse(directory.NotFound, "there is no open offer of registration %s", rid)
}

// Check refuses an offer that can't be made, or for which there is no room.
func (o *Offers) Check(offer *Offer, reg *Registration) error {
	_, replaces := o.open[offer.RID]

	switch {
	case offer.To == reg.entry.Owner:
		return directory.Refuse(directory.BadRequest, "%s owns registration %s already", offer.To, offer.RID)
	case offer.Lifetime == 0 || offer.Lifetime > directory.MaxOfferLifetime:
		return directory.Refuse(directory.BadRequest, "an offer is open for 1 to %d seconds, got %d",
			directory.MaxOfferLifetime, offer.Lifetime)
	case replaces:
		// It takes the place of another one, so there is room.
		return nil
	case o.each[reg.entry.Owner] >= maxOffersEach:
		return directory.Refuse(directory.QuotaExceeded,
			"%s has %d open offers, as many as one owner may; withdraw one, or let one expire", reg.entry.Owner,
			maxOffersEach)
	case len(o.open) >= maxOffers:
		return directory.Refuse(directory.Unavailable, "the domain has %d open offers, the maximum; retry later",
			maxOffers)
	}

	return nil
}

// put opens an offer, in the place of the registration's earlier one.
func (o *Offers) put(offer openOffer) {
	o.drop(offer.RID)
	o.open[offer.RID] = offer
	o.each[offer.Owner]++

	for _, party := range []directory.Identity{offer.Owner, offer.To} {
		if o.parties[party] == nil {
			o.parties[party] = map[directory.RID]bool{}
		}

		o.parties[party][offer.RID] = true
	}

	o.ends.Push(expiryCheck{offer.Until, offer.RID})

	// An owner may replace its offer at any pace.
	if o.ends.Len() > 2*len(o.open)+64 {
		o.ends = table.Heap[expiryCheck]{}
		for rid, open := range o.open {
			o.ends.Push(expiryCheck{open.Until, rid})
		}
	}
}

// drop ends the offer of a registration, if there is one.
func (o *Offers) drop(rid directory.RID) {
	offer, ok := o.open[rid]
	if !ok {
		return
	}

	delete(o.open, rid)

	if o.each[offer.Owner]--; o.each[offer.Owner] == 0 {
		delete(o.each, offer.Owner)
	}

	for _, party := range []directory.Identity{offer.Owner, offer.To} {
		if delete(o.parties[party], rid); len(o.parties[party]) == 0 {
			delete(o.parties, party)
		}
	}
}

// forget ends the offers that have expired.
func (o *Offers) forget() {
	now := o.history.now / 1000

	for o.ends.Len() > 0 && o.ends.First().at <= now {
		// A later offer may have taken the place of this one.
		if rid := o.ends.Pop().rid; o.open[rid].Until <= now {
			o.drop(rid)
		}
	}
}

// all returns the open offers by their rids.
func (o *Offers) all() []openOffer {
	all := make([]openOffer, 0, len(o.open))
	for _, offer := range o.open {
		all = append(all, offer)
	}

	slices.SortFunc(all, func(a, b openOffer) int { return a.RID.Compare(b.RID) })

	return all
}

// offer opens an offer. It takes no revision.
func (r *Registrations) offer(c *Offer) (directory.Outcome, error) {
	reg, err := r.Owned(c.RID, c.Caller, false, c.IfMatch)
	if err != nil {
		return directory.Outcome{}, err
	}

	if reg.entry.Statement != c.Statement {
		return directory.Outcome{}, ErrMoved
	}

	if err := r.offers.Check(c, reg); err != nil {
		return directory.Outcome{}, err
	}

	until := r.history.now/1000 + int64(c.Lifetime)
	r.offers.put(openOffer{c.RID, r.owners.shared(reg.entry.Owner), r.owners.shared(c.To), c.Statement, until})

	return directory.Outcome{RID: c.RID, OfferUntil: until}, nil
}

// Acceptable returns the registration that is offered to an identity, as it is.
func (r *Registrations) Acceptable(rid directory.RID, to directory.Identity, ifMatch []uint64) (*Registration, error) {
	reg := r.regs.get(rid)
	if reg == nil || r.ended(reg) {
		return nil, noOffer(rid)
	}

	return reg, cmp.Or(r.offers.Made(rid, to), matches(ifMatch, reg))
}

// accept registers the contents of a registration anew for its new owner. Its deadline stays.
func (r *Registrations) accept(c *Accept) (directory.Outcome, error) {
	old, err := r.Acceptable(c.RID, c.Caller, c.IfMatch)
	if err != nil {
		return directory.Outcome{}, err
	}

	if c.Granted.Owner != c.Caller || r.moved(old, c.Statement, c.Granted, c.Format) {
		return directory.Outcome{}, ErrMoved
	}

	return r.give(old, c.Demand(old), contents{
		format: c.Format, salt: c.Salt, grants: c.Granted.List(), made: c.Made, provenance: c.Provenance(old),
	})
}

// moved reports whether a command was prepared for other contents of a registration than those of old, another
// policy or another format.
func (r *Registrations) moved(old *Registration, statement uint64, granted Granted, format int) bool {
	return old.entry.Statement != statement || r.policy.basis != granted.Policy || format != r.members.statementFormat()
}

// give puts a statement with another owner, who has the demand, in the place of old's, and ends an offer of it.
// Its document and its deadline stay.
func (r *Registrations) give(old *Registration, demand Demand, given contents) (directory.Outcome, error) {
	if err := r.owners.Affords(demand); err != nil {
		return directory.Outcome{}, err
	}

	entry := old.entry
	entry.Owner = demand.owner
	r.offers.drop(entry.RID)

	given.kind, given.document = entry.Document.Kind(), entry.Document.Bytes()
	given.lifetime, given.deadline, given.until = entry.Lifetime, entry.ExpiresAt, old.until

	return r.put(old, &entry, given)
}

// closeOffer ends an offer on the word of one of its parties. It takes no revision.
func (r *Registrations) closeOffer(c *CloseOffer) (directory.Outcome, error) {
	offer, ok := r.offers.Of(c.RID)
	if !ok || c.Caller != offer.Owner && c.Caller != offer.To {
		return directory.Outcome{}, noOffer(c.RID)
	}

	if err := matches(c.IfMatch, r.regs.get(c.RID)); err != nil {
		return directory.Outcome{}, err
	}

	r.offers.drop(c.RID)

	return directory.Outcome{RID: c.RID}, nil
}
