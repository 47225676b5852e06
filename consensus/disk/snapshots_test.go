package disk

import (
	"bytes"
	"io"
	"path/filepath"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/roster-mesh/roster/directory/directorytest"
)

// What a large snapshot's sink takes goes to the library's own file now and then, and
// comes back whole.
func TestALargeSnapshotGoesToTheDiskInParts(t *testing.T) {
	dir := t.TempDir()
	store := privateSnapshots{must(raft.NewFileSnapshotStore(dir, 1, io.Discard)), filepath.Join(dir, "snapshots"),
		nil}

	sink, err := store.Create(1, 10, 1, raft.Configuration{}, 1, nil)
	directorytest.Must(t, err)

	steady, ok := sink.(*steadySink)
	if !ok {
		t.Fatal("the library has its file elsewhere than it is looked for")
	}

	var all []byte
	for i := range 40 {
		part := bytes.Repeat([]byte{byte(i)}, steadyBytes/16)
		if _, err := sink.Write(part); err != nil {
			t.Fatal(err)
		}

		all = append(all, part...)
	}

	if steady.unsaved != len(all)%steadyBytes {
		t.Errorf("%d bytes of %d were not saved yet", steady.unsaved, len(all))
	}

	directorytest.Must(t, sink.Close())

	_, r, err := store.Open(sink.ID())
	directorytest.Must(t, err)

	back, err := io.ReadAll(r)
	if err != nil || !bytes.Equal(back, all) || r.Close() != nil {
		t.Errorf("read %d bytes of %d: %v", len(back), len(all), err)
	}
}
