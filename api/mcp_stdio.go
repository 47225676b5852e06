package api

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/roster-mesh/roster/api/client"
)

// ServeTools answers MCP on in and out, newline-delimited, with the tools that a
// node has at /mcp. What they ask goes to c's node, as c's identity. It returns
// when in has ended and all is answered, or when ctx is done, with its error.
func ServeTools(ctx context.Context, c *client.Client, in io.ReadCloser, out io.WriteCloser) error {
	ask := func(ctx context.Context, q *request) (*client.Reply, error) {
		r, err := c.Do(ctx, q.method, q.target, nil, q.body)
		if refused := (*client.Error)(nil); err == nil || errors.As(err, &refused) {
			return r, nil
		}
		return nil, unanswered(q, err)
	}
	return newToolServer(c.Address(), ask).Run(ctx, draining{&mcp.IOTransport{Reader: in, Writer: out, MaxLineLength: maxMessage}})
}

// drainTime is how long the end of the input waits for answers.
const drainTime = (maxWait + 5) * time.Second

// draining is a transport whose input may end before its answers are out, as that
// of a pipe does: the SDK drops what it has not answered then.
type draining struct{ mcp.Transport }

// Connect implements mcp.Transport.
func (p draining) Connect(ctx context.Context) (mcp.Connection, error) {
	c, err := p.Transport.Connect(ctx)
	return &drainingConn{Connection: c, answered: make(chan struct{}, 1)}, err
}

type drainingConn struct {
	mcp.Connection
	answered chan struct{} // holds one where something was answered of late

	mu   sync.Mutex // guards open
	open int        // requests that are not answered
}

// Read implements mcp.Connection.
func (c *drainingConn) Read(ctx context.Context) (jsonrpc.Message, error) {
	m, err := c.Connection.Read(ctx)
	if r, ok := m.(*jsonrpc.Request); err == nil && ok && r.IsCall() {
		c.count(1)
	}
	if err != nil { // also where what came is no message, which ends the reading
		c.settle(ctx)
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

// count adds to the requests that are not answered, and returns how many they are.
func (c *drainingConn) count(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open += n
	return c.open
}

// settle waits until all is answered.
func (c *drainingConn) settle(ctx context.Context) {
	enough := time.After(drainTime)
	for c.count(0) > 0 {
		select {
		case <-c.answered:
		case <-enough:
			return
		case <-ctx.Done():
			return
		}
	}
}
