package gateway

import (
	"context"
	"errors"
	"mime"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/span"
)

// askedKey is, of a request's context, the exchange whose question it is.
type askedKey struct{}

// An exchange sends the requests to an MCP server for one invocation or probe. Its
// requests end with that. It keeps the guard's own refusal, because the library may not
// return it.
type exchange struct {
	next http.RoundTripper
	ctx  context.Context
	i    *invocation // nil if it is for no invocation
	most int64       // bytes of an event
	last atomic.Pointer[error]
	// status is that of the last request that the server refused; 0 if it refused none.
	status atomic.Int32
	// sent means that a request has been handed on. missing means that the server
	// doesn't know the session of the request. spoiled means that the session must not
	// be used again.
	sent, missing, spoiled atomic.Bool
}

// RoundTrip implements http.RoundTripper.
func (x *exchange) RoundTrip(r *http.Request) (*http.Response, error) {
	x.sent.Store(true)

	ctx, cancel := context.WithCancelCause(r.Context())

	// The server hears of the end of a session even if the caller has gone.
	if r.Method == http.MethodDelete {
		time.AfterFunc(closeTime, func() { cancel(context.DeadlineExceeded) })
	} else {
		context.AfterFunc(x.ctx, func() { cancel(context.Cause(x.ctx)) }) // which comes when the invocation ends
	}

	if x.i != nil {
		ctx = x.i.traceConn(ctx)
	}

	if r = r.Clone(ctx); x.i != nil {
		x.i.setHeader(ctx, r.Header)
		span.Inject(x.ctx, r.Header)    // the library's context isn't the invocation's
		r.Header.Del("Idempotency-Key") // a session is several requests, and one key is for one
	}

	// A GET asks for the rest of an answer: the agent has the request, so nothing that such a
	// request meets says that it did nothing.
	resumes := r.Method == http.MethodGet

	resp, err := x.next.RoundTrip(r)
	if err != nil {
		if resumes && x.ctx.Err() == nil {
			refusal := directory.Refuse(directory.AgentFailed,
				"the agent ended the stream of its answer, and can't be asked for the rest")
			refusal.Err = err
			err = refusal
		}

		x.last.Store(&err)

		return nil, err
	}

	if x.i != nil {
		resp.Body = &holding{resp.Body, x.hold}
	}

	switch success := resp.StatusCode < 300; {
	case r.Method == http.MethodDelete: // the library ends a session because of what came before
	case success:
		x.last.Store(nil) // an error before it was overcome

		if media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); media == "text/event-stream" {
			resp.Body = newEventBody(resp.Body, x.most, r.Header.Get("Last-Event-Id"))
		}
	case resumes:
		err = directory.Refuse(directory.AgentFailed,
			"the agent ended the stream of its answer, and answered %d to the request for the rest", resp.StatusCode)
		x.last.Store(&err)
	case resp.StatusCode == http.StatusServiceUnavailable, resp.StatusCode == http.StatusTooManyRequests:
		err = refusalOf(resp, false)
		x.last.Store(&err)
	case resp.StatusCode == http.StatusNotFound: // MCP 2025-11-25, Session Management, 4
		// Answers to the server's own requests are sent within the session too. Their
		// status shows nothing about the invocation.
		if r.Context().Value(askedKey{}) == x && r.Header.Get("Mcp-Session-Id") != "" {
			x.missing.Store(true)
		}

		x.status.Store(int32(resp.StatusCode))
	default:
		x.status.Store(int32(resp.StatusCode))
	}

	return resp, nil
}

// hold takes memory for bytes of an answer, and keeps the error for the caller, because the library doesn't return it.
func (x *exchange) hold(bytes int64) error {
	err := x.i.hold(bytes)
	if err != nil {
		x.last.Store(&err)
	}

	return err
}

// lost reports whether nothing was done because the session is no more.
func (x *exchange) lost() bool { return x.missing.Load() || !x.sent.Load() }

// failed returns why nothing came of the exchange. Its session is not used again,
// unless the gateway itself had nothing sent.
func (x *exchange) failed(err error) error {
	if refusal, ok := errors.AsType[*directory.Error](err); ok {
		return refusal
	}

	x.spoiled.Store(true)

	return x.cause(err)
}

// cause returns why an exchange failed.
func (x *exchange) cause(err error) error {
	if refusal, ok := errors.AsType[*directory.Error](err); ok {
		return refusal
	}

	if last := x.last.Load(); last != nil {
		return *last
	}

	rpc, isRPC := errors.AsType[*jsonrpc.Error](err)
	if isRPC && rpc.Code == jsonrpc.CodeInvalidParams {
		return directory.Refuse(directory.AgentBadRequest, "the agent answered: %s", oneLine(rpc.Message))
	}

	if cause := context.Cause(x.ctx); cause != nil {
		return cause
	}

	switch status := x.status.Load(); {
	case isRPC:
		return directory.Refuse(directory.AgentFailed, "the agent answered with the JSON-RPC error %d", rpc.Code)
	case status != 0:
		return directory.Refuse(directory.AgentFailed, "the agent answered %d", status)
	case x.sent.Load(): // and an answer came: else the network's error were the last one
		refusal := directory.Refuse(directory.AgentFailed,
			"the agent's answer is not that of an MCP server, or was cut off")
		refusal.Err = err

		return refusal
	}

	return err
}
