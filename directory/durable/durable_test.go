package durable_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/roster-mesh/roster/directory/directorytest"
	"github.com/roster-mesh/roster/directory/durable"
)

func TestAFileIsReplacedWhole(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")

	for _, text := range []string{"the first contents, which are longer", "the second"} {
		must(t, durable.WriteFile(file, []byte(text), 0o640))

		if got, err := os.ReadFile(file); string(got) != text || err != nil {
			t.Errorf("the file has %q: %v", got, err)
		}
	}

	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("the file has the mode %v: %v", info.Mode(), err)
	}

	// A write that fails leaves the directory as it was.
	must(t, os.MkdirAll(filepath.Join(dir, "taken", "by a folder"), 0o700))

	if err := durable.WriteFile(filepath.Join(dir, "taken"), []byte("text"), 0o600); err == nil {
		t.Error("a file takes the place of a folder")
	}

	if left, err := os.ReadDir(dir); len(left) != 2 || err != nil {
		t.Errorf("the directory has %v: %v", left, err)
	}
}

// What a crash left of a write is removed. Other files stay, and so does a write that is under way.
func TestLeftoversAreRemoved(t *testing.T) {
	dir := t.TempDir()

	must(t, os.Mkdir(filepath.Join(dir, "below"), 0o700))

	files := map[string]bool{ // whether each stays
		".file.tmp-123": false, "below/.file.json.tmp-4": false, "file": true, ".file.tmp-x": true,
		"file.tmp-12": true, ".hidden": true, ".file.tmp-99": true,
	}
	for name := range files {
		path := filepath.Join(dir, name)
		must(t, os.WriteFile(path, nil, 0o600))

		if before := time.Now().Add(-time.Hour); name != ".file.tmp-99" {
			must(t, os.Chtimes(path, before, before))
		}
	}

	if err := durable.Clean(dir); err != nil {
		t.Error(err)
	}

	for name, stays := range files {
		if _, err := os.Stat(filepath.Join(dir, name)); (err == nil) != stays {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// syncedDir is the directory in which TestWriting writes, which another process starts.
const syncedDir = "ROSTER_SYNCED_DIR"

func TestWriting(t *testing.T) {
	dir := os.Getenv(syncedDir)
	if dir == "" {
		t.Skip("another test starts it")
	}

	must(t, durable.WriteFile(filepath.Join(dir, "file"), []byte("text"), 0o600))
}

// The file is synced before it is renamed, and its directory afterwards: after a loss of power there is the old file
// or the new one, and the new one if WriteFile has returned.
func TestAWriteOutlivesALossOfPower(t *testing.T) {
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("needs strace to see the order of the syncs")
	}

	self, err := os.Executable()
	must(t, err)

	dir, calls := t.TempDir(), filepath.Join(t.TempDir(), "calls")
	child := exec.CommandContext(t.Context(), strace, "-f", "-y", "-o", calls, "-e", "trace=fsync,/rename", self,
		"-test.run=^TestWriting$")
	child.Env = append(os.Environ(), syncedDir+"="+dir)

	if out, err := child.CombinedOutput(); err != nil {
		if strings.Contains(string(out), "ptrace") {
			t.Skipf("strace can't trace here: %s", out)
		}

		t.Fatalf("%v: %s", err, out)
	}

	text, err := os.ReadFile(calls)
	must(t, err)

	lines := strings.Split(string(text), "\n")
	find := func(parts ...string) int {
		return slices.IndexFunc(lines, func(line string) bool {
			return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(line, part) })
		})
	}

	file, renamed, folder := find("fsync(", ".file.tmp-"), find("rename", ".file.tmp-"), find("fsync(", "<"+dir+">")
	if file < 0 || renamed <= file || folder <= renamed {
		t.Errorf("the calls are:\n%s", text)
	}
}

var must = directorytest.Must
