package cli

import (
	"context"
	"errors"
	"io"
)

// errInterrupted is the error of reading standard input when a signal ends the command.
var errInterrupted = errors.New("interrupted")

// An input is standard input that a signal interrupts: a read of a terminal alone would go on.
type input struct {
	ctx context.Context
	in  io.Reader
}

// Read implements io.Reader. A read that is under way when ctx ends consumes the next input.
func (i input) Read(to []byte) (int, error) {
	type result struct {
		n   int
		err error
	}

	// The caller may use its buffer when ctx ends, while the read goes on.
	buffer := make([]byte, len(to))
	done := make(chan result, 1)

	go func() {
		n, err := i.in.Read(buffer)
		done <- result{n, err}
	}()

	select {
	case <-i.ctx.Done():
		return 0, errInterrupted
	case read := <-done:
		return copy(to, buffer[:read.n]), read.err
	}
}
