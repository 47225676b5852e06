package ledger

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// While the disk hangs in a sync, the owner goes on: entries are appended, epochs begin, and readers are answered.
func TestADiskThatHangsHoldsUpTheSyncAlone(t *testing.T) {
	dir := t.TempDir()
	epochs := OpenEpochs(dir)

	var owner Frontier

	next := func() {
		e := EntryOf(Statement, binary.BigEndian.AppendUint64(nil, owner.Size))
		owner.Append(e)
		epochs.Append(e)
	}

	must(t, epochs.Begin(&Start{Epoch: 1000}))
	next()

	hanging, release := make(chan struct{}), make(chan struct{})
	epochs.logs[1000].sync = func(file *os.File) error {
		hanging <- struct{}{}
		<-release

		return file.Sync()
	}

	synced := make(chan error)
	go func() { synced <- epochs.Sync() }()

	<-hanging

	went := make(chan error)
	go func() {
		next()

		log, _, err := epochs.Log(1000)
		_, reading := log.Prove(Tree{Size: owner.Size, Root: owner.Root()}, 1)

		epochs.Lacking(1000)

		begins := epochs.Begin(&Start{Epoch: 2000, Former: 1000, Size: owner.Size, Root: owner.Root()})

		went <- errors.Join(err, reading, begins)
	}()

	select {
	case err := <-went:
		must(t, err)
	case <-time.After(10 * time.Second):
		t.Fatal("the owner waits for the disk")
	}

	epochs.logs[1000].sync = (*os.File).Sync

	close(release)
	must(t, <-synced)

	// The sync that hung has not written the epoch that began meanwhile; the next one does.
	end := filepath.Join(dir, "1000", "end.json")
	if _, err := os.Stat(end); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the end was written by the sync before it: %v", err)
	}

	must(t, errors.Join(epochs.Sync(), epochs.Close()))

	epochs = OpenEpochs(dir)
	defer epochs.Close()

	log, last, err := epochs.Log(1000)
	if err != nil || last == nil || last.Size != owner.Size {
		t.Fatalf("the end after a restart is %v, %v", last, err)
	}

	if _, err := log.Prove(*last, 1); err != nil {
		t.Error(err)
	}
}
