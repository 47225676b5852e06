package state

import (
	"slices"
	"testing"

	"github.com/roster-mesh/roster/directory"
)

// The contents of a living registration are not erased. Those of one that has ended are, and no backup from
// before brings the registration back.
//
// Requirement: LOG-012
func TestABackupBringsNoErasedRegistrationBack(t *testing.T) {
	d := newDrive(t)
	d.at(0, Command{Peer: &peerBeta})
	rid := d.register(1, ada, "agent", 600)

	problem(t, d.at(2, Command{Erase: &Erase{rid}}).Err, directory.Conflict) // the contents of a living registration

	before := freeze(t, d.state)

	d.applies(3, Command{Remove: &Remove{Format: 1, RID: rid, Caller: ada}})

	at := d.state.history.revision

	d.applies(4, Command{Erase: &Erase{rid}})

	for range 2 { // to repeat it changes nothing
		d.applies(5, Command{Erase: &Erase{rid}})

		if got := d.state.Erasures().After(at); !slices.Equal(got, []Erasure{{rid, at + 1, nil}}) {
			t.Fatalf("%v are erased", got)
		}
	}

	if got := d.state.Erasures().After(at + 1); len(got) > 0 {
		t.Errorf("%v are erased behind the last one", got)
	}

	forged := restore(t, d.state)
	if err := forged.Follows(d.state); err != nil {
		t.Error(err)
	}

	delete(forged.erasures.known, rid)

	if forged.Follows(d.state) == nil {
		t.Error("a member takes a snapshot without an erasure that it knows")
	}

	old := thaw(t, before)
	if old.registrations.Get(rid) == nil {
		t.Fatal("the backup has no such registration")
	}

	d.register(6, ada, "other", 600)

	if loss, want := LossBy(d.state, old), (Loss{Made: 1}); loss != want {
		t.Errorf("a restore loses %+v, want %+v", loss, want)
	}

	old.Succeed(d.state.Outline(), "a test", nil)

	next := restore(t, old)
	if next.registrations.Get(rid) != nil || !next.Erasures().Has(rid) {
		t.Error("the registration is back")
	}
}
