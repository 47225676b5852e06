package consensus

import (
	"cmp"
	"errors"
	"slices"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/index"
	"github.com/roster-mesh/roster/directory/table"
)

// A state is what a domain's log has made so far. apply changes it as a pure
// function of itself and the entry, so that a test or a recovery tool can drive
// it alone. Whoever reads it holds off apply meanwhile.
type state struct {
	domain   spiffeid.TrustDomain
	epoch    uint64 // 0 before the first command
	revision uint64
	now      int64  // committed time, Unix milliseconds: the highest t so far
	policy   uint64 // revision of the newest peering or policy
	law      law
	verdict  *verdict // nil while grants may not all be as policy has them
	ledger   frontier
	index    *index.Index // what readers of the domain's registrations read
	regs     registry
	former   formers
	rules    Rules
	holds    holds
	spent    spent
	claims   claims
	streams  map[directory.Audience]*stream
	peerings map[spiffeid.TrustDomain]directory.Peering
	keys     map[spiffeid.ID]directory.SigningKey
	rotated  []rotatedKey           // the one that was rotated last is last
	revoked  []string               // ids of keys; in key documents, from which snapshots have them
	issued   *directory.KeyDocument // nil until there is a key
	members  map[spiffeid.ID]member // what the members have said of themselves
	admitted map[spiffeid.ID]int64  // who may become a member, and until when
	restored uint64                 // of what is sealed: the backup's revision
	written  Numbers                // the versions and formats that are in force
	sealed   string                 // why a new epoch must begin before anything else; empty where none must

	// What follows is derived from the above, but for uncovered, which is empty
	// between commands.
	holdings  holdings
	endings   table.Heap[ending]
	agenda    table.Heap[appointment]
	uncovered []uncovered
	pace      pace         // of the log entry that is applied
	edits     []index.Edit // that the index is behind by; empty while anybody else may look

	load func() // of a state that was read from a snapshot, until fillIndex: it fills the index
}

// A registration is one of the domain's own, whether or not its deadline has
// passed. But for look it is never modified: a change puts another in its place,
// so that a snapshot may read it while changes go on. Its entry is a part of it,
// which the index points to: of 10^6 each is one thing less for the collector.
type registration struct {
	entry  directory.Entry
	grants []directory.Grant
	h      directory.Hash // of its statement, which is made of what follows
	format int
	epoch  uint64
	prev   directory.Hash
	issued int64 // Unix seconds
	leaf   uint64
	salt   directory.Salt
	until  int64                 // when the document ends by its own word, Unix seconds; 0 for never
	others *directory.Provenance // who had a part in it besides its owner; nil for nobody

	look int64 // the agenda's valid appointment for it
}

// change is what reg's statement says.
func (r *registration) change(domain spiffeid.TrustDomain) *directory.Change {
	e := &r.entry
	return &directory.Change{
		Issuer: domain, RID: e.RID, Op: directory.OpPut, Epoch: r.epoch, Revision: e.Statement, Prev: r.prev,
		IssuedAt: r.issued, Since: e.RegisteredAt / 1000, Leaf: r.leaf,
		Agent: e.Agent, Owner: e.Owner, Document: e.Document, Salt: r.salt,
		Provenance: r.provenance(),
	}
}

func newState(domain spiffeid.TrustDomain, index *index.Index) *state {
	return &state{
		domain: domain, index: index,
		regs:     newRegistry(),
		former:   formers{owners: map[directory.RID]former{}},
		holds:    newHolds(),
		spent:    newSpent(),
		claims:   newClaims(),
		holdings: newHoldings(),
		streams:  map[directory.Audience]*stream{},
		peerings: map[spiffeid.TrustDomain]directory.Peering{},
		keys:     map[spiffeid.ID]directory.SigningKey{},
		members:  map[spiffeid.ID]member{},
		admitted: map[spiffeid.ID]int64{},
		written:  firstNumbers(),
	}
}

// errMoved says that what the leader prepared a command for has changed since;
// it prepares again.
var errMoved = errors.New("the state has moved on")

// errUnknownFormat says that this member cannot go on: the others know more.
var errUnknownFormat = errors.New("cannot build the statement")

// A result is what one command did, or why it did nothing.
type result struct {
	outcome directory.Outcome
	err     error
}

// atOneGo is after how many changes of one log entry those who wait for the state get
// it before the rest is applied. To end a registration of 10^6 takes up to 60 µs.
const atOneGo = 64

// A pace lets in who waits for the state while much is applied.
type pace struct {
	changes int // since it last did
	breathe func()
}

// step is called between two changes, of one command or of two. Where the state is
// whole, and may be read, it breathes now and then: of what was announced and not yet
// pinned nobody hears.
func (s *state) step() {
	if s.pace.changes++; s.pace.changes > atOneGo && len(s.uncovered) == 0 {
		s.show()
		s.pace.breathe()
		s.pace.changes = 0
	}
}

// show has the readers of the index see what was changed.
func (s *state) show() {
	if len(s.edits) == 0 {
		return
	}
	s.index.Apply(s.edits)
	clear(s.edits)
	s.edits = s.edits[:0]
}

// apply applies a log entry. Only an error of the second result ends this
// member's applying; the first are answers. Where there are many changes, it calls
// breathe between some of them: the state is whole then, and may be read.
func (s *state) apply(b *batch, breathe func()) ([]result, error) {
	s.pace = pace{breathe: breathe}
	defer s.show()
	s.now = max(s.now, b.Time)
	s.free()
	s.claims.forget(s.now / 1000)
	results := make([]result, len(b.Commands))
	for i := range b.Commands {
		s.step()
		r := &results[i]
		r.outcome, r.err = s.do(&b.Commands[i])
		s.pin()
		if errors.Is(r.err, errUnknownFormat) {
			return nil, r.err
		}
		r.outcome.Position = s.position()
	}
	return results, nil
}

func (s *state) position() directory.Position {
	return directory.Position{Epoch: s.epoch, Revision: s.revision}
}

func (s *state) do(c *command) (directory.Outcome, error) {
	if (s.epoch == 0 || s.sealed != "") && c.Epoch == nil {
		return directory.Outcome{}, directory.Refuse(directory.Unavailable, "the domain's history has not begun")
	}
	if err := s.unspent(c.Spend); err != nil {
		return directory.Outcome{}, err
	}
	out, err := s.change(c)
	if !errors.Is(err, errMoved) { // else the same proof comes again, with the command prepared anew
		s.spend(c.Spend)
	}
	return out, err
}

func (s *state) change(c *command) (directory.Outcome, error) {
	switch {
	case c.Register != nil:
		return s.register(c.Register)
	case c.Update != nil:
		return s.update(c.Update)
	case c.Refresh != nil:
		return s.refresh(c.Refresh)
	case c.Renew != nil:
		return s.renewMany(c.Renew)
	case c.Remove != nil:
		return s.remove(c.Remove)
	case c.Transfer != nil:
		return s.transfer(c.Transfer)
	case c.Expire != nil:
		return directory.Outcome{}, s.expireAll(c.Expire)
	case c.Announce != nil:
		s.announceAll(c.Announce)
	case c.Attest != nil:
		s.attest(c.Attest)
	case c.Revoke != nil:
		s.revoke(c.Revoke)
	case c.Issue != nil:
		s.reissue(c.Issue)
	case c.Peer != nil:
		s.peer(c.Peer)
	case c.Amend != nil:
		return directory.Outcome{}, s.amend(c.Amend)
	case c.Rebundle != nil:
		s.rebundle(c.Rebundle)
	case c.Redeem != nil:
		return directory.Outcome{}, s.redeem(c.Redeem)
	case c.Epoch != nil:
		s.begin(c.Epoch)
	case c.Regrant != nil:
		s.regrant(c.Regrant)
	case c.Decide != nil:
		s.conclude(c.Decide)
	case c.Policy != nil:
		return s.legislate(c.Policy)
	case c.Rules != nil:
		s.rule(c.Rules)
	case c.Member != nil:
		return directory.Outcome{}, s.member(c.Member)
	case c.Feature != nil:
		return directory.Outcome{}, s.feature(c.Feature)
	case c.Admit != nil:
		s.admit(c.Admit)
	case c.Claim != nil:
		return s.claim(c.Claim)
	case c.Settle != nil:
		s.settle(c.Settle)
	default:
		return s.applyNext(c.commandNext)
	}
	return directory.Outcome{}, nil
}

// next gives the change at hand the domain's next revision.
func (s *state) next() uint64 {
	s.revision++
	return s.revision
}

// ended reports whether reg is past its deadline by committed time, swept or not
// (rule T3).
func (s *state) ended(reg *registration) bool { return reg.entry.ExpiresAt/1000 <= s.now/1000 }

// register is FCFR (jimenez 7.1): the name is the first one's until it is removed
// or expires, and as long after as the rules hold it; the same owner replaces, and
// keeps rid and registered_at.
func (s *state) register(c *register) (directory.Outcome, error) {
	old := s.regs.named(c.Agent)
	var gone *registration
	if old != nil && s.ended(old) {
		old, gone = nil, old
	}
	owner := c.owner()
	if old != nil && old.entry.Owner != owner {
		if !c.Commissioning || !c.For.IsZero() {
			return directory.Outcome{}, directory.Refuse(directory.NameTaken, "Agent name '%s' already registered.", c.Agent)
		}
		owner = old.entry.Owner
	}
	if err := s.permits(c, old, gone, owner); err != nil {
		return directory.Outcome{}, err
	}
	if owner != c.Granted.Owner || s.policy != c.Granted.Policy || c.Format != s.statementFormat() {
		return directory.Outcome{}, errMoved
	}
	lifetime, err := capped(c.Lifetime, c.Until, s.now)
	if err != nil {
		return directory.Outcome{}, err
	}
	if gone != nil {
		if err := s.expire(gone, c.Format); err != nil {
			return directory.Outcome{}, err
		}
	}
	e := directory.Entry{Origin: s.domain, RID: c.RID, Agent: c.Agent, Owner: owner, RegisteredAt: s.now}
	if old != nil {
		e = old.entry
	} else {
		delete(s.holds.names, c.Agent)
	}
	e.Visibility = c.Visibility
	return s.put(old, &e, contents{c.Format, c.Kind, c.Document, c.Salt, lifetime, c.Granted.grants(), c.Until, c.Made, 0, c.provenance()})
}

// permits says why c may not register for owner in the place of old, or, where that is
// nil, of gone, which has ended.
func (s *state) permits(c *register, old, gone *registration, owner directory.Identity) error {
	if old == nil {
		if err := s.vacant(c, owner, gone); err != nil {
			return err
		}
	}
	if err := c.matches(old); err != nil {
		return err
	}
	return s.affords(c.demand(old, gone, owner))
}

// owner is whose a registration is to be, where nobody has the name.
func (c *register) owner() directory.Identity {
	if c.For.IsZero() {
		return c.Caller
	}
	return c.For
}

// update replaces the document that the caller meant, and renews the lifetime
// (AD-056): one change.
func (s *state) update(c *update) (directory.Outcome, error) {
	old, err := s.owned(c.RID, c.Caller, c.Commissioning, c.IfMatch)
	if err != nil {
		return directory.Outcome{}, err
	}
	if old.entry.Statement != c.Statement || s.policy != c.Granted.Policy || c.Format != s.statementFormat() {
		return directory.Outcome{}, errMoved
	}
	e, lifetime := old.entry, c.Lifetime
	if lifetime == 0 {
		lifetime = e.Lifetime
	}
	if lifetime, err = capped(lifetime, c.Until, s.now); err != nil {
		return directory.Outcome{}, err
	}
	if err := s.affords(c.demand(old)); err != nil {
		return directory.Outcome{}, err
	}
	return s.put(old, &e, contents{c.Format, e.Document.Kind(), c.Document, c.Salt, lifetime, c.Granted.grants(), c.Until, c.Made, 0, c.provenance(old)})
}

// contents is what a statement's change brings.
type contents struct {
	format   int
	kind     directory.Kind
	document []byte
	salt     directory.Salt
	lifetime uint32
	grants   []directory.Grant
	until    int64
	made     *made // nil where the leader made nothing
	deadline int64 // Unix milliseconds; 0 where the lifetime counts from the commit

	provenance directory.Provenance
}

// put writes a statement: new contents for e, in the place of old if there is
// one.
func (s *state) put(old *registration, e *directory.Entry, c contents) (directory.Outcome, error) {
	revision := s.revision + 1
	e.Owner, e.Document = s.shared(e.Owner), directory.LoadDocument(c.kind, c.document)
	e.Packed = c.made.projection(e.Agent, e.Document)
	e.Lifetime, e.UpdatedAt, e.ExpiresAt = c.lifetime, s.now, cmp.Or(c.deadline, directory.Deadline(s.now, c.lifetime)*1000)
	e.Revision, e.Statement, e.Unconfirmed = revision, revision, false
	if e.Created == 0 {
		e.Created = revision
	}
	reg := &registration{
		entry: *e, grants: c.grants, format: c.format, epoch: s.epoch,
		issued: s.now / 1000, leaf: s.ledger.size, salt: c.salt, until: c.until,
		others: s.named(c.provenance),
	}
	if old != nil {
		reg.prev, reg.look = old.h, old.look
	}
	change := reg.change(s.domain)
	made := c.made
	if !made.fits(c.grants) {
		made = makeOf(change, c.grants)
	}
	payload, err := directory.StatementOf(c.format, change, directory.Digests{Reg: made.Reg, Doc: made.Doc})
	if err != nil {
		return directory.Outcome{}, errors.Join(errUnknownFormat, err)
	}
	reg.h = directory.HashOf(payload)
	s.next()
	s.ledger.append(leafStatement, payload)
	reg.entry.Rest()
	s.replace(old, reg)
	s.publish(reg, made, revision, true)
	s.plan(reg)
	return directory.Outcome{RID: e.RID, Created: old == nil, Granted: e.Lifetime}, nil
}

// replace puts reg into the tables in the place of old.
func (s *state) replace(old, reg *registration) {
	if old != nil && old.entry.Owner == reg.entry.Owner {
		s.count(reg.entry.Owner, reg.usage().minus(old.usage()))
	} else {
		s.count(reg.entry.Owner, reg.usage())
		if old != nil {
			s.count(old.entry.Owner, usage{}.minus(old.usage()))
		}
	}
	s.regs.put(reg)
	s.edits = append(s.edits, index.Edit{RID: reg.entry.RID, Entry: &reg.entry})
}

// refresh sets a new deadline, which counts from the commit (T1, AD-020). A
// lower one is announced at once (X1), a later one by the sweep (X2).
func (s *state) refresh(c *refresh) (directory.Outcome, error) {
	old, err := s.owned(c.RID, c.Caller, c.Commissioning, c.IfMatch)
	if err != nil {
		return directory.Outcome{}, err
	}
	if old.entry.Unconfirmed {
		return directory.Outcome{}, errMoved // it takes a statement of this epoch
	}
	reg := *old
	e := &reg.entry
	if c.Lifetime != 0 {
		e.Lifetime = c.Lifetime
	}
	if e.Lifetime, err = capped(e.Lifetime, old.until, s.now); err != nil {
		return directory.Outcome{}, err
	}
	e.ExpiresAt = directory.Deadline(s.now, e.Lifetime) * 1000
	e.Revision = s.next()
	s.replace(old, &reg)
	s.renew(&reg, e.Revision, func(x int64) bool { return x > e.ExpiresAt/1000 })
	s.plan(&reg)
	return directory.Outcome{RID: c.RID, Granted: e.Lifetime}, nil
}

func (s *state) remove(c *remove) (directory.Outcome, error) {
	reg, err := s.owned(c.RID, c.Caller, c.Commissioning, c.IfMatch)
	if err != nil {
		return directory.Outcome{}, err
	}
	if c.Format != s.statementFormat() {
		return directory.Outcome{}, errMoved
	}
	if err = s.end(reg, c.Format, func(announced) bool { return true }); err != nil {
		return directory.Outcome{}, err
	}
	s.hold(reg, s.now/1000)
	return directory.Outcome{RID: c.RID}, nil
}

// expire ends what is past its deadline. A stream is told where it once had a
// later one (X3), and its former owner is remembered (AD-058).
func (s *state) expire(reg *registration, format int) error {
	deadline := reg.entry.ExpiresAt / 1000
	err := s.end(reg, format, func(a announced) bool { return a.highest > deadline })
	if err == nil {
		s.former.remember(former{reg.entry.RID, reg.entry.Owner, s.now / 1000})
		s.hold(reg, deadline)
	}
	return err
}

// end writes reg's end statement and takes it out of everything. It says end
// where say wants it; elsewhere the deadline has said it.
func (s *state) end(reg *registration, format int, say func(announced) bool) error {
	e, revision := &reg.entry, s.revision+1
	payload, err := directory.Statement(format, &directory.Change{
		Issuer: s.domain, RID: e.RID, Op: directory.OpEnd, Epoch: s.epoch, Revision: revision, Prev: reg.h,
		IssuedAt: s.now / 1000, Since: e.RegisteredAt / 1000, Leaf: s.ledger.size,
	}, nil)
	if err != nil {
		return errors.Join(errUnknownFormat, err)
	}
	s.next()
	s.ledger.append(leafStatement, payload)
	for _, aud := range s.audiences(e.RID) {
		if a, _ := s.streams[aud].live(e.RID); say(a) {
			d := directory.Digest{RID: e.RID, Revision: revision, Op: directory.OpEnd, H: directory.HashOf(payload)}
			s.announce(aud, d, true)
		} else {
			s.streams[aud].entries.remove(e.RID)
		}
	}
	s.regs.remove(e.RID)
	s.count(e.Owner, usage{}.minus(reg.usage()))
	s.edits = append(s.edits, index.Edit{RID: e.RID})
	return nil
}

// owned returns the living registration if the caller may change it now.
func (s *state) owned(rid directory.RID, caller directory.Identity, commissioning bool, ifMatch []uint64) (*registration, error) {
	reg := s.regs.get(rid)
	if reg == nil || s.ended(reg) {
		return nil, s.missing(rid, caller, commissioning)
	}
	if reg.entry.Owner != caller && !commissioning {
		return nil, directory.Refuse(directory.Forbidden, "registration %s belongs to another identity", rid)
	}
	return reg, matches(ifMatch, reg)
}

// missing says what became of a registration to whoever may know (AD-022,
// AD-058).
func (s *state) missing(rid directory.RID, caller directory.Identity, commissioning bool) error {
	owner, known := s.former.owner(rid, s.now/1000)
	if reg := s.regs.get(rid); reg != nil {
		owner, known = reg.entry.Owner, true
	}
	if known && (commissioning || owner == caller) {
		return directory.Refuse(directory.RegistrationExpired, "registration %s has expired; register the agent again", rid)
	}
	return directory.Refuse(directory.NotFound, "there is no registration %s here", rid)
}

// matches is If-Match: nil demands nothing, otherwise the current revision is
// among them.
func matches(revisions []uint64, reg *registration) error {
	switch {
	case revisions == nil:
		return nil
	case reg == nil:
		return directory.Refuse(directory.PreconditionFailed, "If-Match was given, and nothing is registered under this name")
	case !slices.Contains(revisions, reg.entry.Revision):
		return directory.Refuse(directory.PreconditionFailed, "registration %s is at revision %d; read it again and repeat the change on that", reg.entry.RID, reg.entry.Revision)
	}
	return nil
}
