package attacks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"unsafe"
)

// openTerminal returns the two ends of a new pseudo-terminal: ours, which reads what is
// shown, and the program's.
func openTerminal(t *testing.T) (ours, theirs *os.File) {
	t.Helper()

	ours, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudo-terminals here: %v", err)
	}

	t.Cleanup(func() { _ = ours.Close() })

	var locked, number int32
	must(t, control(ours, syscall.TIOCSPTLCK, &locked))
	must(t, control(ours, syscall.TIOCGPTN, &number))

	theirs, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	must(t, err)

	return ours, theirs
}

func control(terminal *os.File, request uintptr, value *int32) error {
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, terminal.Fd(), request, uintptr(unsafe.Pointer(value)))
	if errno != 0 {
		return errno
	}

	return nil
}

// runOnTerminal runs the real binary with a terminal as standard output and standard error,
// and returns the bytes that the terminal gets.
func runOnTerminal(t *testing.T, environment []string, args ...string) string {
	t.Helper()
	ours, theirs := openTerminal(t)

	ctx, cancel := context.WithTimeout(t.Context(), commandTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, programPath, args...)
	cmd.Env = append([]string{"HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH"), "TERM=xterm"}, environment...)
	cmd.Stdout = theirs
	cmd.Stderr = theirs
	must(t, cmd.Start())
	must(t, theirs.Close())

	shown, err := io.ReadAll(ours) // EIO is the end of a pseudo-terminal
	if err != nil && !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}

	var exit *exec.ExitError
	if err := cmd.Wait(); err != nil && !errors.As(err, &exit) {
		t.Fatalf("%q: %v", args, err)
	}

	return string(shown)
}
