package state

import (
	"testing"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
)

var otto = must(directory.ParseIdentity("spiffe://alpha.test/operator/otto"))

// provenance returns what the record of a registration says of who registered it,
// and demands that it opens.
func (d *drive) provenance(rid directory.RID) directory.Provenance {
	d.t.Helper()

	reg := d.state.registrations.regs.get(rid)
	change := reg.change(alpha)
	disclosures := change.Disclosures()

	payload, err := signed.Statement(reg.format, change, disclosures)
	if err != nil {
		d.t.Fatal(err)
	}

	texts, _ := signed.Disclosed(disclosures, directory.Grant{All: true})

	contents, err := signed.OpenRecord(payload, texts)
	if err != nil || contents.H != reg.h {
		d.t.Fatalf("the record of %s: %v", reg.entry.Agent, err)
	}

	return contents.Provenance
}

// registerFor has the tool register on behalf of owner.
func (d *drive) registerFor(seconds int64, owner directory.Identity, agent string, leaderMade bool) directory.RID {
	d.t.Helper()

	c := d.registering(owner, agent, 600)
	c.Caller = tool
	c.Commissioning = true
	c.For = owner

	c.Made = nil
	if leaderMade {
		c.Made = must(c.prepared(d.t))
	}

	r := d.at(seconds, Command{Register: c})
	if r.Err != nil {
		d.t.Fatal(r.Err)
	}

	return r.Outcome.RID
}

// Requirement: TRUST-008, FORM-001
func TestStatementsSayWhoRegisteredAndWhoTransferred(t *testing.T) {
	byTool := directory.Provenance{Registrant: tool, RegisteredBy: tool}

	for _, leaderMade := range []bool{false, true} {
		d := newDrive(t)

		own := d.register(1, ada, "own", 600)
		if got := d.provenance(own); !got.IsZero() {
			t.Errorf("the owner's own registration says %+v", got)
		}

		rid := d.registerFor(2, ada, "translator", leaderMade)
		if got := d.provenance(rid); got != byTool {
			t.Errorf("a tool's registration says %+v", got)
		}

		d.refresh(3, ada, rid, 300)

		if got := d.provenance(rid); got != byTool {
			t.Errorf("after the owner's refresh it says %+v", got)
		}

		// An operator moves it: the tool stays the registrant.
		d.at(4, Command{Transfer: d.transferring(otto, rid, bob)})

		if got, want := d.provenance(rid), (directory.Provenance{Registrant: tool, RegisteredBy: tool,
			TransferredBy: otto}); got != want {
			t.Errorf("a forced transfer says %+v, want %+v", got, want)
		}

		// And of what its owner had registered, the owner.
		d.at(5, Command{Transfer: d.transferring(otto, own, bob)})

		moved := directory.Provenance{Registrant: ada, TransferredBy: otto}
		if got := d.provenance(own); got != moved {
			t.Errorf("a forced transfer says %+v, want %+v", got, moved)
		}

		// A snapshot keeps it.
		if got := restore(t, d.state).registrations.regs.get(own).provenance(); got != moved {
			t.Errorf("a snapshot has %+v", got)
		}

		// The new owner registers: now the contents are theirs.
		again := d.registering(bob, "own", 600)
		if r := d.at(6, Command{Register: again}); r.Err != nil || !d.provenance(own).IsZero() {
			t.Errorf("after the new owner's registration it says %+v, %v", d.provenance(own), r.Err)
		}
	}
}

// A refresh of what was restored takes a statement, and registers nothing anew.
//
// Requirement: TRUST-008
func TestARefreshOfWhatWasRestoredKeepsTheRegistrant(t *testing.T) {
	d := newDrive(t)
	rid := d.registerFor(1, ada, "translator", true)
	before := d.provenance(rid)

	e := d.entry(rid)
	g := meshGrant(ada)
	g.Policy = d.state.policy.basis

	c := &Update{
		Format: 1, RID: rid, Salt: signed.Salt{9}, Caller: ada, Statement: e.Statement,
		Document: e.Document.Bytes(), Granted: g, Unchanged: true,
	}
	if r := d.at(2, Command{Update: c}); r.Err != nil || d.provenance(rid) != before {
		t.Errorf("got %+v, %v", d.provenance(rid), r.Err)
	}

	c.Statement, c.Unchanged = d.entry(rid).Statement, false
	if r := d.at(3, Command{Update: c}); r.Err != nil || !d.provenance(rid).IsZero() {
		t.Errorf("after the owner's update it says %+v, %v", d.provenance(rid), r.Err)
	}
}
