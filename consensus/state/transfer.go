package state

import (
	"github.com/roster-mesh/roster/directory"
)

// transfer makes a registration another identity's and changes nothing else of it:
// nothing else changes an owner (TRUST-008).
type Transfer struct {
	Format    int                `cbor:"1,keyasint"`
	RID       directory.RID      `cbor:"2,keyasint"`
	Salt      directory.Salt     `cbor:"3,keyasint"`
	Caller    directory.Identity `cbor:"4,keyasint"`
	Any       bool               `cbor:"5,keyasint,omitempty"` // the caller may give away what others own
	Statement uint64             `cbor:"6,keyasint"`           // which contents policy was asked about
	IfMatch   []uint64           `cbor:"7,keyasint"`
	Granted   Granted            `cbor:"8,keyasint"` // its owner is the new one
	Made      *Made              `cbor:"9,keyasint,omitempty"`
}

// transfer gives a registration a statement with another owner. Its deadline stays.
func (r *Registrations) transfer(c *Transfer) (directory.Outcome, error) {
	old, err := r.Owned(c.RID, c.Caller, c.Any, c.IfMatch)
	if err != nil {
		return directory.Outcome{}, err
	}
	e, owner := old.entry, c.Granted.Owner
	switch {
	case e.Owner == owner:
		return directory.Outcome{RID: e.RID, Granted: e.Lifetime}, nil
	case e.Statement != c.Statement || r.policy.basis != c.Granted.Policy || c.Format != r.members.statementFormat():
		return directory.Outcome{}, ErrMoved
	}
	if err := r.owners.Affords(c.Demand(old)); err != nil {
		return directory.Outcome{}, err
	}
	e.Owner = owner
	return r.put(old, &e, contents{
		format: c.Format, kind: e.Document.Kind(), document: e.Document.Bytes(), salt: c.Salt,
		lifetime: e.Lifetime, deadline: e.ExpiresAt, grants: c.Granted.List(), until: old.until, made: c.Made,
		provenance: c.Provenance(old),
	})
}
