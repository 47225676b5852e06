package state

import (
	"bytes"
	"errors"
	"testing"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/index"
)

// reread is s as a member has it that starts from a snapshot of it.
func reread(t *testing.T, s *State) *State {
	s = must(readSnapshot(bytes.NewReader(freeze(t, s)), alpha, index.New(), &Header{}))
	s.registrations.FillIndex()

	return s
}

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
	d.state = reread(t, d.state)

	problem(t, d.at(1, Command{Register: d.registering(bob, "another", 600)}).Err, directory.Unavailable)
	d.at(2, Command{Epoch: &Epoch{before, "again"}})

	if d.state.history.epoch != before || d.state.history.sealed == "" {
		t.Fatalf("epoch %d follows %d", d.state.history.epoch, before)
	}

	d.at(3, Command{Epoch: &Epoch{before + 3, "a test"}})

	if d.state.history.epoch != before+3 || d.state.history.sealed != "" {
		t.Fatalf("epoch %d is sealed by %q", d.state.history.epoch, d.state.history.sealed)
	}

	d.state = reread(t, d.state) // as a member that starts anew

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
// taken, and all grants are decided anew.
//
// Requirement: MESH-019
func TestWhatWasAgreedSinceStaysAgreed(t *testing.T) {
	d := newDrive(t)
	d.at(1, Command{Peer: &peerBeta})
	d.at(2, Command{Decide: &Decide{&Verdict{Policy: d.state.policy.basis}}})
	backup := reread(t, d.state)
	ended := peerBeta
	ended.State = directory.PeeringTerminated
	d.at(3, Command{Peer: &ended})
	backup.Succeed(d.state.Outline(), "a test", nil)

	if p := backup.peers.byDomain[beta]; p.State != directory.PeeringTerminated {
		t.Errorf("the peering is %s", p.State)
	}

	if backup.history.now != d.state.history.now || backup.policy.basis != d.state.policy.basis ||
		backup.policy.verdict != nil {
		t.Errorf("time %d, policy %d, verdict %+v; it was %d and %d", backup.history.now, backup.policy.basis,
			backup.policy.verdict, d.state.history.now, d.state.policy.basis)
	}
}
