package consensus

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/roster-mesh/roster/directory"
)

// transferring is a transfer command as a leader makes it.
func (d *drive) transferring(who directory.Identity, rid directory.RID, to directory.Identity) *transfer {
	d.n++
	g := meshGrant(to)
	g.Policy = d.state.policy
	return &transfer{Format: directory.StatementFormat, RID: rid, Salt: directory.Salt{byte(d.n)}, Caller: who, Statement: d.entry(rid).Statement, Granted: g}
}

// A transfer is one change with one leaf: a statement with the new owner and the
// contents, the deadline and the name as they were.
//
// Requirement: TRUST-008
func TestOwnershipChangesByTransferAlone(t *testing.T) {
	d := newDrive(t)
	rid := d.register(1, ada, "translator", 600)
	before := d.entry(rid)

	for _, who := range []directory.Identity{bob, tool, must(directory.ParseIdentity("wimse://alpha.test/agent/ada"))} {
		problem(t, d.at(2, command{Register: d.registering(who, "translator", 600)}).err, directory.NameTaken)
		problem(t, d.at(2, command{Transfer: d.transferring(who, rid, who)}).err, directory.Forbidden)
	}
	again := d.registering(ada, "translator", 600)
	again.Caller, again.Commissioning, again.Made = tool, true, nil
	if r := d.at(3, command{Register: again}); r.err != nil || d.entry(rid).Owner != ada {
		t.Fatalf("a commissioning tool's replace: %v, owner %s", r.err, d.entry(rid).Owner)
	}
	before, size, h := d.entry(rid), d.state.ledger.size, d.state.regs.get(rid).h

	c := d.transferring(ada, rid, bob)
	r := d.at(100, command{Transfer: c})
	after := d.entry(rid)
	if r.err != nil || r.outcome.RID != rid || r.outcome.Position.Revision != before.Revision+1 || d.state.ledger.size != size+1 {
		t.Fatalf("a transfer gave %+v; %d leaves more", r, d.state.ledger.size-size)
	}
	want := before
	want.Owner, want.Revision, want.Statement, want.UpdatedAt = bob, before.Revision+1, before.Revision+1, genesis+100_000
	want.Document, want.Packed = after.Document, after.Packed
	if string(after.Document.Bytes()) != string(before.Document.Bytes()) || after.Agent != want.Agent || after.Owner != want.Owner ||
		after.ExpiresAt != want.ExpiresAt || after.Lifetime != want.Lifetime || after.RegisteredAt != want.RegisteredAt || after.Created != want.Created ||
		after.Revision != want.Revision || after.Statement != want.Statement || after.UpdatedAt != want.UpdatedAt {
		t.Errorf("a transfer made %+v of %+v", after, before)
	}
	reg := d.state.regs.get(rid)
	if reg.prev != h || reg.change(alpha).Owner != bob {
		t.Errorf("the statement follows %s and has owner %s", reg.prev, reg.change(alpha).Owner)
	}
	if ds := d.mesh(before.Revision); len(ds) != 1 || ds[0].Op != directory.OpPut || ds[0].H != reg.h || ds[0].Deadline != before.ExpiresAt/1000 {
		t.Errorf("the mesh is told %+v", ds)
	}

	problem(t, d.refresh(101, ada, rid, 0).err, directory.Forbidden)
	if r := d.refresh(101, bob, rid, 0); r.err != nil {
		t.Errorf("its new owner's refresh: %v", r.err)
	}
	if r := d.at(102, command{Transfer: d.transferring(bob, rid, bob)}); r.err != nil || d.entry(rid).Statement != want.Statement {
		t.Errorf("a transfer to its owner: %v, and a statement of %d", r.err, d.entry(rid).Statement)
	}
	back := d.transferring(tool, rid, ada)
	back.Any = true
	if r := d.at(103, command{Transfer: back}); r.err != nil || d.entry(rid).Owner != ada {
		t.Errorf("an operator's transfer: %v", r.err)
	}
	restored := restore(t, d.state)
	if restored.regs.get(rid).h != d.state.regs.get(rid).h || restored.holdings.byOwner[ada].records != 1 || d.state.holdings.byOwner[ada].records != 1 || d.state.holdings.byOwner[bob].records != 0 {
		t.Errorf("restored, %s has %d and %s %d", ada, restored.holdings.byOwner[ada].records, bob, d.state.holdings.byOwner[bob].records)
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
	if r := d.at(3, command{Transfer: stale}); !errors.Is(r.err, errMoved) {
		t.Errorf("with other contents by now: %v", r.err)
	}
	old := d.transferring(ada, rid, bob)
	d.at(4, command{Policy: &policy{Text: []byte("forbid (principal, action, resource);")}})
	if r := d.at(5, command{Transfer: old}); !errors.Is(r.err, errMoved) {
		t.Errorf("with another policy by now: %v", r.err)
	}
	matching := d.transferring(ada, rid, bob)
	matching.IfMatch = []uint64{1}
	problem(t, d.at(6, command{Transfer: matching}).err, directory.PreconditionFailed)

	d.at(7, command{Rules: &Rules{PerOwner: 1}})
	d.register(8, bob, "summarizer", 600)
	revision := d.state.revision
	problem(t, d.at(9, command{Transfer: d.transferring(ada, rid, bob)}).err, directory.QuotaExceeded)
	if d.entry(rid).Owner != ada || d.state.revision != revision {
		t.Error("a refused transfer changed something")
	}
	gone := d.transferring(ada, rid, tool)
	problem(t, d.at(700, command{Transfer: gone}).err, directory.RegistrationExpired)
}

// A change that was permitted by a policy which is in force no more is asked about
// anew, at whatever member it was permitted.
//
// Requirement: TRUST-008, TRUST-013
func TestWhatAnOldPolicyPermittedIsAskedAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDomain(t, 3, nil)
		d.ready()
		leader, other := d.leader()
		version := uint64(0)
		judged := func(r directory.Registering) directory.Registering {
			r.Caller.Judged = &version
			return r
		}
		out, err := d.nodes[other].Register(t.Context(), judged(put(t, ada, "translator", 600)))
		if err != nil {
			t.Fatal(err)
		}
		give := directory.Transferring{Caller: directory.Caller{Identity: ada, Judged: &version}, RID: out.RID, To: bob, Statement: out.Position.Revision}
		if _, err := d.nodes[leader].SetPolicy(t.Context(), []byte("permit (principal, action, resource);"), nil); err != nil {
			t.Fatal(err)
		}
		_, err = d.nodes[other].Register(t.Context(), judged(put(t, ada, "translator", 600)))
		problem(t, err, directory.Overtaken)
		_, err = d.nodes[other].TransferOwner(t.Context(), give)
		problem(t, err, directory.Overtaken)

		version = d.nodes[leader].Position().Revision
		give.Statement++
		_, err = d.nodes[other].TransferOwner(t.Context(), give)
		problem(t, err, directory.Overtaken)
		give.Statement--
		if _, err := d.nodes[other].TransferOwner(t.Context(), give); err != nil {
			t.Fatal(err)
		}
		_, err = d.nodes[leader].Refresh(t.Context(), directory.Refreshing{Caller: directory.Caller{Identity: ada}, RID: out.RID})
		problem(t, err, directory.Forbidden)
		if _, err := d.nodes[leader].Refresh(t.Context(), directory.Refreshing{Caller: directory.Caller{Identity: bob}, RID: out.RID}); err != nil {
			t.Errorf("its new owner: %v", err)
		}
	})
}

// A commissioning tool that names an owner makes that one's registration, within its
// quota, and takes nobody's name for it.
//
// Requirement: AD-077
func TestRegisteringOnBehalf(t *testing.T) {
	d := newDrive(t)
	d.at(0, command{Rules: &Rules{PerOwner: 1}})
	behalf := func(agent string, owner directory.Identity) result {
		c := d.registering(owner, agent, 600)
		c.Caller, c.Commissioning, c.For = tool, true, owner
		return d.at(1, command{Register: c})
	}
	r := behalf("translator", ada)
	if r.err != nil || d.entry(r.outcome.RID).Owner != ada {
		t.Fatalf("%v; its owner is %s", r.err, d.entry(r.outcome.RID).Owner)
	}
	if again := behalf("translator", ada); again.err != nil || again.outcome.RID != r.outcome.RID {
		t.Errorf("once more: %+v", again)
	}
	problem(t, behalf("translator", bob).err, directory.NameTaken)
	problem(t, behalf("summarizer", ada).err, directory.QuotaExceeded)
	for _, who := range []directory.Identity{ada, tool} {
		if r := d.at(2, command{Refresh: &refresh{RID: r.outcome.RID, Caller: who, Commissioning: who == tool}}); r.err != nil {
			t.Errorf("%s refreshes it: %v", who, r.err)
		}
	}
}
