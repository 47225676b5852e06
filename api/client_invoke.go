package api

import (
	"context"
	"net/http"
	"net/url"
)

// Invoke has an agent do something through the directory's gateway (draft-cui, 5):
// the operation of that name, or by what the input says where it is "". The input
// is JSON. The reply's body is the agent's output; errors are *Error.
func (c *Client) Invoke(ctx context.Context, id, operation string, input []byte) (*Reply, error) {
	if operation == "" {
		operation = "invoke" // an operation can't be called so
	}
	return c.do(ctx, http.MethodPost, "/agents/"+url.PathEscape(id)+"/"+url.PathEscape(operation), nil, input)
}
