package cli

import (
	"errors"
	"fmt"
	"regexp"
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

	// NeedsHelp is whether the command line can't be read, and the command's help has how.
	NeedsHelp bool
	// Faults are further faults of a document, beyond that of Message. They take the place of Hint and Next.
	Faults []string

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

// invalidFlag matches cobra's error for a flag: the value, the flag and the cause.
var invalidFlag = regexp.MustCompile(`^invalid argument (".*") for "(?:-\w, )?(--[\w-]+)" flag: (.*)$`)

// exclusiveFlags matches cobra's error for flags of a group of which only one may be given.
var exclusiveFlags = regexp.MustCompile(
	`^if any flags in the group .* none of the others can be; \[(.*)\] were all set$`)

// ParseFailure returns the failure of a command line that cobra refuses. The lines after
// the first one of cobra's error are suggestions.
func ParseFailure(err error) *Failure {
	message, suggestions, _ := strings.Cut(err.Error(), "\n")

	value := invalidFlag.FindStringSubmatch(message)
	if value != nil {
		message = fmt.Sprintf("%s %s, got %s", value[2], flagRule(value[3]), value[1])
	}

	if given := exclusiveFlags.FindStringSubmatch(message); given != nil {
		return Usage("--%s exclude each other", strings.Join(strings.Fields(given[1]), " and --"))
	}

	return &Failure{
		Code:      ExitUsage,
		Message:   message,
		Hint:      strings.Join(strings.Fields(suggestions), " "),
		NeedsHelp: value == nil, // else the message has the rule
		err:       err,
	}
}

// flagRule returns the rule that a flag's value breaks, from the cause in cobra's error.
func flagRule(cause string) string {
	switch {
	case strings.HasPrefix(cause, "must "):
		return cause
	case strings.HasPrefix(cause, "strconv.ParseInt"):
		return "must be a whole number"
	case strings.HasPrefix(cause, "strconv.ParseUint"):
		return "must be a whole number of 0 or more"
	case strings.HasPrefix(cause, "strconv.ParseBool"):
		return "must be true or false"
	case strings.HasPrefix(cause, "time: "):
		return "must be a duration such as 90s or 24h"
	}

	return "is invalid: " + cause
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

	failure := FailureOf(err)
	if failure.Code == code && failure.Next == "" {
		failure.Next = command
	}

	return failure
}
