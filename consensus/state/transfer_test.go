package state

import (
	"errors"
	"testing"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
)

// transferring is a transfer command as a leader makes it.
func (d *drive) transferring(who directory.Identity, rid directory.RID, to directory.Identity) *Transfer {
	d.n++
	g := meshGrant(to)
	g.Policy = d.state.policy.basis

	return &Transfer{Format: signed.StatementFormat, RID: rid, Salt: signed.Salt{byte(d.n)}, Caller: who,
		Statement: d.entry(rid).Statement, Granted: g, Agent: d.entry(rid).Agent}
}

// A transfer is one change with two leaves: an operator's command, and a statement with the new owner
// and the contents, the deadline and the name as they were.
//
// Requirement: TRUST-008
func TestOwnershipChangesByTransferAlone(t *testing.T) {
	d := newDrive(t)
	rid := d.register(1, ada, "translator", 600)
	before := d.entry(rid)

	for _, who := range []directory.Identity{bob, tool, must(directory.ParseIdentity("wimse://alpha.test/agent/ada"))} {
		problem(t, d.at(2, Command{Register: d.registering(who, "translator", 600)}).Err, directory.NameTaken)
	}

	again := d.registering(ada, "translator", 600)
	again.Caller = tool
	again.Commissioning = true

	again.Made = nil
	if r := d.at(3, Command{Register: again}); r.Err != nil || d.entry(rid).Owner != ada {
		t.Fatalf("a commissioning tool's replace: %v, owner %s", r.Err, d.entry(rid).Owner)
	}

	before = d.entry(rid)
	size := d.state.history.ledger.Size
	h := d.state.registrations.regs.get(rid).h

	c := d.transferring(ada, rid, bob)
	r := d.at(100, Command{Transfer: c})

	after := d.entry(rid)
	if r.Err != nil || r.Outcome.RID != rid || r.Outcome.Position.Revision != before.Revision+1 ||
		d.state.history.ledger.Size != size+2 {
		t.Fatalf("a transfer gave %+v; %d leaves more", r, d.state.history.ledger.Size-size)
	}

	want := before
	want.Owner, want.Revision, want.Statement, want.UpdatedAt = bob, before.Revision+1, before.Revision+1, genesis+
		100_000

	want.Document, want.Packed = after.Document, after.Packed
	if string(after.Document.Bytes()) != string(before.Document.Bytes()) || after.Agent != want.Agent ||
		after.Owner != want.Owner ||
		after.ExpiresAt != want.ExpiresAt || after.Lifetime != want.Lifetime ||
		after.RegisteredAt != want.RegisteredAt || after.Created != want.Created ||
		after.Revision != want.Revision || after.Statement != want.Statement || after.UpdatedAt != want.UpdatedAt {
		t.Errorf("a transfer made %+v of %+v", after, before)
	}

	reg := d.state.registrations.regs.get(rid)
	if reg.prev != h || reg.change(alpha).Owner != bob {
		t.Errorf("the statement follows %s and has owner %s", reg.prev, reg.change(alpha).Owner)
	}

	if ds := d.mesh(before.Revision); len(ds) != 1 || ds[0].Op != signed.OpPut || ds[0].H != reg.h ||
		ds[0].Deadline != before.ExpiresAt/1000 {
		t.Errorf("the mesh is told %+v", ds)
	}

	problem(t, d.refresh(101, ada, rid, 0).Err, directory.Forbidden)

	if r := d.refresh(101, bob, rid, 0); r.Err != nil {
		t.Errorf("its new owner's refresh: %v", r.Err)
	}

	if r := d.at(102, Command{Transfer: d.transferring(bob, rid, bob)}); r.Err != nil ||
		d.entry(rid).Statement != want.Statement {
		t.Errorf("a transfer to its owner: %v, and a statement of %d", r.Err, d.entry(rid).Statement)
	}

	back := d.transferring(tool, rid, ada)

	if r := d.at(103, Command{Transfer: back}); r.Err != nil || d.entry(rid).Owner != ada {
		t.Errorf("an operator's transfer: %v", r.Err)
	}

	restored := restore(t, d.state)
	if restored.registrations.regs.get(rid).h != d.state.registrations.regs.get(rid).h ||
		restored.owners.holdings.byOwner[ada].records != 1 || d.state.owners.holdings.byOwner[ada].records != 1 ||
		d.state.owners.holdings.byOwner[bob].records != 0 {
		t.Errorf("restored, %s has %d and %s %d", ada, restored.owners.holdings.byOwner[ada].records, bob,
			d.state.owners.holdings.byOwner[bob].records)
	}
}

// What policy was asked about must be what is transferred, and who is to own it is
// bound by the quota.
//
// Requirement: TRUST-008
func TestWhatATransferIsRefusedFor(t *testing.T) {
	d := newDrive(t)
	rid := d.register(1, ada, "translator", 600)
	stale := d.transferring(ada, rid, bob)
	d.register(2, ada, "translator", 600)

	if r := d.at(3, Command{Transfer: stale}); !errors.Is(r.Err, ErrMoved) {
		t.Errorf("with other contents by now: %v", r.Err)
	}

	old := d.transferring(ada, rid, bob)
	d.at(4, Command{Policy: &Policy{Text: []byte("forbid (principal, action, resource);")}})

	if r := d.at(5, Command{Transfer: old}); !errors.Is(r.Err, ErrMoved) {
		t.Errorf("with another policy by now: %v", r.Err)
	}

	matching := d.transferring(ada, rid, bob)
	matching.IfMatch = []uint64{1}
	problem(t, d.at(6, Command{Transfer: matching}).Err, directory.PreconditionFailed)

	d.at(7, Command{Rules: &Rules{PerOwner: 1}})
	d.register(8, bob, "summarizer", 600)
	revision := d.state.history.revision
	problem(t, d.at(9, Command{Transfer: d.transferring(ada, rid, bob)}).Err, directory.QuotaExceeded)

	if d.entry(rid).Owner != ada || d.state.history.revision != revision {
		t.Error("a refused transfer changed something")
	}

	gone := d.transferring(ada, rid, tool)
	problem(t, d.at(700, Command{Transfer: gone}).Err, directory.RegistrationExpired)
}

// A commissioning tool that names an owner makes that one's registration, within its
// quota, and takes nobody's name for it.
//
// Requirement: AD-077
func TestRegisteringOnBehalf(t *testing.T) {
	d := newDrive(t)
	d.at(0, Command{Rules: &Rules{PerOwner: 1}})
	behalf := func(agent string, owner directory.Identity) Result {
		c := d.registering(owner, agent, 600)
		c.Caller = tool
		c.Commissioning = true
		c.For = owner

		return d.at(1, Command{Register: c})
	}

	r := behalf("translator", ada)
	if r.Err != nil || d.entry(r.Outcome.RID).Owner != ada {
		t.Fatalf("%v; its owner is %s", r.Err, d.entry(r.Outcome.RID).Owner)
	}

	if again := behalf("translator", ada); again.Err != nil || again.Outcome.RID != r.Outcome.RID {
		t.Errorf("once more: %+v", again)
	}

	problem(t, behalf("translator", bob).Err, directory.NameTaken)
	problem(t, behalf("summarizer", ada).Err, directory.QuotaExceeded)

	for _, who := range []directory.Identity{ada, tool} {
		if r := d.at(2, Command{Refresh: &Refresh{RID: r.Outcome.RID, Caller: who,
			Commissioning: who == tool}}); r.Err != nil {
			t.Errorf("%s refreshes it: %v", who, r.Err)
		}
	}
}
