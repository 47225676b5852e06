package state

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/index"
	"github.com/roster-mesh/roster/directory/kinds"
	"github.com/roster-mesh/roster/directory/ledger"
	"github.com/roster-mesh/roster/directory/signed"
)

// ended reports whether reg is past its deadline by committed time, swept or not
// (rule T3).
func (r *Registrations) ended(reg *Registration) bool {
	return reg.entry.ExpiresAt/1000 <= r.history.now/1000
}

// register is FCFR (jimenez 7.1): the name is the first one's until it is removed
// or expires, and as long after as the rules hold it; the same owner replaces, and
// keeps rid and registered_at.
func (r *Registrations) register(c *Register) (directory.Outcome, error) {
	old := r.regs.named(c.Agent)

	var gone *Registration
	if old != nil && r.ended(old) {
		old, gone = nil, old
	}

	owner := c.Owner()
	if old != nil && old.entry.Owner != owner {
		if !c.Commissioning || !c.For.IsZero() {
			return directory.Outcome{}, directory.Refuse(directory.NameTaken, "agent name '%s' already registered",
				c.Agent)
		}

		owner = old.entry.Owner
	}

	// Refusals precede ErrMoved, because another preparation would not change them.
	if err := r.Permits(c, old, gone, owner); err != nil {
		return directory.Outcome{}, err
	}

	if owner != c.Granted.Owner || r.policy.basis != c.Granted.Policy || c.Format != r.members.statementFormat() {
		return directory.Outcome{}, ErrMoved
	}

	lifetime, err := CapLifetime(c.Lifetime, c.Until, r.history.now)
	if err != nil {
		return directory.Outcome{}, err
	}

	// The sweep hasn't come to the expired registration yet, which ends by a statement of its own.
	if gone != nil {
		if err := r.expire(gone, c.Format); err != nil {
			return directory.Outcome{}, err
		}
	}

	entry := directory.Entry{Origin: r.history.domain, RID: c.RID, Agent: c.Agent, Owner: owner,
		RegisteredAt: r.history.now}
	if old != nil {
		entry = old.entry
	} else {
		// The hold is the owner's own, or over: Permits has refused any other.
		delete(r.owners.holds.names, c.Agent)
	}

	entry.Visibility = c.Visibility

	return r.put(old, &entry, contents{c.Format, c.Kind, c.Document, c.Salt, lifetime, c.Granted.List(), c.Until,
		c.Made, 0, c.Provenance()})
}

// Permits says why c may not register for owner in the place of old, or, where that is
// nil, of gone, which has ended. The caller's conditions come last: with one that never holds, a dry
// run asks about the rest.
func (r *Registrations) Permits(register *Register, old, gone *Registration, owner directory.Identity) error {
	if old == nil {
		if err := r.owners.vacant(register, owner, gone); err != nil {
			return err
		}
	}

	if err := r.owners.Affords(register.demand(old, gone, owner)); err != nil {
		return err
	}

	return register.matches(old)
}

// update replaces the document that the caller meant, and renews the lifetime
// (AD-056): one change.
func (r *Registrations) update(c *Update) (directory.Outcome, error) {
	old, err := r.Owned(c.RID, c.Caller, c.Commissioning, c.IfMatch)
	if err != nil {
		return directory.Outcome{}, err
	}

	if r.moved(old, c.Statement, c.Granted, c.Format) {
		return directory.Outcome{}, ErrMoved
	}

	entry, lifetime := old.entry, c.Lifetime
	lifetime = cmp.Or(lifetime, entry.Lifetime)

	if lifetime, err = CapLifetime(lifetime, c.Until, r.history.now); err != nil {
		return directory.Outcome{}, err
	}

	if err := r.owners.Affords(c.Demand(old)); err != nil {
		return directory.Outcome{}, err
	}

	return r.put(old, &entry, contents{c.Format, entry.Document.Kind(), c.Document, c.Salt, lifetime, c.Granted.List(),
		c.Until, c.Made, 0, c.Provenance(old)})
}

// contents are the new contents of a registration, with which it gets a statement.
type contents struct {
	format   int
	kind     directory.Kind
	document []byte
	salt     signed.Salt
	lifetime uint32
	grants   []directory.Grant
	until    int64
	made     *Made // nil if the leader made nothing
	deadline int64 // Unix milliseconds; 0 if the lifetime counts from the commit

	provenance directory.Provenance
}

// put writes a statement: new contents for e, in the place of old if there is
// one.
func (r *Registrations) put(old *Registration, entry *directory.Entry, contents contents) (directory.Outcome, error) {
	revision := r.history.revision + 1
	entry.Owner, entry.Provenance = r.owners.shared(entry.Owner), r.owners.named(contents.provenance)
	entry.Document = directory.LoadDocument(contents.kind, contents.document)
	entry.Packed = contents.made.projection(entry.Agent, entry.Document)
	entry.Lifetime, entry.UpdatedAt, entry.ExpiresAt = contents.lifetime, r.history.now, cmp.Or(contents.deadline,
		directory.Deadline(r.history.now, contents.lifetime)*1000)
	entry.Revision = revision
	entry.Statement = revision

	entry.Unconfirmed = false
	entry.Created = cmp.Or(entry.Created, revision)

	reg := &Registration{
		entry: *entry, grants: contents.grants, format: contents.format, epoch: r.history.epoch,
		issued: r.history.now / 1000, leaf: r.history.ledger.Size, salt: contents.salt, until: contents.until,
		from: handleOf(r.history.bringer),
	}
	if old != nil {
		reg.prev, reg.look = old.h, old.look
	}

	change := reg.change(r.history.domain)

	made := contents.made
	if !made.fits(contents.grants) {
		made = makeOf(change, contents.grants)
	}

	payload, err := signed.StatementOf(contents.format, change, signed.Digests{Reg: made.Reg, Doc: made.Doc})
	if err != nil {
		return directory.Outcome{}, errors.Join(errUnknownFormat, err)
	}

	reg.h = directory.HashOf(payload)
	r.history.next()
	reg.entry.Compact()

	if old != nil {
		r.history.follow(old)
	}

	// The leaf precedes the publication, because all that is announced is in the ledger.
	r.history.log(ledger.Statement, payload)
	r.replace(old, reg)
	r.streams.publish(reg, made, revision, true)
	r.schedule(reg)

	return directory.Outcome{RID: entry.RID, Created: old == nil, Granted: entry.Lifetime}, nil
}

// replace puts reg into the tables in the place of old.
func (r *Registrations) replace(old, reg *Registration) {
	if old != nil && old.entry.Owner == reg.entry.Owner {
		r.owners.count(reg.entry.Owner, reg.usage().minus(old.usage()))
	} else {
		r.owners.count(reg.entry.Owner, reg.usage())

		if old != nil {
			r.owners.count(old.entry.Owner, usage{}.minus(old.usage()))
		}
	}

	r.regs.put(reg)
	r.edits = append(r.edits, index.Edit{RID: reg.entry.RID, Entry: &reg.entry})
}

// refresh sets a new deadline, which counts from the commit (T1, AD-020). A
// lower one is announced at once (X1), a later one by the sweep (X2).
func (r *Registrations) refresh(c *Refresh) (directory.Outcome, error) {
	old, err := r.Owned(c.RID, c.Caller, c.Commissioning, c.IfMatch)
	if err != nil {
		return directory.Outcome{}, err
	}

	if old.entry.Unconfirmed {
		// It takes a statement of this epoch, so the leader prepares an update.
		return directory.Outcome{}, ErrMoved
	}

	reg := *old

	entry := &reg.entry
	if c.Lifetime != 0 {
		entry.Lifetime = c.Lifetime
	}

	if entry.Lifetime, err = CapLifetime(entry.Lifetime, old.until, r.history.now); err != nil {
		return directory.Outcome{}, err
	}

	entry.ExpiresAt = directory.Deadline(r.history.now, entry.Lifetime) * 1000
	entry.Revision = r.history.next()
	r.replace(old, &reg)
	r.streams.renew(&reg, entry.Revision, func(x int64) bool { return x > entry.ExpiresAt/1000 })
	r.schedule(&reg)

	return directory.Outcome{RID: c.RID, Granted: entry.Lifetime}, nil
}

func (r *Registrations) remove(c *Remove) (directory.Outcome, error) {
	reg, err := r.Owned(c.RID, c.Caller, c.Commissioning, c.IfMatch)
	if err != nil {
		return directory.Outcome{}, err
	}

	if c.Format != r.members.statementFormat() {
		return directory.Outcome{}, ErrMoved
	}

	if err = r.end(reg, c.Format, func(announced) bool { return true }); err != nil {
		return directory.Outcome{}, err
	}

	r.owners.hold(reg, r.history.now/1000)

	return directory.Outcome{RID: c.RID}, nil
}

// expire ends a registration past its deadline. A stream announces it if a later deadline was
// announced there once (X3), and the former owner is remembered (AD-058).
func (r *Registrations) expire(reg *Registration, format int) error {
	deadline := reg.entry.ExpiresAt / 1000

	err := r.end(reg, format, func(a announced) bool { return a.highest > deadline })
	if err == nil {
		r.owners.former.remember(former{reg.entry.RID, reg.entry.Owner, r.history.now / 1000})
		r.owners.hold(reg, deadline)
	}

	return err
}

// end writes reg's end statement and takes it out of everything. It says end
// where say wants it; elsewhere the deadline has said it.
func (r *Registrations) end(reg *Registration, format int, say func(announced) bool) error {
	entry, revision := &reg.entry, r.history.revision+1

	payload, err := signed.Statement(format, &signed.Change{
		Issuer: r.history.domain, RID: entry.RID, Op: signed.OpEnd, Epoch: r.history.epoch, Revision: revision,
		Prev:     reg.h,
		IssuedAt: r.history.now / 1000, Since: entry.RegisteredAt / 1000, Leaf: r.history.ledger.Size,
		Extension: signed.BroughtBy(r.history.bringer),
	}, nil)
	if err != nil {
		return errors.Join(errUnknownFormat, err)
	}

	hash := directory.HashOf(payload)

	r.history.next()
	r.history.follow(reg)
	r.history.end(reg, hash, payload)
	r.history.log(ledger.Statement, payload)

	for _, aud := range r.streams.audiences(entry.RID) {
		if a, _ := r.streams.byAudience[aud].live(entry.RID); say(a) {
			d := signed.Digest{RID: entry.RID, Revision: revision, Op: signed.OpEnd, H: hash}
			r.streams.announce(aud, d, true)
		} else {
			// The digest that was announced has this deadline, so receivers end the registration by themselves.
			r.streams.byAudience[aud].entries.remove(entry.RID)
		}
	}

	r.regs.remove(entry.RID)
	r.offers.drop(entry.RID)
	r.owners.count(entry.Owner, usage{}.minus(reg.usage()))
	r.edits = append(r.edits, index.Edit{RID: entry.RID})

	return nil
}

// Owned returns the living registration if the caller may change it now.
func (r *Registrations) Owned(rid directory.RID, caller directory.Identity, commissioning bool,
	ifMatch []uint64) (*Registration, error) {
	reg := r.regs.get(rid)
	if reg == nil || r.ended(reg) {
		return nil, r.missing(rid, caller, commissioning)
	}

	if reg.entry.Owner != caller && !commissioning {
		return nil, directory.Refuse(directory.Forbidden, "registration %s belongs to another identity", rid)
	}

	// The precondition comes behind the owner, because its refusal has the revision.
	return reg, matches(ifMatch, reg)
}

// missing explains the fate of a registration to callers that may know it (AD-022, AD-058).
func (r *Registrations) missing(rid directory.RID, caller directory.Identity, commissioning bool) error {
	owner, known := r.owners.former.owner(rid, r.history.now/1000)

	// It is past its deadline, and the sweep has not come to it yet.
	if reg := r.regs.get(rid); reg != nil {
		owner, known = reg.entry.Owner, true
	}

	if known && (commissioning || owner == caller) {
		return directory.Refuse(directory.RegistrationExpired, "registration %s has expired; register the agent again",
			rid)
	}

	return directory.Refuse(directory.NotFound, "there is no registration %s here", rid)
}

// matches checks If-Match: nil demands nothing, otherwise the current revision must be
// among the revisions.
func matches(revisions []uint64, reg *Registration) error {
	switch {
	case revisions == nil:
		return nil
	case reg == nil:
		return directory.Refuse(directory.PreconditionFailed,
			"If-Match was given, and nothing is registered under this name")
	case !slices.Contains(revisions, reg.entry.Revision):
		return directory.Refuse(directory.PreconditionFailed,
			"registration %s is at revision %d; read it again and repeat the change on that", reg.entry.RID,
			reg.entry.Revision)
	}

	return nil
}

// EndOf returns the end of a document's own validity, in Unix seconds; 0 for none.
func EndOf(doc directory.Document) int64 {
	if ends := kinds.DatesOf(doc).Expires; !ends.IsZero() {
		return max(ends.Unix(), 1)
	}

	return 0
}

// CapLifetime shortens a lifetime to the end of the document's own validity (XU-047);
// until 0 means no end. Times are Unix seconds except now, which is in milliseconds.
func CapLifetime(lifetime uint32, until, now int64) (uint32, error) {
	if until == 0 {
		return lifetime, nil
	}

	left := until - now/1000
	if left <= 0 {
		return 0, directory.Refuse(directory.StaleMetadata, "the document says that it has expired: expires_at is %s",
			time.Unix(until, 0).UTC().Format(time.RFC3339)).At("/expires_at")
	}

	return uint32(min(int64(lifetime), left)), nil
}

// matches checks If-Match and If-None-Match of a registration against the one that has
// the name; nil for none.
func (c *Register) matches(old *Registration) error {
	switch {
	case c.Present && old == nil:
		return directory.Refuse(directory.PreconditionFailed,
			"If-Match is *, and nothing is registered under the name '%s'", c.Agent)
	case c.Absent && old != nil:
		return directory.Refuse(directory.PreconditionFailed,
			"If-None-Match is *, and registration %s has the name '%s' already", old.entry.RID, c.Agent)
	}

	return matches(c.IfMatch, old)
}
