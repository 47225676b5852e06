package state

import (
	"errors"
	"testing"

	"github.com/roster-mesh/roster/directory"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// A restored history takes nothing but a new epoch, which lies above the old one; and
// what it brought back is told nobody until its owner has written it again: neither by
// policy's new answers nor by a refresh, which has no statement of that epoch.
//
// Requirement: MESH-018
func TestWhatIsRestoredIsExportedByItsOwner(t *testing.T) {
	d := newDrive(t)
	rid := d.register(0, ada, "translator", 4000)
	before := d.state.history.epoch
	d.state.Succeed(d.state.Outline(), "a test", nil)
	d.state = restore(t, d.state)

	problem(t, d.at(1, Command{Register: d.registering(bob, "another", 600)}).Err, directory.Unavailable)
	d.at(2, Command{Epoch: &Epoch{before, "again"}})

	if d.state.history.epoch != before || d.state.history.sealed == "" {
		t.Fatalf("epoch %d follows %d", d.state.history.epoch, before)
	}

	d.at(3, Command{Epoch: &Epoch{before + 3, "a test"}})

	if d.state.history.epoch != before+3 || d.state.history.sealed != "" {
		t.Fatalf("epoch %d is sealed by %q", d.state.history.epoch, d.state.history.sealed)
	}

	d.state = restore(t, d.state) // as a member that starts anew

	g := meshGrant(ada)
	g.Policy = d.state.policy.basis
	d.at(4, Command{Regrant: &Regrant{[]RegrantItem{{RID: rid, Statement: d.entry(rid).Statement, Granted: g}}}})

	if r := d.refresh(5, ada, rid, 0); !errors.Is(r.Err, ErrMoved) {
		t.Errorf("a refresh: %+v", r)
	}

	if ds := d.mesh(0); len(ds) != 0 || !d.entry(rid).Unconfirmed {
		t.Errorf("announced before its owner spoke: %+v", ds)
	}

	d.register(6, ada, "translator", 4000)

	if ds := d.mesh(0); len(ds) != 1 || ds[0].RID != rid || d.entry(rid).Unconfirmed {
		t.Errorf("announced after its owner spoke: %+v", ds)
	}
}

// What was agreed since a backup stays agreed when that is restored: a peering that has
// ended is not active again, time doesn't go back, no answer that policy gave before is
// taken, all grants are decided anew, and the key document is the last that was issued.
//
// Requirement: MESH-019
func TestWhatWasAgreedSinceStaysAgreed(t *testing.T) {
	d := newDrive(t)
	d.at(1, Command{Peer: &peerBeta})
	d.at(2, Command{Decide: &Decide{&Verdict{Policy: d.state.policy.basis}}})
	node := spiffeid.RequireFromString("spiffe://alpha.test/roster/node/a")
	d.applies(2, Command{Attest: &Attest{node, make([]byte, 32), []string{"one"}, nil}})
	backup := restore(t, d.state)
	ended := peerBeta
	ended.State = directory.PeeringTerminated
	d.at(3, Command{Peer: &ended})
	d.applies(4, Command{Attest: &Attest{node, make([]byte, 32), []string{"two"}, nil}})
	backup.Succeed(d.state.Outline(), "a test", nil)

	if p := backup.peers.byDomain[beta]; p.State != directory.PeeringTerminated {
		t.Errorf("the peering is %s", p.State)
	}

	if backup.history.now != d.state.history.now || backup.policy.basis != d.state.policy.basis ||
		backup.policy.verdict != nil {
		t.Errorf("time %d, policy %d, verdict %+v; it was %d and %d", backup.history.now, backup.policy.basis,
			backup.policy.verdict, d.state.history.now, d.state.policy.basis)
	}

	if got, want := backup.keys.Document(), d.state.keys.Document(); got != want {
		t.Errorf("the key document is %+v, want %+v", got, want)
	}
}

// What a restore costs is counted: registrations made, changed, removed and kept alive since the
// backup, and those that peers had. A refresh of a lease that still runs in the backup costs nothing,
// and a domain without registrations loses nothing.
//
// Requirement: MESH-019
func TestTheLossByARestoreIsCounted(t *testing.T) {
	d := newDrive(t)
	d.at(0, Command{Peer: &peerBeta})

	removed := d.register(1, ada, "removed", 4000)
	lapsed := d.register(1, ada, "lapsed", 60)
	d.register(1, ada, "ended", 60)
	d.register(1, ada, "changed", 4000)
	refreshed := d.register(1, ada, "refreshed", 4000)
	backup := restore(t, d.state)

	if loss := LossBy(d.state, backup); loss.Changes() != 0 || loss.Exported != 5 {
		t.Errorf("nothing was changed: %+v", loss)
	}

	d.refresh(2, ada, refreshed, 0)
	d.at(3, Command{Remove: &Remove{Format: 1, RID: removed, Caller: ada}})
	d.refresh(4, ada, lapsed, 4000)
	d.register(5, ada, "changed", 4000)
	d.register(5, ada, "made", 4000)
	d.register(5, ada, "made-too", 4000)
	ended := d.state.registrations.Named("ended").entry.RID
	d.at(100, Command{Expire: &Sweep{1, []directory.RID{ended}}})

	want := Loss{Made: 2, Changed: 1, Removed: 1, Lapsed: 1, Exported: 5}
	if loss := LossBy(d.state, backup); loss != want || loss.Changes() != 5 {
		t.Errorf("%+v, want %+v", loss, want)
	}

	if loss := LossBy(newDrive(t).state, backup); loss != (Loss{}) {
		t.Errorf("a new domain loses %+v", loss)
	}
}

// Unconfirmed registrations are counted until each was written by its owner, or has ended.
//
// Requirement: MESH-018
func TestUnconfirmedRegistrationsAreCounted(t *testing.T) {
	d := newDrive(t)
	d.register(0, ada, "one", 4000)
	two := d.register(0, ada, "two", 4000)
	d.register(0, ada, "three", 4000)
	d.state.Succeed(d.state.Outline(), "a test", nil)
	d.state = restore(t, d.state)
	d.at(1, Command{Epoch: &Epoch{d.state.history.epoch + 3, "a test"}})
	d.register(2, ada, "four", 4000)

	for i, change := range []func(){
		func() {},
		func() { d.register(3, ada, "one", 4000) },
		func() { d.register(4, ada, "one", 4000) },
		func() { d.at(5, Command{Remove: &Remove{Format: 1, RID: two, Caller: ada}}) },
		func() { d.register(6, ada, "three", 4000) },
	} {
		change()

		if got, want := d.state.registrations.Unconfirmed(), []int{3, 2, 2, 1, 0}[i]; got != want {
			t.Errorf("%d changes: %d are unconfirmed, want %d", i, got, want)
		}

		again := restore(t, d.state).registrations.Unconfirmed()
		if want := d.state.registrations.Unconfirmed(); again != want {
			t.Errorf("%d changes: %d are unconfirmed in a snapshot, want %d", i, again, want)
		}
	}
}
