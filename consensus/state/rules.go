package state

import (
	"slices"

	"github.com/roster-mesh/roster/directory"
)

// Rules are what a domain's operator decides about names and their owners. A
// leader whose configuration has others than the domain puts its own into the
// log, so that all members judge every registration alike, and none can race
// another.
type Rules struct {
	// Hold is for how many seconds a name that was removed or has expired is for
	// its former owner alone (jimenez 7.1, AD-034); 0 frees it at once.
	Hold uint32 `cbor:"1,keyasint,omitempty"`
	// PerOwner is how many registrations one identity may own; 0 is any number.
	// Commissioning tools own what they must.
	PerOwner uint32 `cbor:"2,keyasint,omitempty"`
	// Owners are those of whom another number holds; of several the first that matches.
	Owners []OwnerRule `cbor:"3,keyasint,omitempty"`
	// BytesPerOwner bounds the documents of one identity, and OwnersBytes says of whom
	// another bound holds, as Owners does.
	BytesPerOwner uint64      `cbor:"4,keyasint,omitempty"`
	OwnersBytes   []OwnerRule `cbor:"5,keyasint,omitempty"`
	// Registrations and Bytes bound what the whole domain registers.
	Registrations uint64 `cbor:"6,keyasint,omitempty"`
	Bytes         uint64 `cbor:"7,keyasint,omitempty"`
}

// An OwnerRule is how much each of some identities may own; 0 is any amount.
type OwnerRule struct {
	Who  directory.IdentityPattern `cbor:"1,keyasint"`
	Most uint64                    `cbor:"2,keyasint"`
}

func (r *Rules) Equal(o *Rules) bool {
	return r.Hold == o.Hold && r.PerOwner == o.PerOwner && r.BytesPerOwner == o.BytesPerOwner &&
		r.Registrations == o.Registrations && r.Bytes == o.Bytes &&
		slices.Equal(r.Owners, o.Owners) && slices.Equal(r.OwnersBytes, o.OwnersBytes)
}

// rule puts new rules in force. Names that are held stay so for as long as they
// were, unless names are not held any more.
func (o *Ownership) setRules(r *Rules) {
	o.rules = *r
	o.recountShares()
	if r.Hold == 0 {
		o.holds = newHolds()
	}
}

// matches is If-Match and If-None-Match of a registration, against what has the
// name: nil for none.
func (c *Register) matches(old *Registration) error {
	switch {
	case c.Present && old == nil:
		return directory.Refuse(directory.PreconditionFailed, "If-Match is *, and nothing is registered under the name '%s'", c.Agent)
	case c.Absent && old != nil:
		return directory.Refuse(directory.PreconditionFailed, "If-None-Match is *, and registration %s has the name '%s' already", old.entry.RID, c.Agent)
	}
	return matches(c.IfMatch, old)
}
