package state

import (
	"bytes"
	"testing"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/directorytest"
	"github.com/roster-mesh/roster/directory/index"
	"github.com/roster-mesh/roster/directory/signed"
)

var (
	alpha     = directorytest.Alpha
	beta      = directorytest.Beta
	ada       = directorytest.Ada
	bob       = directorytest.Bob
	tool      = directory.IdentityOf(spiffeid.RequireFromString("spiffe://alpha.test/tool/commissioner"))
	document  = directorytest.Translator
	problem   = directorytest.WantProblem
	alphaNode = directorytest.Node
)

// newer are the versions that a release reads that has a format 2 of pages and heads.
func newer() Versions {
	reads := older()
	reads.Formats = signed.Formats{signed.StructureHead: {1, 2}, signed.StructurePage: {1, 2}}

	return reads
}

// older are the versions that a release reads that has the first version of everything.
func older() Versions { return Versions{Log: 1, Snapshot: 1, Wire: 1} }

// freeze returns a state's snapshot.
func freeze(t testing.TB, s *State) []byte {
	t.Helper()

	var b bytes.Buffer
	directorytest.Must(t, s.Snapshot().Write(&b))

	return b.Bytes()
}

// thaw returns the state of a snapshot, as a member that starts has it.
func thaw(t testing.TB, snapshot []byte) *State {
	t.Helper()

	s, _, err := Read(bytes.NewReader(snapshot), alpha, index.New(), Parallel{})
	directorytest.Must(t, err)
	s.registrations.FillIndex()

	return s
}

// restore takes a state through a snapshot.
func restore(t testing.TB, s *State) *State {
	t.Helper()

	frozen := freeze(t, s)

	back := thaw(t, frozen)
	if again := freeze(t, back); !bytes.Equal(again, frozen) {
		t.Error("a snapshot of what was restored is another")
	}

	return back
}
