package state

import (
	"unique"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// A Registration is one of the domain's own, whether or not its deadline has
// passed. But for look it is never modified: a change puts another in its place,
// so that a snapshot may read it while changes go on. Its entry is a part of it,
// which the index points to: of 10^6 each is one thing less for the collector.
type Registration struct {
	entry  directory.Entry
	grants []directory.Grant
	h      directory.Hash // of its statement, which is made of the fields below
	format int
	epoch  uint64
	prev   directory.Hash
	issued int64 // Unix seconds
	leaf   uint64
	salt   signed.Salt
	from   unique.Handle[spiffeid.ID] // the member that brought the change; zero if none did
	until  int64                      // when the document ends by its own word, Unix seconds; 0 for never

	look int64 // the agenda's valid appointment for it
}

// Entry returns the registration's entry, which must not be modified.
func (r *Registration) Entry() *directory.Entry { return &r.entry }

// Grants returns the registration's grants, which must not be modified.
func (r *Registration) Grants() []directory.Grant { return r.grants }

// Leaf returns where the registration's statement is in the ledger of an epoch, and when it was made, in
// Unix seconds.
func (r *Registration) Leaf() (epoch, index uint64, issued int64) { return r.epoch, r.leaf, r.issued }

// Statement builds the registration's statement again, with the disclosures of a grant:
// the same bytes as in Apply. It may be called beside Apply.
func (r *Registration) Statement(grant directory.Grant) (payload []byte, disclosures []string, ok bool) {
	change := r.change(r.entry.Origin)
	all := change.Disclosures()

	payload, err := signed.Statement(r.format, change, all)
	if err != nil {
		// Apply would have stopped at this format.
		return nil, nil, false
	}

	return payload, signed.DisclosedTexts(all, grant), true
}

// Shown returns the m of each of some grants for the registration's statement.
func (r *Registration) Shown(grants []directory.Grant) []byte {
	return shownTo(r.change(r.entry.Origin), grants)
}

// change returns the contents of the registration's statement.
func (r *Registration) change(domain spiffeid.TrustDomain) *signed.Change {
	entry := &r.entry

	return &signed.Change{
		Issuer: domain, RID: entry.RID, Op: signed.OpPut, Epoch: r.epoch, Revision: entry.Statement, Prev: r.prev,
		IssuedAt: r.issued, Since: entry.RegisteredAt / 1000, Leaf: r.leaf,
		Agent: entry.Agent, Owner: entry.Owner, Document: entry.Document, Salt: r.salt,
		Provenance: r.provenance(), Extension: signed.BroughtBy(memberOf(r.from)),
	}
}

// memberOf returns the member of a registration's from; zero if there is none.
func memberOf(from unique.Handle[spiffeid.ID]) spiffeid.ID {
	if from == (unique.Handle[spiffeid.ID]{}) {
		return spiffeid.ID{}
	}

	return from.Value()
}

// handleOf is the inverse of memberOf. All registrations of a member share its text.
func handleOf(member spiffeid.ID) (from unique.Handle[spiffeid.ID]) {
	if member.IsZero() {
		return from
	}

	return unique.Make(member)
}

// provenance returns the other identities than the owner that changed r's contents.
func (r *Registration) provenance() directory.Provenance {
	if r.entry.Provenance == nil {
		return directory.Provenance{}
	}

	return *r.entry.Provenance
}

// provenance is a directory.Provenance in a snapshot.
type provenance struct {
	Registrant    directory.Identity `cbor:"1,keyasint,omitzero"`
	RegisteredBy  directory.Identity `cbor:"2,keyasint,omitzero"`
	TransferredBy directory.Identity `cbor:"3,keyasint,omitzero"`
	ImportedFrom  string             `cbor:"4,keyasint,omitempty"`
}

// registeredBy returns the provenance of contents that caller registers for owner: a caller
// that isn't the owner is a commissioning tool (threats.md, S5).
func registeredBy(caller, owner directory.Identity) directory.Provenance {
	if caller == owner {
		return directory.Provenance{}
	}

	return directory.Provenance{Registrant: caller, RegisteredBy: caller}
}

// Provenance returns the provenance of the contents of a registration.
func (c *Register) Provenance() directory.Provenance {
	provenance := registeredBy(c.Caller, c.Granted.Owner)
	provenance.ImportedFrom = c.ImportedFrom

	return provenance
}

// Provenance returns the provenance of the updated contents of old, which are no longer those of
// a source. A refresh of restored contents registers nothing, so it changes nothing here.
func (c *Update) Provenance(old *Registration) directory.Provenance {
	if c.Unchanged {
		return old.provenance()
	}

	return registeredBy(c.Caller, old.entry.Owner)
}

// Provenance returns the provenance of the contents of old after their new owner has accepted
// them: it registers them anew, from the source from which they were imported.
func (c *Accept) Provenance(old *Registration) directory.Provenance {
	return directory.Provenance{ImportedFrom: old.provenance().ImportedFrom}
}

// Provenance returns the provenance of the contents of old after c gives them to another owner:
// the registrant stays, and an operator is named.
func (c *Transfer) Provenance(old *Registration) directory.Provenance {
	provenance := old.provenance()

	if provenance.Registrant.IsZero() {
		provenance.Registrant = old.entry.Owner
	}

	if provenance.Registrant == c.Granted.Owner {
		provenance.Registrant = directory.Identity{}
	}

	provenance.TransferredBy = c.Caller

	return provenance
}

// usage returns the usage of one registration; zero for nil.
func (r *Registration) usage() usage {
	if r == nil {
		return usage{}
	}

	return usage{1, int64(r.entry.Document.Size())}
}

// A usage is a number of registrations, and the bytes of their documents as their owners
// wrote them, neither compressed nor with derived data.
type usage struct{ records, bytes int64 }

func (u usage) plus(o usage) usage { return usage{u.records + o.records, u.bytes + o.bytes} }

func (u usage) minus(o usage) usage { return usage{u.records - o.records, u.bytes - o.bytes} }

func (r *Registration) id() directory.RID { return r.entry.RID }
