package gateway

import (
	"context"
	"errors"
	"fmt"
)

// ErrNothingSaid means that a server answered without a usable description of its
// agent: it has no such document, or the document is malformed.
var ErrNothingSaid = errors.New("nothing is said there")

// An MCPServer is the description that an MCP server gives when it is initialized.
type MCPServer struct {
	Name, Title, Version string
	Tools                []MCPTool
	AllTools             bool // false if the server may have more tools than Tools
}

// An MCPTool is a tool that an MCP server lists. Its description may be empty.
type MCPTool struct{ Name, Description string }

// DescribeMCP initializes the MCP server at endpoint, lists its tools and ends the
// session (jimenez A.2). It calls no tool. Of target, MaxBody and Timeout are the
// guard's. The error is the guard's, of the network, or [ErrNothingSaid].
func (g *Guard) DescribeMCP(ctx context.Context, endpoint string, target Target) (*MCPServer, error) {
	target.MaxBody, target.Timeout = DefaultMaxBody, g.cfg.Timeout
	ctx, cancel := context.WithTimeoutCause(ctx, target.Timeout,
		refuse(RuleTime, context.DeadlineExceeded, "the exchange took over %s", target.Timeout))
	defer cancel()
	within := &exchange{next: g.Client(target).Transport, ctx: ctx, most: target.MaxBody}

	open, err := newMCPClient("roster-prober").Connect(ctx, mcpTransport(endpoint, target.MaxBody, within), nil)
	if err != nil {
		return nil, within.silence(err)
	}
	defer open.Close()

	hello := open.InitializeResult()
	if hello == nil || hello.ServerInfo == nil {
		return nil, fmt.Errorf("%w: the server does not describe itself", ErrNothingSaid)
	}

	server := &MCPServer{Name: hello.ServerInfo.Name, Title: hello.ServerInfo.Title, Version: hello.ServerInfo.Version,
		AllTools: true}
	if hello.Capabilities == nil || hello.Capabilities.Tools == nil {
		return server, nil
	}

	tools, missing, err := listTools(ctx, open)
	if err != nil {
		return nil, within.silence(err)
	}

	server.AllTools = missing == ""
	for _, tool := range tools {
		server.Tools = append(server.Tools, MCPTool{tool.Name, tool.Description})
	}

	return server, nil
}

// silence returns the reason why an exchange returned no description: the guard's
// refusal or the network's error, else that the server is no MCP server.
func (x *exchange) silence(err error) error {
	if last := x.last.Load(); last != nil {
		return *last
	}

	if over, ok := errors.AsType[*Refusal](context.Cause(x.ctx)); ok {
		return over
	}

	return fmt.Errorf("%w: %w", ErrNothingSaid, err)
}
