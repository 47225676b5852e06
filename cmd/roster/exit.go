package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/directory"
	httpproblem "github.com/roster-mesh/roster/directory/problem"
	"github.com/roster-mesh/roster/trust"
)

// The exit codes. 10 to 15 tell what evidence does not hold; trust.ExitCode
// gives them.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitNotFound    = 3
	exitRefused     = 4
	exitConflict    = 5
	exitUnavailable = 6
	exitFormat      = 10
	exitKey         = 12
	exitInterrupted = 130
)

// A failure is why a command failed: the exit code, and at most three lines for
// a person: what happened, why, and a command that helps.
type failure struct {
	code            int
	what, why, next string
	err             error
}

func (f *failure) Error() string { return f.what }
func (f *failure) Unwrap() error { return f.err }

func failed(code int, format string, args ...any) *failure {
	err := fmt.Errorf(format, args...)
	return &failure{code: code, what: err.Error(), err: errors.Unwrap(err)}
}

// usage is the failure of a command line that asks for what can't be.
func usage(format string, args ...any) *failure { return failed(exitUsage, format, args...) }

// misunderstood is the failure of a command line that cobra refuses. What it
// says behind its first line is what may have been meant.
func misunderstood(err error) *failure {
	what, rest, _ := strings.Cut(err.Error(), "\n")
	return &failure{code: exitUsage, what: what, why: strings.Join(strings.Fields(rest), " "), err: err}
}

// because adds why.
func (f *failure) because(format string, args ...any) *failure {
	f.why = fmt.Sprintf(format, args...)
	return f
}

// try adds the command that helps, as a.command writes it.
func (f *failure) try(command string) *failure {
	f.next = command
	return f
}

// suggest adds a command that helps to an error that has none, where it is of
// that exit code.
func suggest(err error, code int, command string) error {
	if err == nil {
		return nil
	}
	f := failureOf(err)
	if f.code == code && f.next == "" {
		f.next = command
	}
	return f
}

// suggestLookup adds to a failure to find a registration how one is looked up: by the
// beginning of its name, since a rid is like no other.
func (a *app) suggestLookup(err error, id string) error {
	if _, notRID := directory.ParseRID(id); notRID == nil {
		return suggest(err, exitNotFound, a.command("lookup"))
	}

	return suggest(err, exitNotFound, a.command("lookup", "--agent", prefixOf(id)))
}

// command returns a command line of this program that runs when it is pasted.
// The flags that say which directory is meant are kept.
func (a *app) command(args ...string) string {
	words := append([]string{a.program}, a.given()...)
	for _, arg := range args {
		words = append(words, shellQuote(arg))
	}
	return strings.Join(words, " ")
}

// again returns the command line that was called.
func (a *app) again() string {
	words := []string{a.program}
	for _, arg := range a.args {
		words = append(words, shellQuote(arg))
	}
	return strings.Join(words, " ")
}

// fail prints why the command called verb failed and returns the exit code.
func (a *app) fail(verb []string, err error) int {
	f := failureOf(err)
	if f.next == "" {
		f.next = a.remedy(f.code, verb)
	}
	a.note("roster: %s", f.what)
	if f.why != "" {
		a.note("%s", f.why)
	}
	if f.next != "" {
		a.note("  %s", f.next)
	}
	return f.code
}

// remedy is the command that helps with a failure that names none itself.
func (a *app) remedy(code int, verb []string) string {
	switch code {
	case exitFailed, exitUsage, exitRefused:
		return a.command(append(verb, "--help")...)
	case exitUnavailable:
		return a.again()
	case exitNotFound:
		return a.command("lookup")
	}
	return ""
}

// failureOf returns err as a failure: the exit code that it has, and what happened.
func failureOf(err error) *failure {
	var f *failure
	var answered *apiclient.Error
	var refused *directory.Error
	switch {
	case errors.As(err, &f):
		return f
	case errors.Is(err, context.Canceled):
		return &failure{code: exitInterrupted, what: "interrupted", err: err}
	case errors.As(err, &answered):
		return failureOfAnswer(answered)
	case errors.As(err, &refused):
		return &failure{code: codeOfProblem(refused.Problem), what: refused.Error(), err: err}
	}
	return failureOfTransport(err)
}

// failureOfAnswer is for what a directory answered.
func failureOfAnswer(e *apiclient.Error) *failure {
	problem := directory.Problem(e.Code)
	f := &failure{code: codeOfStatus(e.Status, problem), what: firstLine(e.Error()), err: e}
	switch {
	case problem == "" && e.Status != http.StatusMultipleChoices: // a proxy's word, or that of something else
		f.why = strange
	case e.Status == http.StatusUnauthorized:
		f.why = "Say who you are with --cert and --key: the files of an X.509-SVID that the directory's domain or a peer of it issued."
	case problem == directory.NameTaken:
		f.why = "Another identity registered that name. Take another one, or wait until that registration ends."
	case problem == directory.OutcomeUnknown:
		f.why = "The change may have been made. To repeat it is safe."
	case problem == directory.AgentFailed, problem == directory.AgentTimeout:
		f.why = "It is the agent that failed, or is not reached; the directory is well. The agent may have acted all the same."
	case problem == directory.AgentUnavailable:
		f.why = "The agent can't do it now, or its registration says so; the directory is well. Try again later."
	case problem == httpproblem.Upstream:
		f.why = "It is another domain that didn't answer, or not as it should; this directory is well."
	case f.code == exitUnavailable:
		f.why = "The directory can't do this now; nothing was changed. Try again, or ask another of its nodes."
	case e.Status == http.StatusInternalServerError && e.RequestID != "":
		f.why = "The directory's operator finds it in the log under " + e.RequestID + "."
	}
	return f
}

// strange is why, where something has answered that is no directory.
const strange = "That is no directory's answer: is --address (or ROSTER_ADDRESS) right, and what stands between? If it was asked for a change, that may have been made."

// codeOfStatus returns the exit code of an answer that is not 2xx.
func codeOfStatus(status int, p directory.Problem) int {
	switch status {
	case http.StatusBadRequest:
		return codeOfProblem(p)
	case http.StatusUnauthorized, http.StatusForbidden:
		return exitRefused
	case http.StatusNotFound, http.StatusGone:
		if p == "" { // nobody has looked for it
			return exitFailed
		}
		return exitNotFound
	case http.StatusConflict, http.StatusPreconditionFailed, http.StatusMultipleChoices:
		return exitConflict
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return exitUnavailable
	}
	return exitFailed
}

// codeOfProblem returns the exit code of a request that was refused as such:
// usage where a parameter is wrong, failed where a document is.
func codeOfProblem(p directory.Problem) int {
	switch p {
	case directory.BadName, directory.BadLifetime, directory.BadQuery:
		return exitUsage
	}
	return exitFailed
}

// failureOfTransport is for errors of files, of the network and of evidence.
func failureOfTransport(err error) *failure {
	f := &failure{code: exitFailed, what: firstLine(err.Error()), err: err}
	var certificate *tls.CertificateVerificationError
	var op *net.OpError
	var asked *url.Error
	switch {
	case errors.Is(err, apiclient.ErrAnswer):
		f.why = strange
	case trust.ExitCode(err) > exitFailed:
		f.code = trust.ExitCode(err)
	case errors.As(err, &certificate):
		f.code = exitKey
		f.what = "the directory's certificate does not hold: " + firstLine(certificate.Err.Error())
		f.why = "--bundle (or ROSTER_BUNDLE) must hold the authorities of its domain, and --address a name that its certificate has."
	case errors.As(err, &op) && op.Op == "remote error": // a TLS alert of the other side
		f.code = exitRefused
		f.what = "the directory refused the client certificate: " + firstLine(op.Err.Error())
		f.why = "It takes X.509-SVIDs of its own domain and of its peers, while they hold; --cert and --key name yours."
	case errors.As(err, &asked):
		f.code = exitUnavailable
		f.what = "the directory does not answer: " + firstLine(asked.Err.Error())
		f.why = "Is it running, and is --address (or ROSTER_ADDRESS) right? Any node of the domain will do."
		if reached := op == nil || op.Op != "dial"; reached && asked.Op != "Get" {
			f.why = "If it was asked for a change, that may have been made: look before you repeat it. Any node of the domain will do."
		}
	}
	return f
}
