package history

import (
	"testing"
	"time"

	"github.com/roster-mesh/roster/consensus/state"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/directorytest"
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

	// A copy of a member that lacks statements too doesn't replace them; one of a member that has all does.
	for _, whole := range []bool{false, true} {
		if s.Copied(whole); s.Lacks() == whole {
			t.Errorf("lacks %t after a copy that is whole: %t", s.Lacks(), whole)
		}
	}
}

// Statements wait, in their order, for a disk that fails, and are written once it works.
func TestStatementsWaitForTheirDisk(t *testing.T) {
	s := New(t.TempDir())
	directorytest.Must(t, s.Open())

	rid := directory.NewRID(1, [10]byte{1})
	directorytest.Must(t, s.db.Close())

	for index := range uint64(3) {
		s.Add([]state.Past{{RID: rid, Epoch: 1, Index: index + 1}})

		if s.Flush() == nil || s.Saved(Position{Epoch: 1, Size: 3}) == nil {
			t.Fatal("a disk that fails takes statements")
		}
	}

	for i, p := range s.waiting {
		if p.Index != uint64(i+1) {
			t.Errorf("statement %d waits in the place of %d", p.Index, i+1)
		}
	}

	directorytest.Must(t, s.Open())

	if records, _, err := s.Of(rid, directory.Position{}); len(records) != 3 || err != nil || s.Lacks() {
		t.Errorf("%d of 3 statements are written, lacks %t: %v", len(records), s.Lacks(), err)
	}

	directorytest.Must(t, s.Close())
}

// A store whose disk has dropped statements has them again once another member that lacks none was copied, and lacks
// what it lacked before another snapshot.
func TestAStoreThatHasDroppedStatementsLacksThem(t *testing.T) {
	s := New(t.TempDir())
	directorytest.Must(t, s.Open())
	s.drop()
	directorytest.Must(t, s.Restored(Position{}, Position{}))

	for _, whole := range []bool{false, true} {
		if !s.Lacks() {
			t.Error("dropped statements are not lacking")
		}

		s.Copied(whole)

		if saved := s.Saved(Position{Epoch: 1, Size: 4}) == nil; saved != whole || s.Lacks() == whole {
			t.Errorf("copied of a member that has all (%t): lacks %t, saved %t", whole, s.Lacks(), saved)
		}
	}

	directorytest.Must(t, s.Close())
}

// What another member has doesn't bring back contents that were pruned, nor an earlier place of a name.
func TestWhatIsCopiedChangesNothing(t *testing.T) {
	s := New(t.TempDir())
	directorytest.Must(t, s.Open())

	first, second := directory.NewRID(1, [10]byte{1}), directory.NewRID(1, [10]byte{2})
	old := Record{RID: first, Epoch: 1, Index: 1, Agent: "a", Until: 1, Kept: []byte("contents")}
	directorytest.Must(t, s.Merge([]Record{old, {RID: second, Epoch: 1, Index: 2, Agent: "a", Until: 1},
		{RID: first, Epoch: 1, Index: 3, Agent: "a", Until: 1}}))

	if n, err := s.Prune(time.Unix(2, 0)); n != 1 || err != nil {
		t.Errorf("%d records with contents are pruned: %v", n, err)
	}

	early := old
	early.Index = 0
	early.Kept = nil
	directorytest.Must(t, s.Merge([]Record{old, early}))

	var all []Record

	// One byte lets one record into a page.
	for behind := []byte(nil); ; {
		page, last, err := s.Page(behind, 1)
		directorytest.Must(t, err)

		if len(page) == 0 {
			break
		}

		if len(page) > 1 {
			t.Errorf("a page of one byte has %d records", len(page))
		}

		all, behind = append(all, page...), last
	}

	if whole, _, err := s.Page(nil, 1<<20); len(all) != 4 || len(whole) != 4 || err != nil {
		t.Errorf("%d records in pages, and %d in one, want 4: %v", len(all), len(whole), err)
	}

	for _, r := range all {
		if r.Kept != nil {
			t.Errorf("statement %d has contents %q again", r.Index, r.Kept)
		}
	}

	if rids, err := s.Named("a"); len(rids) != 2 || rids[0] != second || err != nil {
		t.Errorf("%v had the name: %v", rids, err)
	}

	directorytest.Must(t, s.Close())
}
