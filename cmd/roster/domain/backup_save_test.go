package domain

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/roster-mesh/roster/cmd/roster/cli"
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
