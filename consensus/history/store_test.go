package history_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/roster-mesh/roster/consensus/history"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/directorytest"
)

func open(t *testing.T, dir string) *history.Store {
	t.Helper()

	s := history.New(dir)
	must(t, s.Open())

	t.Cleanup(func() { _ = s.Close() })

	return s
}

func rid(n byte) directory.RID { return directory.NewRID(1, [10]byte{n}) }

// record is a statement until a time, whose contents take 100 KB.
func record(n byte, index uint64, until int64) history.Record {
	return history.Record{RID: rid(n), Epoch: 1, Index: index, Until: until, Agent: "a",
		Kept: bytes.Repeat([]byte{byte(index)}, 100_000)}
}

// kept returns the indexes of a registration's statements whose contents are there.
func kept(t *testing.T, s *history.Store, n byte) (indexes []uint64) {
	t.Helper()

	all, _, err := s.Of(rid(n), directory.Position{})
	must(t, err)

	for _, r := range all {
		if r.Kept != nil {
			indexes = append(indexes, r.Index)
		}
	}

	return indexes
}

// Requirement: LOG-012
func TestContentsArePrunedOnceTheyAreFormer(t *testing.T) {
	s := open(t, t.TempDir())

	// In any order, as another member's come.
	err := s.Merge([]history.Record{record(1, 2, 300), record(1, 3, 300), record(1, 1, 200)})
	must(t, err)

	for _, c := range []struct {
		before int64
		want   []uint64
	}{{200, []uint64{1, 2, 3}}, {201, []uint64{2, 3}}, {300, []uint64{2, 3}}, {301, nil}, {1 << 40, nil}} {
		if _, err := s.Prune(time.Unix(c.before, 0)); err != nil {
			t.Fatal(err)
		}

		if got := kept(t, s, 1); !slices.Equal(got, c.want) {
			t.Errorf("pruned before %d: %v have contents, want %v", c.before, got, c.want)
		}
	}

	if all, _, _ := s.Of(rid(1), directory.Position{}); len(all) != 3 {
		t.Errorf("%d statements remain, want all 3", len(all))
	}
}

// A history is read from its end back, in parts that are bounded in records and bytes.
func TestALongHistoryIsReadInParts(t *testing.T) {
	s := open(t, t.TempDir())

	var all []history.Record
	for i := range uint64(2*history.MostRecords + 60) {
		all = append(all, record(2, i+1, 300))
		if i >= 60 { // the first ones are large
			all[i].Kept = nil
		}
	}

	// Neighbours on both sides are of other registrations.
	directorytest.Must(t, s.Merge(append(all, record(1, 5, 300), record(3, 5, 300))))

	want := all
	for _, n := range []int{history.MostRecords, history.MostRecords, 42, 18, 0} {
		before := directory.Position{}
		if len(want) < len(all) {
			before = directory.Position{Epoch: 1, Revision: uint64(len(want)) + 1}
		}

		part, earlier, err := s.Of(rid(2), before)
		if err != nil || len(part) != n || earlier != (len(want) > n) {
			t.Fatalf("%d of %d records, earlier %t, %v", len(part), len(want), earlier, err)
		}

		for i, r := range part {
			if at := len(want) - n + i; r.Index != want[at].Index {
				t.Fatalf("record %d has index %d", at, r.Index)
			}
		}

		want = want[:len(want)-n]
	}
}

// Registrations of one name are in the order of their statements, not of their rids or bringers.
func TestRegistrationsOfANameAreInOrder(t *testing.T) {
	s := open(t, t.TempDir())

	err := s.Merge([]history.Record{record(1, 9, 90), record(3, 2, 50), record(2, 4, 80), record(2, 3, 60)})
	must(t, err)

	rids, err := s.Named("a")
	if want := []directory.RID{rid(3), rid(2), rid(1)}; !slices.Equal(rids, want) || err != nil {
		t.Errorf("%v had the name, want %v; %v", rids, want, err)
	}
}

// Registrations whose names are erased are no neighbours of each other.
func TestErasedRegistrationsHaveNoNameInCommon(t *testing.T) {
	s := open(t, t.TempDir())

	err := s.Merge([]history.Record{{RID: rid(1), Epoch: 1, Index: 1}, {RID: rid(2), Epoch: 1, Index: 2}})
	must(t, err)

	if rids, err := s.Named(""); len(rids) > 0 || err != nil {
		t.Errorf("%v have the empty name: %v", rids, err)
	}
}

// Contents are erased in place, also on a full disk.
//
// Requirement: LOG-012
func TestErasedContentsAreOverwritten(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)

	// It stands for a full disk: nothing can be created beside the file.
	directorytest.Must(t, os.MkdirAll(filepath.Join(dir, "history.db.tmp", "in the way"), 0o700))

	for n := byte(1); n <= 3; n++ {
		r := record(n, uint64(n), 300)
		r.Agent = fmt.Sprint("agent-", n)
		directorytest.Must(t, s.Merge([]history.Record{r}))
	}

	directorytest.Must(t, s.Erase([]directory.RID{rid(1), rid(3)}))

	file, err := os.ReadFile(filepath.Join(dir, "history.db"))
	directorytest.Must(t, err)

	for n := byte(1); n <= 3; n++ {
		contents, name := bytes.Repeat([]byte{n}, 1000), fmt.Appendf(nil, "agent-%d", n)
		if has := bytes.Contains(file, contents); has != (n == 2) {
			t.Errorf("the contents of registration %d are in the file: %t", n, has)
		}

		if has := bytes.Contains(file, name); has != (n == 2) {
			t.Errorf("the name of registration %d is in the file: %t", n, has)
		}
	}

	if all, _, err := s.Of(rid(1), directory.Position{}); err != nil || len(all) != 1 || all[0].Kept != nil ||
		all[0].Agent != "" {
		t.Errorf("its statements are %+v: %v", all, err)
	}
}

func TestPruningGivesSpaceBack(t *testing.T) {
	s := open(t, t.TempDir())

	var all []history.Record
	for i := range uint64(100) {
		all = append(all, record(1, i, int64(i)))
	}

	must(t, s.Merge(all))

	before := s.Used()
	if n, err := s.Prune(time.Unix(99, 0)); n != 99 || err != nil {
		t.Fatal(n, err)
	}

	if after := s.Used(); before < 10_000_000 || after > before/10 {
		t.Errorf("%d bytes are in use, and %d after 99 of 100 were pruned", before, after)
	}
}

// What a snapshot of another member stands for is copied, and what one's own stands for is there.
func TestWhatASnapshotLacks(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	none := history.Position{}

	for _, step := range []struct {
		do   func() error
		want bool
	}{
		{func() error { return s.Saved(history.Position{Epoch: 1, Size: 10}) }, false},
		{func() error { return s.Restored(none, history.Position{Epoch: 1, Size: 10}) }, false},
		// As by a restore: all of the state before it was applied here.
		{func() error {
			return s.Restored(history.Position{Epoch: 1, Size: 14}, history.Position{Epoch: 1, Size: 14})
		}, false},
		{func() error { return s.Restored(none, history.Position{Epoch: 1, Size: 11}) }, true},
		{func() error { return s.Saved(history.Position{Epoch: 1, Size: 12}) }, true}, // which lacks something, too
		{func() error { return s.Restored(none, history.Position{Epoch: 1, Size: 12}) }, true},
		{func() error { s.Copied(true); return nil }, false},
		{func() error { return s.Saved(history.Position{Epoch: 1, Size: 12}) }, false},
		{func() error { return s.Restored(none, history.Position{Epoch: 1, Size: 12}) }, false},
		{func() error { return s.Restored(none, history.Position{Epoch: 2, Size: 1}) }, true},
	} {
		must(t, step.do())

		if s.Lacks() != step.want {
			t.Fatalf("lacks: %t, want %t", s.Lacks(), step.want)
		}
	}
}

var must = directorytest.Must
