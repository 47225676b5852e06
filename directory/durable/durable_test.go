package durable_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/roster-mesh/roster/directory/durable"
)

func TestAFileIsReplacedWhole(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")

	for _, text := range []string{"the first contents, which are longer", "the second"} {
		if err := durable.WriteFile(file, []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}

		if got, err := os.ReadFile(file); string(got) != text || err != nil {
			t.Errorf("the file has %q: %v", got, err)
		}
	}

	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("the file has the mode %v: %v", info.Mode(), err)
	}

	// A write that fails leaves the directory as it was.
	if err := os.MkdirAll(filepath.Join(dir, "taken", "by a folder"), 0o700); err != nil {
		t.Fatal(err)
	}

	if err := durable.WriteFile(filepath.Join(dir, "taken"), []byte("text"), 0o600); err == nil {
		t.Error("a file takes the place of a folder")
	}

	if left, err := os.ReadDir(dir); len(left) != 2 || err != nil {
		t.Errorf("the directory has %v: %v", left, err)
	}
}
