package ledger

import (
	"os"
	"path/filepath"
	"testing"
)

// The end of an epoch's log is replaced whole: its former text is never cut while the next is written.
func TestTheEndIsReplacedWhole(t *testing.T) {
	dir := t.TempDir()

	e := &Epochs{dir: dir}
	must(t, os.MkdirAll(e.path(7), 0o700))

	must(t, e.writeEnd(7, Tree{Size: 1}))

	// A second name of the file shows whether its text changes in place.
	former := filepath.Join(dir, "former")
	must(t, os.Link(e.endFile(7), former))

	before, err := os.ReadFile(former)
	must(t, err)

	must(t, e.writeEnd(7, Tree{Size: 2}))

	if after, err := os.ReadFile(former); err != nil || string(after) != string(before) {
		t.Errorf("the former text became %q, %v", after, err)
	}

	if end, err := e.readEnd(7); err != nil || end.Size != 2 {
		t.Errorf("the end is %v, %v", end, err)
	}
}
