package cli

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/directory"
	httpproblem "github.com/roster-mesh/roster/directory/problem"
	"github.com/roster-mesh/roster/trust"
)

// FailureOf returns err as a failure: its exit code, its message and a hint.
func FailureOf(err error) *Failure {
	var (
		failure  *Failure
		response *apiclient.Error
		invalid  *directory.Error
	)
	switch {
	// A failure to read input may wrap the interruption, which is the reason.
	case errors.Is(err, errInterrupted):
		return &Failure{Code: ExitInterrupted, Message: "interrupted", err: err}
	case errors.As(err, &failure):
		return failure
	case errors.Is(err, context.Canceled):
		return &Failure{Code: ExitInterrupted, Message: "interrupted", err: err}
	case errors.As(err, &response):
		return failureOfResponse(response)
	case errors.As(err, &invalid):
		return &Failure{Code: codeOfProblem(invalid.Problem), Message: flagNames.Replace(invalid.Error()), err: err}
	}

	return failureOfTransport(err)
}

// flagNames replaces the names of HTTP parameters by the arguments and flags of this program.
var flagNames = strings.NewReplacer("give it as agent=NAME", "give it as NAME", ": use force to", ": use --force to",
	"may use force", "may use --force", "min must be DOMAIN", "--min must be DOMAIN",
	"wait must be a", "--wait must be a", `origin is "`, `--origin is "`)

// hintForeign is the hint on a response that no directory sends.
const hintForeign = "The response is not from a directory. Check --address (or ROSTER_ADDRESS) and proxies on " +
	"the way. " +
	"If you requested a change, it may have been made."

// failureOfResponse returns the failure that a server's error response stands for.
func failureOfResponse(response *apiclient.Error) *Failure {
	problem := directory.Problem(response.Code)
	failure := &Failure{
		Code: codeOfStatus(response.Status, problem), Message: flagNames.Replace(FirstLine(response.Error())),
		Faults: otherFaults(response), err: response,
	}

	switch {
	// The status of an agent's failure says nothing about the directory, so it comes first.
	case isAgents(problem):
		failure.Code = codeOfAgent(problem)
		failure.Hint = hintOfAgent(problem, response)

	// A directory names the problem, so a proxy or another program has answered.
	case problem == "" && response.Status != http.StatusMultipleChoices:
		failure.Hint = hintForeign
	case response.Status == http.StatusUnauthorized:
		failure.Hint = "Authenticate with --cert and --key, an X.509-SVID of the directory's domain or of one of " +
			"its peers, or with a token that the directory accepts: --token-file or --wit."
	case problem == directory.PositionLost:
		failure.Hint = "A restore of the domain lost that write. Read without --min; if the write matters, repeat it."
	case problem == directory.NameTaken:
		failure.Hint = "The name belongs to another owner. Choose another name, or wait until that registration " +
			"expires."
	case problem == directory.OutcomeUnknown:
		failure.Hint = "The change may have been made."
	case problem == httpproblem.Upstream:
		failure.Hint = "The error comes from another domain; this directory works."

	// The message has the fact, so that the hint does without it.
	case failure.Code == ExitUnavailable && strings.Contains(failure.Message, "nothing was changed"):
		failure.Hint = "Try again, or use another node's address."
	case failure.Code == ExitUnavailable:
		failure.Hint = "The directory is unavailable; nothing was changed. Try again, or use another node's address."
	case response.Status == http.StatusInternalServerError && response.RequestID != "":
		failure.Hint = "The operator finds the cause in the node's log, under request id " + response.RequestID + "."
	}

	return failure
}

// isAgents reports whether a problem is of an agent that was invoked.
func isAgents(problem directory.Problem) bool {
	return strings.HasPrefix(string(problem), "agent-") && problem != directory.NameTaken
}

// codeOfAgent returns the exit code of an agent's failure. It is never a code about the directory's
// registrations or the caller's credentials.
func codeOfAgent(problem directory.Problem) int {
	switch problem {
	case directory.AgentFailed, directory.AgentTimeout, directory.AgentUnavailable, directory.AgentRateLimited:
		return ExitUnavailable
	}

	return ExitFailed
}

// hintOfAgent is the hint on an agent's failure. A failure with which nothing was sent says so.
func hintOfAgent(problem directory.Problem, response *apiclient.Error) string {
	after := "later"
	if wait := response.RetryAfter(); wait > 0 {
		after = "in " + wait.String()
	}

	switch {
	case problem == directory.AgentRateLimited:
		return "The agent is asked too often; the directory works. Try again " + after + "."
	case problem == directory.AgentUnavailable:
		return "The agent is unavailable, or its registration says so; the directory works. Try again " + after + "."
	case strings.Contains(response.Error(), "nothing was sent"):
		return "The agent is unreachable; the directory works, and nothing was sent."
	case problem == directory.AgentFailed, problem == directory.AgentTimeout:
		return "The agent failed or is unreachable; the directory works. The agent may have acted."
	}

	return "The agent itself refused the request; the directory works."
}

// otherFaults returns the faults of a document after the one that the error is about.
func otherFaults(response *apiclient.Error) (faults []string) {
	for i, fault := range response.Errors {
		if i > 0 {
			faults = append(faults, FirstLine(strings.TrimSuffix(fault.Detail, ".")+" (at "+fault.Pointer+")"))
		}
	}

	return faults
}

// codeOfStatus returns the exit code of a response that is not 2xx.
func codeOfStatus(status int, problem directory.Problem) int {
	switch status {
	case http.StatusBadRequest:
		return codeOfProblem(problem)
	case http.StatusUnauthorized, http.StatusForbidden:
		return ExitRefused
	case http.StatusNotFound, http.StatusGone:
		// No directory has sent this 404, so it says nothing about registrations.
		if problem == "" {
			return ExitFailed
		}

		return ExitNotFound
	case http.StatusConflict, http.StatusPreconditionFailed, http.StatusMultipleChoices:
		return ExitConflict
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return ExitUnavailable
	}

	return ExitFailed
}

// codeOfProblem returns the exit code of an invalid request: usage for a parameter, failed
// for a document.
func codeOfProblem(problem directory.Problem) int {
	switch problem {
	case directory.BadName, directory.BadLifetime, directory.BadQuery:
		return ExitUsage
	}

	return ExitFailed
}

// failureOfTransport returns the failure of an error of files, the network or evidence.
func failureOfTransport(err error) *Failure {
	failure := &Failure{Code: ExitFailed, Message: FirstLine(err.Error()), err: err}

	var (
		server      *apiclient.ServerError
		certificate *tls.CertificateVerificationError
		operation   *net.OpError
		request     *url.Error
	)
	switch {
	case errors.Is(err, apiclient.ErrAnswer):
		failure.Hint = hintForeign

	case trust.ExitCode(err) > ExitFailed:
		failure.Code = trust.ExitCode(err)

	case errors.As(err, &server):
		failure.Code = ExitKey
		failure.Message = "the server was rejected: " + FirstLine(server.Error())
		failure.Hint = "--bundle (or ROSTER_BUNDLE) must contain the CA certificates of the directory's domain, " +
			"and --address must be a node of it."

		if errors.Is(err, apiclient.ErrNotInForce) {
			failure.Hint = "An operator renews the node's X.509-SVID; use another node's address meanwhile. " +
				"If it was renewed, check this machine's clock."
		}

	case errors.As(err, &certificate):
		failure.Code = ExitKey
		failure.Message = "the server's certificate was rejected: " + certificateFault(certificate)
		failure.Hint = "For a node of a domain, give the domain's CA certificates in --bundle (or ROSTER_BUNDLE). " +
			"Else --address must match the certificate."

	// The error is a TLS alert.
	case errors.As(err, &operation) && operation.Op == "remote error":
		failure.Code = ExitRefused
		failure.Message = "the server rejected the client certificate: " + FirstLine(operation.Err.Error())
		failure.Hint = "--cert and --key must be a valid X.509-SVID of the directory's domain or of one of its peers."

	case errors.As(err, &request):
		failure.Code = ExitUnavailable
		failure.Message = "no response from the directory: " + NetworkCause(request)

		failure.Hint = "Check that the node is running and --address (or ROSTER_ADDRESS) is right. " +
			"Any node of the domain will do."

		// Only a request that reached a server can have changed anything, and a read changes nothing.
		if connected := operation == nil || operation.Op != "dial"; connected && request.Op != "Get" {
			failure.Hint = "The change may have been made; check before you repeat it. Any node of the domain will do."
		}
	}

	return failure
}

// certificateFault returns why a certificate is not valid by the system's authorities.
func certificateFault(err *tls.CertificateVerificationError) string {
	var invalid x509.CertificateInvalidError
	if errors.As(err, &invalid) && invalid.Reason == x509.Expired && time.Now().After(invalid.Cert.NotAfter) {
		return "it expired at " + FormatTime(invalid.Cert.NotAfter)
	}

	return FirstLine(err.Err.Error())
}
