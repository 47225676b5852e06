package cli

import (
	"errors"
	"fmt"
	"strings"
)

// The exit codes. The codes 10 to 15 are verdicts on evidence; trust.ExitCode has all of
// them.
const (
	ExitOK          = 0
	ExitFailed      = 1
	ExitUsage       = 2
	ExitNotFound    = 3
	ExitRefused     = 4
	ExitConflict    = 5
	ExitUnavailable = 6
	ExitFormat      = 10
	ExitKey         = 12
	ExitInterrupted = 130
)

// A Failure says why a command failed: an exit code for programs, and at most three lines
// for people.
type Failure struct {
	Code    int
	Message string // the error: lower case, no final period
	Hint    string // one or two sentences: the cause, or the way out
	Next    string // a command that helps, ready to paste

	err error
}

// Error returns the message alone.
func (f *Failure) Error() string { return f.Message }

// Unwrap returns the cause, if there is one.
func (f *Failure) Unwrap() error { return f.err }

// Failed returns a failure with an exit code and a message.
func Failed(code int, format string, args ...any) *Failure {
	err := fmt.Errorf(format, args...)
	return &Failure{Code: code, Message: err.Error(), err: errors.Unwrap(err)}
}

// Usage returns the failure of a wrong command line.
func Usage(format string, args ...any) *Failure { return Failed(ExitUsage, format, args...) }

// ParseFailure returns the failure of a command line that cobra refuses. The lines after
// the first one of cobra's error are suggestions.
func ParseFailure(err error) *Failure {
	message, suggestions, _ := strings.Cut(err.Error(), "\n")
	return &Failure{
		Code:    ExitUsage,
		Message: message,
		Hint:    strings.Join(strings.Fields(suggestions), " "),
		err:     err,
	}
}

// WithHint sets the hint.
func (f *Failure) WithHint(format string, args ...any) *Failure {
	f.Hint = fmt.Sprintf(format, args...)
	return f
}

// WithNext sets the command that helps.
func (f *Failure) WithNext(command string) *Failure {
	f.Next = command
	return f
}

// Summarize returns the failure with its message after a summary of the work that was done
// before it.
func (f *Failure) Summarize(summary string) *Failure {
	summarized := *f
	summarized.Message = summary + ": " + f.Message
	return &summarized
}

// Suggest sets the command that helps with err if err has that exit code and no such
// command yet.
func Suggest(err error, code int, command string) error {
	if err == nil {
		return nil
	}

	f := FailureOf(err)
	if f.Code == code && f.Next == "" {
		f.Next = command
	}

	return f
}
