package domain

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/directory/directorytest"
)

// A backup that breaks off half way leaves no file, and fails.
func TestABackupIsSavedAsAWholeOrNotAtAll(t *testing.T) {
	broken := errors.New("connection lost")

	for name, write := range map[string]func(io.Writer) error{
		"at once": func(io.Writer) error { return broken },
		"half way": func(w io.Writer) error {
			_, err := io.WriteString(w, "half of a backup")
			return errors.Join(err, broken)
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			streams := cli.Streams{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard}
			console := cli.NewConsole(streams, "roster")

			err := saveFile(console, filepath.Join(dir, "x.backup"), encryption{plaintext: true}, write)
			if !errors.Is(err, broken) || cli.FailureOf(err).Code == cli.ExitOK {
				t.Errorf("got %v", err)
			}

			left, err := os.ReadDir(dir)
			if err != nil || len(left) > 0 {
				t.Errorf("it left %v, %v", left, err)
			}
		})
	}
}

// A name that was taken while the backup was made is not overwritten, and the backup is not lost.
func TestACompleteBackupSurvivesATakenName(t *testing.T) {
	partial := filepath.Join(t.TempDir(), "x.backup.partial")
	path := strings.TrimSuffix(partial, ".partial")

	for file, text := range map[string]string{partial: "backup", path: "other"} {
		must(t, os.WriteFile(file, []byte(text), 0o600))
	}

	failure := cli.FailureOf(nameBackup(partial, path))
	if failure.Code != cli.ExitConflict || !strings.Contains(failure.Hint, partial) {
		t.Errorf("got %+v", failure)
	}

	expectFile(t, partial, "backup")
	expectFile(t, path, "other")

	must(t, os.Remove(path))

	must(t, nameBackup(partial, path))

	expectFile(t, path, "backup")

	if _, err := os.Lstat(partial); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the partial file: %v", err)
	}
}

func expectFile(t *testing.T, path, want string) {
	t.Helper()

	if got, err := os.ReadFile(path); err != nil || string(got) != want {
		t.Errorf("%s contains %q (%v), want %q", path, got, err, want)
	}
}

var must = directorytest.Must
