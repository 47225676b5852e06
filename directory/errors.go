package directory

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// A Problem is the class of a failed request: the last segment of the problem's type URI
// (RFC 9457). Package problem maps it to a status and to the error codes of the other
// drafts.
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
	OwnerOutsideDomain     Problem = "owner-outside-domain"
	OfferChanged           Problem = "offer-changed" // an offered registration has other contents by now
	WrongKind              Problem = "wrong-kind"
	StaleMetadata          Problem = "stale-metadata"
	PreconditionFailed     Problem = "precondition-failed"
	Conflict               Problem = "conflict"
	RateLimited            Problem = "rate-limited"
	Unavailable            Problem = "unavailable"
	NotVoter               Problem = "not-a-voter" // of operators' changes at a member without a vote
	Overloaded             Problem = "overloaded"  // the request was not processed
	PositionLost           Problem = "position-lost"
	Overtaken              Problem = "overtaken" // policy or the registration has changed since policy was asked
	OutcomeUnknown         Problem = "outcome-unknown"
	Internal               Problem = "internal"
)

// The problems of an invocation through the gateway, before it reached the agent and at the
// agent (draft-cui, 5).
const (
	BadInput         Problem = "invalid-input"          // by the operation's schema
	NotInvocable     Problem = "not-invocable"          // the agent has no binding that this node speaks
	EndpointRefused  Problem = "endpoint-refused"       // by the guard's rule that the detail names
	KeyReused        Problem = "idempotency-key-reused" // with another body
	KeyInUse         Problem = "idempotency-key-in-use" // the first request with it is under way
	KeySpent         Problem = "idempotency-key-spent"  // the first answer is not stored or not known
	AgentFailed      Problem = "agent-failed"           // unreachable, or its answer is invalid
	AgentUnavailable Problem = "agent-unavailable"      // as it reported
	AgentTimeout     Problem = "agent-timeout"
	// The agent's answers that the caller can fix: 400, 404, 409, 413, 422, 429, and 401 and
	// 403 if the credentials were the caller's own.
	AgentBadRequest    Problem = "agent-bad-request"
	AgentUnauthorized  Problem = "agent-unauthorized"
	AgentForbidden     Problem = "agent-forbidden"
	AgentNotFound      Problem = "agent-not-found"
	AgentConflict      Problem = "agent-conflict"
	AgentTooLarge      Problem = "agent-content-too-large"
	AgentUnprocessable Problem = "agent-unprocessable"
	AgentRateLimited   Problem = "agent-rate-limited"
)

// Error is a refusal: a problem for machines, a sentence for people, and the place in the
// request. Nothing was changed, except that OutcomeUnknown leaves this open.
type Error struct {
	Problem Problem
	Detail  string // the defect and its remedy, for people
	Pointer string // JSON pointer (RFC 6901) into the body; empty for the whole
	// Violations are all faults of a document, Detail's first; at most MaxViolations. Empty
	// if the fault is not in a document.
	Violations []Violation
	RetryAfter int   // seconds, where this one says; else it is the problem's
	Err        error // the cause; never shown to a client
}

// MaxViolations bounds Error.Violations (AI-025).
const MaxViolations = 32

// A Violation is one fault of a document, and its place.
type Violation struct {
	Pointer string // JSON pointer
	Detail  string
	Missing bool // the fault is that a required member is absent
}

func (e *Error) Error() string {
	if e.Pointer != "" {
		return strings.TrimSuffix(e.Detail, ".") + " (at " + e.Pointer + ")"
	}

	return e.Detail
}

func (e *Error) Unwrap() error { return e.Err }

// Refuse returns an Error of problem p with a formatted detail, in which quoted text is cut at
// maxQuoted bytes, and URLs show no password. The operand of a verb %w becomes its cause.
func Refuse(p Problem, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Problem: p, Detail: cutQuoted(HideUserinfo(err.Error())), Err: errors.Unwrap(err)}
}

// maxQuoted bounds quoted text in a detail, in bytes: a caller chose most of it (rule S2).
const maxQuoted = 64

// cutQuoted cuts the texts between double quotes, in which a backslash escapes.
func cutQuoted(detail string) string {
	if len(detail) <= maxQuoted {
		return detail
	}

	var (
		short strings.Builder
		done  int  // bytes of detail that are in short or dropped
		begin = -1 // of the quoted text; -1 outside of one
		cut   int  // the last place at which it may be cut
	)

	for i := 0; i < len(detail); i++ {
		switch {
		case detail[i] == '"' && begin < 0:
			begin = i + 1
			cut = begin
		case begin < 0:
		case detail[i] == '"':
			if i-begin > maxQuoted {
				short.WriteString(detail[done:cut] + "…")
				done = i
			}

			begin = -1
		default:
			// A text is cut between characters, and never within an escape.
			if i-begin <= maxQuoted && utf8.RuneStart(detail[i]) {
				cut = i
			}

			if detail[i] == '\\' {
				i++
			}
		}
	}

	return short.String() + detail[done:]
}

// maxPointer bounds a pointer, in bytes: a caller chose the names in it.
const maxPointer = 256

// At returns e with the JSON pointer of its place in the body, or of the innermost value around that
// whose pointer is short enough.
func (e *Error) At(pointer string) *Error {
	for len(pointer) > maxPointer {
		pointer = pointer[:max(0, strings.LastIndexByte(pointer, '/'))]
	}

	c := *e
	c.Pointer = pointer

	return &c
}

// ProblemOf returns the problem of err; Internal if err has none.
func ProblemOf(err error) Problem {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Problem
	}

	return Internal
}
