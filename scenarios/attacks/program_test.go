package attacks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/roster-mesh/roster/directory/directorytest"
	"github.com/roster-mesh/roster/scenarios/launch"
)

// commandTimeout bounds one call of the program.
const commandTimeout = launch.Patience

var programPath string // of the real binary

// TestMain builds the real binary once for all attacks.
func TestMain(m *testing.M) { os.Exit(runTests(m)) }

func runTests(m *testing.M) int {
	if task := os.Getenv(operatorVariable); task != "" {
		if err := runOperator(task); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}

		return 0
	}

	remove, err := launch.Isolate()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer remove()

	dir, err := os.MkdirTemp("", "roster-attacks-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)

	if programPath, err = launch.Build(context.Background(), dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}

	return m.Run()
}

// runProgram runs the real binary without a context of its own.
func runProgram(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), commandTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, programPath, args...)
	cmd.Env = []string{"HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH")}

	var out, errs bytes.Buffer
	cmd.Stdout = &out
	cmd.Stderr = &errs

	err := cmd.Run()

	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%q: %v", args, err)
	}

	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

func writeFile(t *testing.T, dir, name string, text []byte) string {
	t.Helper()
	path := filepath.Join(dir, name)
	must(t, os.WriteFile(path, text, 0o600))

	return path
}

var must = directorytest.Must
