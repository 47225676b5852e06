package state

import "github.com/roster-mesh/roster/directory"

// provenance is a directory.Provenance in a snapshot.
type provenance struct {
	Registrant    directory.Identity `cbor:"1,keyasint,omitzero"`
	RegisteredBy  directory.Identity `cbor:"2,keyasint,omitzero"`
	TransferredBy directory.Identity `cbor:"3,keyasint,omitzero"`
	ImportedFrom  string             `cbor:"4,keyasint,omitempty"`
}

// registeredBy returns the provenance of contents that caller registers for
// owner: who isn't the owner is a commissioning tool (threats.md, S5).
func registeredBy(caller, owner directory.Identity) directory.Provenance {
	if caller == owner {
		return directory.Provenance{}
	}

	return directory.Provenance{Registrant: caller, RegisteredBy: caller}
}

// provenance returns who had a part in what c registers.
func (c *Register) Provenance() directory.Provenance {
	return registeredBy(c.Caller, c.Granted.Owner)
}

// provenance returns who had a part in the contents of old once they are c's. A
// refresh of what was restored registers nothing.
func (c *Update) Provenance(old *Registration) directory.Provenance {
	if c.Unchanged {
		return old.provenance()
	}

	return registeredBy(c.Caller, old.entry.Owner)
}

// provenance returns who had a part in the contents of old once c has given them
// to another owner: the registrant stays, and an operator is named.
func (c *Transfer) Provenance(old *Registration) directory.Provenance {
	p := old.provenance()

	if p.Registrant.IsZero() {
		p.Registrant = old.entry.Owner
	}
	if p.Registrant == c.Granted.Owner {
		p.Registrant = directory.Identity{}
	}

	p.TransferredBy = directory.Identity{}
	if c.Caller != old.entry.Owner {
		p.TransferredBy = c.Caller
	}

	return p
}

// provenance returns who had a part in r's contents besides its owner.
func (r *Registration) provenance() directory.Provenance {
	if r.others == nil {
		return directory.Provenance{}
	}

	return *r.others
}

// named returns p for a registration to keep: nil for nobody, which is nearly
// every one, else in the memory of what the identities own already.
func (o *Ownership) named(p directory.Provenance) *directory.Provenance {
	if p.IsZero() {
		return nil
	}

	p.Registrant = o.shared(p.Registrant)
	p.RegisteredBy = o.shared(p.RegisteredBy)
	p.TransferredBy = o.shared(p.TransferredBy)

	return &p
}
