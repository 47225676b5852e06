package state

import (
	"bytes"
	"slices"
	"testing"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
)

// Requirement: FORM-002
func TestTheKeyDocumentSaysWhatAllMembersRead(t *testing.T) {
	d := newDrive(t)
	says := func(node string, formats signed.Formats) *signed.KeyDocument {
		t.Helper()

		reads := Versions{Log: 1, Snapshot: 1, Wire: 1, Formats: formats}
		d.applies(1, Command{Member: &Member{ID: must(alphaNode(node)), Reads: reads}})

		return d.state.keys.issued
	}
	says("n1", newer().Formats)
	d.at(1, Command{Attest: &Attest{must(alphaNode("n1")), make([]byte, 32), []string{"a.b.c"}, nil}})

	first := d.state.keys.issued
	if !first.Formats.Equal(newer().Formats) {
		t.Fatalf("the first says %v", first.Formats)
	}

	if again := says("n1", newer().Formats); again != first {
		t.Error("it was issued again and nothing has changed")
	}

	second := says("n2", signed.Formats{signed.StructurePage: {1, 2, 3}})
	if want := (signed.Formats{signed.StructurePage: {1, 2}}); !second.Formats.Equal(want) || second.Seq <= first.Seq {
		t.Errorf("the second says %v, want %v", second.Formats, want)
	}

	if third := says("n2", newer().Formats); !third.Formats.Equal(newer().Formats) || third.Seq <= second.Seq {
		t.Errorf("the third says %v", third.Formats)
	}

	says("n3", nil)
	d.at(2, Command{Member: &Member{ID: must(alphaNode("n3")), Gone: true}})

	if last := d.state.keys.issued; !last.Formats.Equal(newer().Formats) {
		t.Errorf("after a member has gone it says %v", last.Formats)
	}

	thawed := restore(t, d.state)
	if !bytes.Equal(thawed.keys.issued.Payload(), d.state.keys.issued.Payload()) ||
		!thawed.members.Readable().Equal(d.state.members.Readable()) {
		t.Error("a snapshot changes what it says")
	}
}

// Whatever a leader proposes, members apply a feature command alike and keep what
// they could not go on without.
//
// Requirement: FORM-002
func TestNumbersThatAMemberDoesNotReadAreNotInForce(t *testing.T) {
	d := newDrive(t)
	reads := Versions{Log: 2, Snapshot: 1, Wire: 2, Formats: newer().Formats}
	d.at(1, Command{Member: &Member{ID: must(alphaNode("n1")), Reads: reads}})

	for _, n := range []Numbers{
		{Log: 3, Snapshot: 1, Wire: 1},
		{Log: 1, Snapshot: 2, Wire: 1},
		{Log: 1, Snapshot: 1, Wire: 3},
		{Log: 1, Snapshot: 1, Wire: 1, Formats: map[signed.Structure]uint{signed.StructureStatement: 2}},
	} {
		problem(t, d.at(2, Command{Feature: &n}).Err, directory.Conflict)
	}

	if !d.state.members.written.Equal(FirstNumbers()) {
		t.Errorf("in force is %+v", d.state.members.written)
	}

	raised := Numbers{Log: 2, Snapshot: 1, Wire: 2, Formats: map[signed.Structure]uint{signed.StructureHead: 2}}
	if r := d.at(3, Command{Feature: &raised}); r.Err != nil || !d.state.members.written.Equal(raised) {
		t.Errorf("in force is %+v: %v", d.state.members.written, r.Err)
	}

	problem(t, d.at(4, Command{Feature: new(FirstNumbers())}).Err, directory.Conflict)

	// A member that reads less by now stays out, whatever it read before.
	problem(t, d.at(5, Command{Member: &Member{ID: must(alphaNode("n1")), Reads: older()}}).Err, directory.Forbidden)
	problem(t, d.at(5, Command{Member: &Member{ID: must(alphaNode("n2")), Reads: older()}}).Err, directory.Forbidden)

	r := d.at(6, Command{Feature: &Numbers{Log: 2, Snapshot: 1, Wire: 2}})
	if r.Err != nil || d.state.members.written.Format(signed.StructureHead) != 1 {
		t.Errorf("a format doesn't fall: %v", r.Err)
	}
}

// Members declare their listeners, which count while they are members.
//
// Requirement: SEC-009
func TestListenersOfMembers(t *testing.T) {
	d := newDrive(t)
	id := must(alphaNode("n1"))
	own := "10.0.0.1:8400"

	declare := func(listeners ...string) {
		t.Helper()

		member := &Member{ID: id, Reads: ReadableVersions(), Listeners: listeners}
		d.applies(1, Command{Member: member})
	}
	listens := func(want bool) {
		t.Helper()

		member, _ := d.state.Members().Get(id)
		if got := slices.Contains(member.Listeners, own); got != want {
			t.Errorf("the member listens at %s: %v", own, got)
		}
	}

	declare()
	listens(false)
	declare("10.0.0.1:8400", "10.0.0.2:8400")
	listens(true)
	declare("10.0.0.2:8400")
	listens(false)
	declare("10.0.0.1:8400")
	d.at(2, Command{Member: &Member{ID: id, Gone: true}})
	listens(false)
}
