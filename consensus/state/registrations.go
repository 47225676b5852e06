package state

import (
	"fmt"
	"slices"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/index"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/directory/table"
)

// Registrations are the domain's own registrations and the commands that change them.
type Registrations struct {
	history *History
	members *Membership // for the format of statements
	policy  *PolicyState
	owners  *Ownership
	streams *Streams
	offers  *Offers

	regs     registry
	index    *index.Index // for readers; nil if there are none
	expiries table.Heap[expiryCheck]
	edits    []index.Edit // by which the index is behind; empty while it may be read
	load     func()       // fills the index with a state that was read; nil once it has
}

func newRegistrations(index *index.Index) Registrations {
	return Registrations{regs: newRegistry(), index: index}
}

// Get returns a registration, whether or not its deadline has passed; nil if there is
// none.
func (r *Registrations) Get(rid directory.RID) *Registration { return r.regs.get(rid) }

// Named returns the registration of an agent name, or nil.
func (r *Registrations) Named(agent string) *Registration { return r.regs.named(agent) }

// Len returns how many registrations there are.
func (r *Registrations) Len() int { return r.regs.len() }

// Unconfirmed returns how many registrations were restored from a backup and not written by their
// owners since.
func (r *Registrations) Unconfirmed() int { return r.regs.unconfirmed }

// Share returns the rids of all registrations as they are now, to be listed while the
// state changes.
func (r *Registrations) Share() Shared { return Shared{r.regs.share()} }

// Shared are the registrations at some moment. It may be read beside Apply.
type Shared struct{ all listed[*Registration] }

// RIDs returns the rids in ascending order.
func (s Shared) RIDs() []directory.RID {
	rids := make([]directory.RID, 0, s.all.n)
	for reg := range present(&s.all.all) {
		rids = append(rids, (*reg).entry.RID)
	}

	slices.SortFunc(rids, directory.RID.Compare)

	return rids
}

// Record returns the registration of a record (h, m) of a stream and the grant by which
// it is there, as long as that is the registration's latest digest there.
func (r *Registrations) Record(aud directory.Audience, hash, m directory.Hash) (*Registration, directory.Grant, bool) {
	reg := r.regs.stated(hash)
	if reg == nil {
		return nil, directory.Grant{}, false
	}

	entry, ok := r.streams.byAudience[aud].live(reg.entry.RID)
	if !ok || entry.h != hash || entry.m != m {
		return nil, directory.Grant{}, false
	}

	i := slices.IndexFunc(reg.grants, func(g directory.Grant) bool { return g.Audience == aud })

	return reg, reg.grants[i], true
}

// show brings the index up to date.
func (r *Registrations) show() {
	if len(r.edits) == 0 {
		return
	}

	r.index.Apply(r.edits)
	clear(r.edits)
	r.edits = r.edits[:0]
}

// CheckStatements returns why a release that reads these versions cannot take over the
// registrations: it has to build their statements again. Formats fall and a statement
// keeps the format in which it was written, so the formats in force do not tell.
func (r *Registrations) CheckStatements(reads Versions) error {
	formats := reads.Formats.Of(signed.StructureStatement)

	for reg := range r.regs.each() {
		if !slices.Contains(formats, uint(reg.format)) {
			return fmt.Errorf("registration %s has a statement of format %d, and statement formats %v are read: %w",
				reg.entry.RID, reg.format, formats, ErrNewer)
		}
	}

	return nil
}

// transfer gives a registration a statement with another owner, and ends an offer of it. Its
// deadline stays.
func (r *Registrations) transfer(c *Transfer) (directory.Outcome, error) {
	old, err := r.Owned(c.RID, c.Caller, true, c.IfMatch)
	if err != nil {
		return directory.Outcome{}, err
	}

	entry := &old.entry
	switch {
	case entry.Owner == c.Granted.Owner:
		return directory.Outcome{RID: entry.RID, Granted: entry.Lifetime}, nil
	case r.moved(old, c.Statement, c.Granted, c.Format), c.Agent != entry.Agent: // the operator's proof is for a name
		return directory.Outcome{}, ErrMoved
	}

	return r.give(old, c.Demand(old), contents{
		format: c.Format, salt: c.Salt, grants: c.Granted.List(), made: c.Made, provenance: c.Provenance(old),
	})
}

// changeItem makes one change of a command that is a list of changes.
func (r *Registrations) changeItem(command *Command, i int, outcome *directory.Outcome) error {
	switch {
	case command.Renew != nil:
		renew, item := command.Renew, command.Renew.Renewals.At(i)
		out, err := r.refresh(&Refresh{item.RID, renew.Caller, renew.Commissioning, item.Lifetime, nil})
		outcome.Each = append(outcome.Each, directory.RenewalResult{Granted: out.Granted, Err: err})
	case command.Expire != nil:
		return r.expireDue(command.Expire.RIDs[i], command.Expire.Format)
	case command.Announce != nil:
		r.announceDeadline(command.Announce.RIDs[i])
	case command.Regrant != nil:
		r.regrant(&command.Regrant.Items[i])
	}

	return nil
}
