package cli

import (
	"fmt"
	"io"
	"os"
)

// A Console has the streams of a command. Data goes to Stdout in the format
// of -o, notes and errors go to Stderr.
type Console struct {
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer

	Program    string // the program's name in suggested commands
	IsTerminal bool   // Stdout is a terminal
	NoColor    bool   // terminal escapes for emphasis are switched off
	Format     Format // the value of -o
}

// Note prints a line for a person on standard error.
func (c *Console) Note(format string, args ...any) {
	fmt.Fprintln(c.Stderr, Printable(fmt.Sprintf(format, args...)))
}

// ReadFile reads a file of less than limit bytes. The name - is standard input.
func (c *Console) ReadFile(name string, limit int64) ([]byte, error) {
	in := c.Stdin
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, Failed(ExitFailed, "cannot read the file: %w", err)
		}

		defer func() { _ = file.Close() }()
		in = file
	}

	text, err := io.ReadAll(io.LimitReader(in, limit))
	if err != nil {
		return nil, Failed(ExitFailed, "cannot read the file: %w", err)
	}

	if int64(len(text)) == limit {
		return nil, Failed(ExitFailed, "file %s is larger than %d bytes", name, limit-1)
	}

	return text, nil
}

// bold emphasises a table's heading on a terminal, unless colours are switched off
// (no-color.org).
func (c *Console) bold(text string) string {
	if !c.IsTerminal || c.NoColor {
		return text
	}

	return "\x1b[1m" + text + "\x1b[m"
}

// IsTerminal reports whether a file is a terminal.
func IsTerminal(file *os.File) bool {
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
