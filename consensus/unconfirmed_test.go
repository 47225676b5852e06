package consensus

import (
	"bytes"
	"errors"
	"testing"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/index"
)

// reread is s as a member has it that starts from a snapshot of it.
func reread(t *testing.T, s *state) *state {
	s = must(readSnapshot(bytes.NewReader(freeze(t, s)), alpha, index.New(), &snapshotHeader{}))
	s.fillIndex()
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
	before := d.state.epoch
	d.state.succeed(d.state.outline(), "a test")
	d.state = reread(t, d.state)

	problem(t, d.at(1, command{Register: d.registering(bob, "another", 600)}).err, directory.Unavailable)
	d.at(2, command{Epoch: &epoch{before, "again"}})
	if d.state.epoch != before || d.state.sealed == "" {
		t.Fatalf("epoch %d follows %d", d.state.epoch, before)
	}
	d.at(3, command{Epoch: &epoch{before + 3, "a test"}})
	if d.state.epoch != before+3 || d.state.sealed != "" {
		t.Fatalf("epoch %d is sealed by %q", d.state.epoch, d.state.sealed)
	}
	d.state = reread(t, d.state) // as a member that starts anew

	g := meshGrant(ada)
	g.Policy = d.state.policy
	d.at(4, command{Regrant: &regrant{[]regrantItem{{RID: rid, Statement: d.entry(rid).Statement, Granted: g}}}})
	if r := d.refresh(5, ada, rid, 0); !errors.Is(r.err, errMoved) {
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
	d.at(1, command{Peer: &peerBeta})
	d.at(2, command{Decide: &decide{&verdict{Policy: d.state.policy}}})
	backup := reread(t, d.state)
	ended := peerBeta
	ended.State = directory.PeeringTerminated
	d.at(3, command{Peer: &ended})
	backup.succeed(d.state.outline(), "a test")
	if p := backup.peerings[beta]; p.State != directory.PeeringTerminated {
		t.Errorf("the peering is %s", p.State)
	}
	if backup.now != d.state.now || backup.policy != d.state.policy || backup.verdict != nil {
		t.Errorf("time %d, policy %d, verdict %+v; it was %d and %d", backup.now, backup.policy, backup.verdict, d.state.now, d.state.policy)
	}
}
