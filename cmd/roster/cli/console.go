package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/roster-mesh/roster/directory"
)

// Streams are the standard streams of a program.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer

	InIsTerminal, OutIsTerminal, ErrIsTerminal bool

	OutColumns int // cells of a line of the terminal; 0 if unknown
}

// StandardStreams returns the streams of this process. Reads of standard input end with ctx.
func StandardStreams(ctx context.Context) Streams {
	streams := Streams{
		In: input{ctx, os.Stdin}, InIsTerminal: isTerminal(os.Stdin), Out: os.Stdout, Err: os.Stderr,
		OutIsTerminal: isTerminal(os.Stdout), ErrIsTerminal: isTerminal(os.Stderr),
	}
	if columns, _, err := term.GetSize(int(os.Stdout.Fd())); err == nil {
		streams.OutColumns = columns
	}

	return streams
}

// A Console has the streams of a command. Data goes to Stdout in the format
// of -o, notes and errors go to Stderr. If these are terminals, they show text without
// acting on it: no command writes to a terminal in another way.
type Console struct {
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer

	Program    string // the program's name in suggested commands
	IsTerminal bool   // Stdout is a terminal
	NoColor    bool   // terminal escapes for emphasis are switched off
	Format     Format // the value of -o
	NoHeaders  bool   // tables have no headings
	Quiet      bool   // no notes are printed
	Verbose    bool   // requests are printed

	columns int     // cells of a line of the terminal; 0 if unknown
	streams Streams // the unchanged streams, for this program's own escapes
	output  *output // the stream of data; nil if its failures are not kept
}

// An output is standard output. It remembers that a write failed, for a command that ignores the error.
type output struct {
	writer io.Writer
	failed error
}

// Write implements io.Writer.
func (o *output) Write(text []byte) (int, error) {
	n, err := o.writer.Write(text)
	if err != nil && o.failed == nil {
		o.failed = err
	}

	return n, err
}

// OutputFailure returns the failure to write standard output; nil if all data was written.
func (c *Console) OutputFailure() error {
	if c.output == nil || c.output.failed == nil {
		return nil
	}

	return Failed(ExitFailed, "cannot write to standard output: %w", c.output.failed)
}

// NewConsole returns the console of a program of that name.
func NewConsole(streams Streams, program string) *Console {
	output := &output{writer: streams.Out}
	streams.Out = output

	console := &Console{
		Stdin: streams.In, Stdout: streams.Out, Stderr: streams.Err,
		Program: program, IsTerminal: streams.OutIsTerminal, columns: streams.OutColumns, streams: streams,
		output: output,
	}

	// Only a terminal acts on text, so data for files and pipes stays as it is.
	if streams.OutIsTerminal {
		console.Stdout = &screen{terminal: streams.Out}
	}

	if streams.ErrIsTerminal {
		console.Stderr = &screen{terminal: streams.Err}
	}

	return console
}

// IsInteractive reports whether a person can answer questions: standard input is a
// terminal.
func (c *Console) IsInteractive() bool { return c.streams.InIsTerminal }

// ErrIsTerminal reports whether standard error is a terminal.
func (c *Console) ErrIsTerminal() bool { return c.streams.ErrIsTerminal }

// Note prints a line for a person on standard error, unless -q is given.
func (c *Console) Note(format string, args ...any) {
	if !c.Quiet {
		c.Say(format, args...)
	}
}

// Say prints a line for a person on standard error: a failure, or an output that was asked for. No URL in it shows a
// password.
func (c *Console) Say(format string, args ...any) {
	fmt.Fprintln(c.Stderr, Printable(directory.HideUserinfo(fmt.Sprintf(format, args...))))
}

// Accepts asks a person to accept a consequence that was said before, and reports whether the
// answer is yes. It reads one line of standard input.
func (c *Console) Accepts() (bool, error) {
	c.Say("Accept that? Type yes to go on:")

	var answer []byte

	// The line is read byte by byte, because the bytes behind it answer the next question.
	for char := make([]byte, 1); len(answer) < maxAnswer; answer = append(answer, char[0]) {
		_, err := io.ReadFull(c.Stdin, char)
		if errors.Is(err, io.EOF) || char[0] == '\n' {
			break
		}

		if err != nil {
			return false, err
		}
	}

	return strings.TrimSpace(string(answer)) == "yes", nil
}

// maxAnswer bounds the bytes of an answer.
const maxAnswer = 1 << 10

// Time returns a time for a table on a terminal: how far it is from now. Elsewhere, with -o wide, and in a
// machine's format it is as of FormatTime. The zero time is empty.
func (c *Console) Time(at time.Time) string {
	if !c.IsTerminal || c.Format == FormatWide || !c.Format.IsTable() || at.IsZero() {
		return FormatTime(at)
	}

	return fromNow(time.Until(at))
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

	// The limit is one byte more than a file may have.
	if int64(len(text)) == limit {
		return nil, Failed(ExitFailed, "file %s is larger than %d bytes", name, limit-1)
	}

	return text, nil
}

// isTerminal reports whether a file is a terminal, which other character devices, such as
// /dev/null, are not.
func isTerminal(file *os.File) bool { return term.IsTerminal(int(file.Fd())) }
