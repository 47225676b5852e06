package client

import (
	"cmp"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/roster-mesh/roster/api/wire"
)

// Kinds of failure, for errors.Is. A directory's refusal is an *Error, which is at
// most one of these, and has more to say for errors.As.
var (
	// ErrInvalid: the request breaks a rule; sending it again does not help.
	ErrInvalid = errors.New("client: invalid request")
	// ErrUnauthenticated: the request needs a verified identity.
	ErrUnauthenticated = errors.New("client: not authenticated")
	// ErrForbidden: the caller is known, and may not do this.
	ErrForbidden = errors.New("client: forbidden")
	// ErrQuota: the caller or the domain has as much as it may have.
	ErrQuota = errors.New("client: quota exceeded")
	// ErrNotFound: there is nothing there, or nothing that the caller may see.
	ErrNotFound = errors.New("client: not found")
	// ErrAmbiguous: several domains have a registration of this name.
	ErrAmbiguous = errors.New("client: ambiguous name")
	// ErrConflict: the request does not fit the present state; a name is taken.
	ErrConflict = errors.New("client: conflict")
	// ErrPrecondition: the registration or policy is not at the version that the
	// request names.
	ErrPrecondition = errors.New("client: precondition failed")
	// ErrRateLimited: the caller asks too often.
	ErrRateLimited = errors.New("client: rate limited")
	// ErrUnavailable: the directory does not answer, or can't now. Nothing was changed.
	ErrUnavailable = errors.New("client: unavailable")
	// ErrOutcomeUnknown: a change may have been made or not, because the connection
	// or the leader was lost meanwhile. To register, refresh or remove again is safe.
	ErrOutcomeUnknown = errors.New("client: outcome unknown")
	// ErrAgent: an agent that was invoked failed or refused. The directory is well.
	ErrAgent = errors.New("client: agent failed")
	// ErrAnswer: something answered, and not as a directory does. Another program is
	// at the address, or something stands between. A change may have been made.
	ErrAnswer = errors.New("the answer is not what a directory sends")
)

// A Problem is the body of a refusal (RFC 9457).
type Problem = wire.Problem

// A Fault is one fault of a request's body.
type Fault = wire.Fault

// An Error is a directory's refusal: the answer as it came, and its problem body.
type Error struct {
	Reply
	Problem
	// Code names the problem, such as not-found or agent-name-taken. It is the last
	// segment of the problem's type, and empty if the body is no problem, as that of
	// a proxy's answer.
	Code string
}

// Error returns the problem's detail, with the place in the body that it is about.
func (e *Error) Error() string {
	text := e.Detail
	text = cmp.Or(text, fmt.Sprintf("the directory answered %d %s", e.Status, http.StatusText(e.Status)))

	if e.Pointer != "" {
		text = strings.TrimSuffix(text, ".") + " (at " + e.Pointer + ")"
	}

	return text
}

// RetryAfter returns the time after which the directory asks to be asked again; 0
// if it did not say.
func (e *Error) RetryAfter() time.Duration {
	after := time.Duration(e.RetryAfterSeconds) * time.Second

	text := e.Header.Get("Retry-After")
	if n, err := strconv.ParseUint(text, 10, 31); err == nil {
		after = max(after, time.Duration(n)*time.Second)
	} else if at, err := http.ParseTime(text); err == nil {
		after = max(after, time.Until(at)) // as proxies write it
	}

	return max(after, 0)
}

// Is reports whether e is of that kind.
func (e *Error) Is(kind error) bool { return kind != nil && e.kind() == kind }

// kind returns which of the package's errors e is; nil for none.
func (e *Error) kind() error {
	if strings.HasPrefix(e.Code, "agent-") && e.Code != wire.CodeNameTaken {
		return ErrAgent
	}

	// A code says more than its status, so it is judged first.
	switch e.Code {
	case wire.CodeQuotaExceeded:
		return ErrQuota
	case wire.CodeOutcomeUnknown:
		return ErrOutcomeUnknown
	}

	switch e.Status {
	case http.StatusMultipleChoices:
		return ErrAmbiguous
	case http.StatusTooManyRequests:
		return ErrRateLimited
	case http.StatusServiceUnavailable:
		if e.Code == "" && e.change {
			return ErrOutcomeUnknown // a proxy does not know its outcome
		}

		return ErrUnavailable
	case http.StatusBadGateway, http.StatusGatewayTimeout:
		if e.change {
			return ErrOutcomeUnknown
		}

		return ErrUnavailable
	}

	if e.Code == "" {
		return nil // no directory's word
	}

	switch e.Status {
	case http.StatusUnauthorized:
		return ErrUnauthenticated
	case http.StatusForbidden:
		return ErrForbidden
	case http.StatusNotFound, http.StatusGone:
		return ErrNotFound
	case http.StatusConflict:
		return ErrConflict
	case http.StatusPreconditionFailed:
		return ErrPrecondition
	}

	if e.Status >= 400 && e.Status < 500 {
		return ErrInvalid
	}

	return nil
}

// newError returns the refusal that a reply is.
func newError(r *Reply) *Error {
	e := &Error{Reply: *r}

	// Proxies add parameters to the media type.
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err == nil && media == wire.MediaProblem && json.Unmarshal(r.Body, &e.Problem) == nil {
		e.Code = e.Type[strings.LastIndexByte(e.Type, '/')+1:]
	}

	if r.Status == http.StatusMultipleChoices {
		e.Detail = "several domains have a registration of this id: " + strings.Join(r.Header.Values("Link"), ", ")
	}

	return e
}

// A transportError is a request that nothing answered, or that broke off.
type transportError struct {
	err     error
	effect  bool // whether the request was a change that may have been made
	aborted bool // whether the caller's context ended it
}

func (e *transportError) Error() string { return e.err.Error() }
func (e *transportError) Unwrap() error { return e.err }

// Is reports whether e is ErrOutcomeUnknown or ErrUnavailable.
func (e *transportError) Is(kind error) bool {
	switch kind {
	case ErrOutcomeUnknown:
		return e.effect
	case ErrUnavailable:
		return !e.effect && !e.aborted
	}

	return false
}
