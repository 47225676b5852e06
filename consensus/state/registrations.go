package state

import (
	"slices"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/index"
	"github.com/roster-mesh/roster/directory/table"
)

// Registrations are the domain's own registrations and the commands that change them.
type Registrations struct {
	history *History
	members *Membership // for the format of statements
	policy  *PolicyState
	owners  *Ownership
	streams *Streams

	regs     registry
	index    *index.Index // for readers; nil if there are none
	expiries table.Heap[expiryCheck]
	pace     pace         // of the log entry that is applied
	edits    []index.Edit // by which the index is behind; empty while it may be read
	load     func()       // fills the index with a state that was read; nil once it has
}

func newRegistrations(index *index.Index) Registrations {
	return Registrations{regs: newRegistry(), index: index}
}

// Get returns a registration, whether or not its deadline has passed; nil if there is
// none.
func (r *Registrations) Get(rid directory.RID) *Registration { return r.regs.get(rid) }

// Named returns the registration of an agent name; nil if there is none.
func (r *Registrations) Named(agent string) *Registration { return r.regs.named(agent) }

// Len returns how many registrations there are.
func (r *Registrations) Len() int { return r.regs.len() }

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
func (r *Registrations) Record(aud directory.Audience, h, m directory.Hash) (*Registration, directory.Grant, bool) {
	reg := r.regs.stated(h)
	if reg == nil {
		return nil, directory.Grant{}, false
	}

	entry, ok := r.streams.byAudience[aud].live(reg.entry.RID)
	if !ok || entry.h != h || entry.m != m {
		return nil, directory.Grant{}, false
	}
	i := slices.IndexFunc(reg.grants, func(g directory.Grant) bool { return g.Audience == aud })

	return reg, reg.grants[i], true
}

// A registration is one of the domain's own, whether or not its deadline has
// passed. But for look it is never modified: a change puts another in its place,
// so that a snapshot may read it while changes go on. Its entry is a part of it,
// which the index points to: of 10^6 each is one thing less for the collector.
type Registration struct {
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

// Entry returns the registration's entry, which must not be modified.
func (r *Registration) Entry() *directory.Entry { return &r.entry }

// Grants returns the registration's grants, which must not be modified.
func (r *Registration) Grants() []directory.Grant { return r.grants }

// Statement builds the registration's statement again, with the disclosures of a grant:
// the same bytes as in Apply. It may be called beside Apply.
func (r *Registration) Statement(grant directory.Grant) (payload []byte, disclosures []string, ok bool) {
	change := r.change(r.entry.Origin)
	all := change.Disclosures()

	payload, err := directory.Statement(r.format, change, all)
	if err != nil {
		return nil, nil, false // Apply would have stopped at this format
	}

	return payload, directory.DisclosedTexts(all, grant), true
}

// Shown returns the m of each of some grants for the registration's statement.
func (r *Registration) Shown(grants []directory.Grant) []byte {
	return shownTo(r.change(r.entry.Origin), grants)
}

// change is what reg's statement says.
func (r *Registration) change(domain spiffeid.TrustDomain) *directory.Change {
	e := &r.entry
	return &directory.Change{
		Issuer: domain, RID: e.RID, Op: directory.OpPut, Epoch: r.epoch, Revision: e.Statement, Prev: r.prev,
		IssuedAt: r.issued, Since: e.RegisteredAt / 1000, Leaf: r.leaf,
		Agent: e.Agent, Owner: e.Owner, Document: e.Document, Salt: r.salt,
		Provenance: r.provenance(),
	}
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
func (r *Registrations) step() {
	if r.pace.changes++; r.pace.changes > atOneGo && len(r.streams.uncovered) == 0 {
		r.show()
		r.pace.breathe()
		r.pace.changes = 0
	}
}

// show has the readers of the index see what was changed.
func (r *Registrations) show() {
	if len(r.edits) == 0 {
		return
	}
	r.index.Apply(r.edits)
	clear(r.edits)
	r.edits = r.edits[:0]
}
