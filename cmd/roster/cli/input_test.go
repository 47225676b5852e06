package cli

import (
	"bufio"
	"context"
	"io"
	"testing"
)

// A signal ends a prompt and a document from a terminal, once and by the exit code of it.
//
// Requirement: OPS-023
func TestASignalEndsAReadOfStandardInput(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	in, terminal := io.Pipe()

	console := NewConsole(Streams{In: input{ctx, in}, Out: io.Discard, Err: io.Discard}, "roster")

	go func() { _, _ = terminal.Write([]byte("first\n")) }()

	lines := bufio.NewScanner(console.Stdin)
	if !lines.Scan() || lines.Text() != "first" {
		t.Errorf("read %q, %v", lines.Text(), lines.Err())
	}

	cancel()

	if lines.Scan() || FailureOf(lines.Err()).Code != ExitInterrupted {
		t.Errorf("read %q, %v", lines.Text(), lines.Err())
	}

	_, err := console.ReadFile("-", 100)
	if failure := FailureOf(err); failure.Code != ExitInterrupted || failure.Message != "interrupted" {
		t.Errorf("got %+v", failure)
	}

	_ = in.Close()
}
