package history

import (
	"testing"

	"github.com/roster-mesh/roster/consensus/state"
	"github.com/roster-mesh/roster/directory"
)

// When much ends at once, as registrations of one deadline do, a disk that works gets it: statements are missing,
// and the log is kept, only if it fails.
func TestStatementsThatEndAtOnceAreWritten(t *testing.T) {
	s := New(t.TempDir())
	if err := s.Open(); err != nil {
		t.Fatal(err)
	}

	past := []state.Past{{RID: directory.NewRID(1, [10]byte{1}), Epoch: 1, Index: 1}}

	s.bytes = maxWaiting
	s.waiting = []state.Past{{RID: directory.NewRID(1, [10]byte{2}), Epoch: 1, Index: 2}}
	s.Add(past)

	if records, _, err := s.Of(past[0].RID, directory.Position{}); len(records) != 1 || err != nil || s.Lacks() {
		t.Errorf("%d statements are written, lacks %t: %v", len(records), s.Lacks(), err)
	}

	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	s.bytes = maxWaiting
	s.waiting = []state.Past{{RID: directory.NewRID(1, [10]byte{3}), Epoch: 1, Index: 3}}
	s.Add(past)

	if !s.Lacks() || s.Saved(Position{Epoch: 1, Size: 4}) == nil {
		t.Error("the log is cut although a disk that fails has not taken the statements")
	}
}
