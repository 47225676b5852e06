package ledger

import (
	"encoding/binary"
	"errors"
	"os"
	"syscall"
	"testing"

	"github.com/roster-mesh/roster/directory/directorytest"
)

// While the disk is full, entries wait in memory and Sync says why, so that the owner's log is not cut. Once there is
// room, the copy completes itself without another one, and what it writes survives a restart.
//
// Requirement: LOG-004
func TestAFullDiskLosesNoEntry(t *testing.T) {
	dir := t.TempDir()

	log, err := Open(dir)
	must(t, err)

	var owner Frontier

	appendUpTo := func(size uint64) {
		for owner.Size < size {
			e := EntryOf(Statement, binary.BigEndian.AppendUint64(nil, owner.Size))
			owner.Append(e)
			log.Append(e)
		}
	}

	tree := func() Tree { return Tree{Size: owner.Size, Root: owner.Root()} }

	must(t, log.Reset(Tree{}))

	appendUpTo(700)

	// Every write to this device fails as one to a full disk.
	full, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
	if err != nil {
		t.Skip(err)
	}
	defer full.Close()

	columns := append([]*column{log.entries, log.late}, log.hashes...)
	files := make([]*os.File, len(columns))

	fills := func() {
		for i, c := range columns {
			files[i], c.file = c.file, full
		}
	}

	empties := func() {
		for i, c := range columns {
			c.file = files[i]
		}
	}

	fills()
	appendUpTo(3000)

	if err := log.Sync(); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("synced on a full disk: %v", err)
	}

	if err := log.Fill(tree(), log.Local); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("completed on a full disk: %v", err)
	}

	if _, missing := log.Missing(); !missing {
		t.Error("nothing is missing on a full disk")
	}

	empties()
	appendUpTo(3100)

	// The room suffices for the entries and not for their hashes.
	err = log.Fill(tree(), func(index uint64) ([]Entry, error) {
		entries, err := log.Local(index)

		fills()

		return entries, err
	})
	if !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("completed on a disk that is full again: %v", err)
	}

	appendUpTo(3200)
	empties()
	appendUpTo(3300)

	for range 2 {
		must(t, errors.Join(log.Fill(tree(), log.Local), log.Sync()))

		for index := range owner.Size {
			if _, err := log.Prove(tree(), index); err != nil {
				t.Fatalf("entry %d: %v", index, err)
			}
		}

		// Once more, as after a restart.
		must(t, log.Close())

		if log, err = Open(dir); err != nil {
			t.Fatal(err)
		}

		must(t, log.Reset(tree()))
	}

	must(t, log.Close())
}

// An epoch whose entries a full disk does not take has not ended well: its end would refer to entries that a
// restart loses.
//
// Requirement: LOG-004
func TestAFullDiskIsAnErrorAtTheEndOfAnEpoch(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
	if err != nil {
		t.Skip(err)
	}
	defer full.Close()

	epochs := OpenEpochs(t.TempDir())
	defer epochs.Close()

	must(t, epochs.Begin(&Start{Epoch: 1000}))

	log := epochs.logs[1000]
	file := log.entries.file
	log.entries.file = full

	defer func() { log.entries.file = file }()

	epochs.Append(EntryOf(Statement, []byte("1")))

	must(t, epochs.Begin(&Start{Epoch: 2000, Former: 1000, Size: 1}))

	if err := epochs.Sync(); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("ended on a full disk: %v", err)
	}

	if _, err := os.Stat(epochs.endFile(1000)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the end was written before the entries: %v", err)
	}
}

var must = directorytest.Must
