package mcp

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/api/openapi"
	"github.com/roster-mesh/roster/api/wire"
)

// Serve answers MCP on in and out, newline-delimited, with the tools that a node has at
// /mcp. Their requests go to c's node, as c's identity; proofs are verified by verify, which
// may be nil. It returns when in has ended and
// everything is answered, or when ctx ends, with its error.
func Serve(
	ctx context.Context, description *openapi.Document, c *client.Client, verify Verifier, in io.ReadCloser,
	out io.WriteCloser,
) error {
	do := func(ctx context.Context, request *toolRequest) (*client.Reply, error) {
		reply, err := c.Do(ctx, request.method, request.target, nil, request.body)
		if refused := (*client.Error)(nil); err == nil || errors.As(err, &refused) {
			return reply, nil
		}

		return nil, unanswered(request, err)
	}

	server := newServer(newToolset(description, verify), c.Address(), do)
	transport := &mcp.IOTransport{Reader: in, Writer: out, MaxLineLength: MaxMessage}

	return server.Run(ctx, drainingTransport{transport})
}

// drainTime is how long the end of the input waits for answers.
const drainTime = (wire.MaxWait + 5) * time.Second

// A drainingTransport answers the requests that it has when its input ends, as a pipe's
// does. The SDK would drop them.
type drainingTransport struct{ mcp.Transport }

// Connect implements mcp.Transport.
func (t drainingTransport) Connect(ctx context.Context) (mcp.Connection, error) {
	c, err := t.Transport.Connect(ctx)
	return &drainingConn{Connection: c, answered: make(chan struct{}, 1)}, err
}

type drainingConn struct {
	mcp.Connection

	answered chan struct{} // holds a token after a request was answered

	mu   sync.Mutex // guards open
	open int        // requests that are not answered
}

// Read implements mcp.Connection.
func (c *drainingConn) Read(ctx context.Context) (jsonrpc.Message, error) {
	m, err := c.Connection.Read(ctx)
	if r, ok := m.(*jsonrpc.Request); err == nil && ok && r.IsCall() {
		c.count(1)
	}

	if err != nil { // also after an invalid message, which ends the reading
		c.drain(ctx)
	}

	return m, err
}

// Write implements mcp.Connection.
func (c *drainingConn) Write(ctx context.Context, m jsonrpc.Message) error {
	err := c.Connection.Write(ctx, m)
	if _, ok := m.(*jsonrpc.Response); ok {
		c.count(-1)

		select {
		case c.answered <- struct{}{}:
		default:
		}
	}

	return err
}

// count adds to the number of open requests, and returns it.
func (c *drainingConn) count(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.open += n

	return c.open
}

// drain waits until all requests are answered.
func (c *drainingConn) drain(ctx context.Context) {
	timeout := time.After(drainTime)
	for c.count(0) > 0 {
		select {
		case <-c.answered:
		case <-timeout:
			return
		case <-ctx.Done():
			return
		}
	}
}
