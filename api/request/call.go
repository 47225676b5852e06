package request

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/roster-mesh/roster/api/admission"
	"github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/problem"
	"github.com/roster-mesh/roster/directory/span"
	"github.com/roster-mesh/roster/limit"
)

// A Handler answers the calls of one route. An error that it returns is answered with a
// problem body by the server, except for ErrAnswered.
type Handler func(w http.ResponseWriter, c *Call) error

// ErrAnswered is the error of a handler that a step ends which answered the call.
var ErrAnswered = errors.New("the call is answered")

// A Call is one request on its way through the server. It is for the goroutine that
// serves it.
type Call struct {
	*http.Request

	RequestID string
	Arrived   time.Time
	Span      span.Span         // of the request; the steps begin theirs by span.Start
	Route     string            // the path of the route table; empty until one matches
	Vars      map[string]string // variables of the path, percent-decoded once
	Params    Params            // of the query

	Identity   directory.Identity // the verified caller; zero if it is anonymous
	Credential Credential         // by which Identity was verified

	Party   limit.Caller     // of the caller, in shares and rates
	Slot    admission.Slot   // of the node's capacity
	Pools   *admission.Pools // of the node
	MaxBody int64            // bytes of the body that the route takes

	// AnswerHeader is the header of the answer, as long as no part of that is sent.
	AnswerHeader http.Header

	// Level is the level at which the call is logged if it succeeds.
	Level slog.Level

	// Decided are the policies that decided last, and Audited is whether the audit log
	// has the outcome of the call.
	Decided []string
	Audited bool
	Refusal *problem.Refusal // that the call was answered with
}

type callKey struct{}

// With returns ctx with the call in it.
func With(ctx context.Context, c *Call) context.Context { return context.WithValue(ctx, callKey{}, c) }

// Of returns the call that ctx belongs to; nil if there is none.
func Of(ctx context.Context) *Call {
	c, _ := ctx.Value(callKey{}).(*Call)
	return c
}

// Caller is the party that the call counts against.
func (c *Call) Caller() admission.Caller {
	return admission.Caller{Identity: c.Identity, Method: c.Credential.Method, Party: c.Party}
}

// Anonymous tells whether the caller proved no identity.
func (c *Call) Anonymous() bool { return c.Identity.IsZero() }

// Reads tells whether the method is one that changes nothing.
func (c *Call) Reads() bool { return c.Method == http.MethodGet || c.Method == http.MethodHead }

// Audit completes an event of the audit log with the call's own fields.
func (c *Call) Audit(event directory.AuditEvent) directory.AuditEvent {
	event.RequestID = c.RequestID
	event.Actor = c.Identity
	event.Policies = c.Decided

	event.Authn = c.Credential.Method
	if event.Authn != "" && c.Credential.ReadOnly {
		event.Authn += ", for reads"
	}

	return event
}

// Ignore names a part of the request that has no effect in the header of the answer, once.
func (c *Call) Ignore(part wire.Ignored) {
	header := c.AnswerHeader
	if header == nil || slices.Contains(wire.ParseIgnored(header[wire.HeaderIgnored]), part) {
		return
	}

	header.Set(wire.HeaderIgnored, wire.AppendIgnored(header.Get(wire.HeaderIgnored), part))
}

// OutcomeOf is the outcome of a change in the audit log: ok, or the problem's name.
func OutcomeOf(err error) string {
	if err == nil {
		return directory.OutcomeOK
	}

	return string(problem.Explain(err).Err.Problem)
}
