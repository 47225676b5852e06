package api

import (
	"context"
	"errors"
	"io"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// ServeTools answers MCP on in and out, newline-delimited, with the tools that a
// node has at /mcp. What they ask goes to c's node, as c's identity. It returns
// when in ends, or when ctx is done, with its error.
func ServeTools(ctx context.Context, c *Client, in io.ReadCloser, out io.WriteCloser) error {
	ask := func(ctx context.Context, q *request) (*Reply, error) {
		r, err := c.do(ctx, q.method, q.target, nil, q.body)
		if refused := (*Error)(nil); err == nil || errors.As(err, &refused) {
			return r, nil
		}
		return nil, unanswered(q, err)
	}
	return newToolServer(c.base, ask).Run(ctx, &mcp.IOTransport{Reader: in, Writer: out, MaxLineLength: maxMessage})
}
