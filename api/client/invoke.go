package client

import (
	"context"
	"net/http"
	"net/url"
)

// InvokeOptions say how an invocation is made.
type InvokeOptions struct {
	// IdempotencyKey, if it is set, makes the invocation safe to repeat: the agent is
	// invoked once for all requests of this caller with one key, and each gets the
	// first one's answer. The client then repeats it as other requests. Use a new,
	// random key for each invocation.
	IdempotencyKey string
}

// Invoke invokes an agent, by rid or name, through the directory's gateway
// (draft-cui, 5): the operation of that name, or what the input says if it is
// empty. The input is JSON. The reply's body is the agent's output. ErrAgent is the
// agent's failure; it may have acted. Only the gateway and ctx bound how long the
// call takes. The gateway validates input and output by the registration's schemas;
// package contract does it at the caller.
func (c *Client) Invoke(ctx context.Context, id, operation string, input []byte, opt InvokeOptions) (*Reply, error) {
	if operation == "" {
		operation = "invoke" // no operation has this name
	}

	q := &request{
		method:    http.MethodPost,
		target:    "/agents/" + url.PathEscape(id) + "/" + url.PathEscape(operation),
		header:    http.Header{},
		body:      input,
		unbounded: true,
	}
	if opt.IdempotencyKey != "" {
		q.header.Set("Idempotency-Key", opt.IdempotencyKey)
		q.repeat = idempotent
	}

	return c.do(ctx, q)
}
