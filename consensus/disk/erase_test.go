package disk

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/roster-mesh/roster/directory/directorytest"
)

// A process that ends while it begins a new file of the log leaves no entry that Raft has not written, and the
// log goes on where it was.
func TestALogGoesOnBehindASealedFile(t *testing.T) {
	dir := t.TempDir()
	open := func() *Disk { return must(openAt(t, dir, nil)) }
	store := func(d *Disk, index uint64) {
		t.Helper()

		directorytest.Must(t, d.Logs.StoreLog(&raft.Log{Index: index, Term: 1, Data: []byte("entry")}))
	}

	d := open()
	store(d, 1)
	store(d, 2)

	if last, err := d.Seal(); last != 2 || err != nil {
		t.Fatalf("sealed up to %d: %v", last, err)
	}

	if files, err := filepath.Glob(filepath.Join(dir, "log", "*.wal")); len(files) != 2 || err != nil {
		t.Errorf("the log has the files %v: %v", files, err)
	}

	store(d, 3)

	// As a process leaves it that ends in between.
	directorytest.Must(t, (summedLog{d.wal}).StoreLog(&raft.Log{Index: 4, Type: raft.LogNoop, Data: sealMark}))

	directorytest.Must(t, d.Close())

	d = open()
	defer func() { _ = d.Close() }()

	if last, err := d.Logs.LastIndex(); last != 3 || err != nil {
		t.Errorf("the log ends at entry %d: %v", last, err)
	}

	if gone, err := d.Forget(2); gone || err != nil {
		t.Errorf("entries that no snapshot has are forgotten: %v", err)
	}

	sink := must(d.Snapshots.Create(1, 3, 1, raft.Configuration{}, 1, nil))
	directorytest.Must(t, sink.Close())

	if gone, err := d.Forget(2); !gone || err != nil {
		t.Errorf("entries that a snapshot has are not forgotten: %v", err)
	}

	for index := range uint64(3) {
		entry := raft.Log{}
		if err := d.Logs.GetLog(index+1, &entry); (err == nil) != (index+1 == 3) {
			t.Errorf("entry %d: %v", index+1, err)
		}
	}

	store(d, 4)

	if files, err := os.ReadDir(filepath.Join(dir, "snapshots")); len(files) != 1 || err != nil {
		t.Errorf("%d snapshots: %v", len(files), err)
	}
}

// A snapshot that a process was writing when it ended is removed at the next start: no erasure would find its contents.
//
// Requirement: LOG-012
func TestAnUnfinishedSnapshotIsRemovedAtAStart(t *testing.T) {
	dir := t.TempDir()
	open := func() *Disk { return must(openAt(t, dir, nil)) }

	d := open()

	for index := range uint64(2) {
		sink := must(d.Snapshots.Create(1, index+1, 1, raft.Configuration{}, 1, nil))

		if _, err := sink.Write([]byte("contents")); err != nil {
			t.Fatal(err)
		}

		if index == 0 {
			directorytest.Must(t, sink.Close())
		}
	}

	directorytest.Must(t, d.Close())

	d = open()
	defer func() { _ = d.Close() }()

	if files, err := filepath.Glob(filepath.Join(dir, "snapshots", "*")); len(files) != 1 || err != nil ||
		filepath.Ext(files[0]) == ".tmp" {
		t.Errorf("the snapshots are %v: %v", files, err)
	}
}
