package directory

import (
	"errors"
	"fmt"
)

// A Problem names one way in which a request fails. It is the last segment of
// the problem's type URI (RFC 9457); package api maps it to a status and to the
// codes of the other drafts.
type Problem string

// The problems that the directory itself finds. Each has a page at
// /problems/NAME.
const (
	BadRequest             Problem = "bad-request"
	BadName                Problem = "bad-name"
	BadLifetime            Problem = "bad-lifetime"
	BadDocument            Problem = "bad-document"
	BadQuery               Problem = "bad-query"
	TooManyCapabilities    Problem = "too-many-capabilities"
	TooLarge               Problem = "too-large"
	Unauthenticated        Problem = "unauthenticated"
	Replayed               Problem = "credential-replayed"
	Forbidden              Problem = "forbidden"
	ForeignRegistration    Problem = "foreign-registration"
	CapabilityNotPermitted Problem = "capability-not-permitted"
	NotFound               Problem = "not-found"
	RegistrationExpired    Problem = "registration-expired"
	NameTaken              Problem = "agent-name-taken"
	QuotaExceeded          Problem = "quota-exceeded"
	WrongKind              Problem = "wrong-kind"
	StaleMetadata          Problem = "stale-metadata"
	PreconditionFailed     Problem = "precondition-failed"
	Conflict               Problem = "conflict"
	RateLimited            Problem = "rate-limited"
	Unavailable            Problem = "unavailable"
	Overloaded             Problem = "overloaded" // nothing was looked at
	Overtaken              Problem = "overtaken"  // policy, or what it was asked about, has changed since: ask it again
	OutcomeUnknown         Problem = "outcome-unknown"
	Internal               Problem = "internal"
)

// The problems of an invocation through the gateway: what kept it from the agent,
// and what the agent made of it (draft-cui, 5).
const (
	BadInput         Problem = "invalid-input"          // by the operation's schema
	NotInvocable     Problem = "not-invocable"          // the agent has no binding that this node speaks
	EndpointRefused  Problem = "endpoint-refused"       // by the guard's rule that the detail names
	KeyReused        Problem = "idempotency-key-reused" // with another body
	KeyInUse         Problem = "idempotency-key-in-use" // the first request with it is under way
	KeySpent         Problem = "idempotency-key-spent"  // the first answer to it is not kept, or not known
	AgentFailed      Problem = "agent-failed"           // not reached, or its answer is not one
	AgentUnavailable Problem = "agent-unavailable"      // by its own word
	AgentTimeout     Problem = "agent-timeout"
	// What the agent answered, which is the caller's to mend: 400, 404, 409, 413, 422,
	// 429, and 401 and 403 where the credentials were the caller's own.
	AgentBadRequest    Problem = "agent-bad-request"
	AgentUnauthorized  Problem = "agent-unauthorized"
	AgentForbidden     Problem = "agent-forbidden"
	AgentNotFound      Problem = "agent-not-found"
	AgentConflict      Problem = "agent-conflict"
	AgentTooLarge      Problem = "agent-content-too-large"
	AgentUnprocessable Problem = "agent-unprocessable"
	AgentRateLimited   Problem = "agent-rate-limited"
)

// Error is a refusal: a problem for machines, a sentence for people, and where
// in the request it lies. Nothing was changed when one is returned, except for
// OutcomeUnknown, which says that something may have been.
type Error struct {
	Problem Problem
	Detail  string // what is wrong and what to do, for people
	Pointer string // JSON pointer (RFC 6901) into the body; empty for the whole
	// Violations are all that is wrong with a document, Detail's first; at most
	// MaxViolations. Empty where the document is not what is wrong.
	Violations []Violation
	RetryAfter int   // seconds, where this one says; else it is the problem's
	Err        error // what caused it; never shown to a client
}

// MaxViolations bounds Error.Violations (AI-025).
const MaxViolations = 32

// A Violation is one thing that is wrong with a document, and where.
type Violation struct {
	Pointer string // JSON pointer
	Detail  string
	Missing bool // the fault is that a required member is absent
}

func (e *Error) Error() string {
	if e.Pointer != "" {
		return e.Detail + " (at " + e.Pointer + ")"
	}

	return e.Detail
}

func (e *Error) Unwrap() error { return e.Err }

// Refuse returns an Error of problem p with a formatted detail. An operand of
// the verb %w becomes its cause.
func Refuse(p Problem, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Problem: p, Detail: err.Error(), Err: errors.Unwrap(err)}
}

// At returns e with the place in the body that it is about.
func (e *Error) At(pointer string) *Error {
	c := *e
	c.Pointer = pointer

	return &c
}

// ProblemOf returns the problem that err carries; Internal for an error that
// carries none.
func ProblemOf(err error) Problem {
	var e *Error
	if errors.As(err, &e) {
		return e.Problem
	}

	return Internal
}
