package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/roster-mesh/roster/directory"
)

// served is what an MCP server says of itself when it is initialized.
type served struct {
	name, title, version string
	tools                []string
	all                  bool // it has no more tools than these
}

// askMCP initializes an MCP server, asks for its tools, and ends the session
// (jimenez A.2). The server's tools are not called.
func (g *Guard) askMCP(ctx context.Context, s Source) (*Said, error) {
	target := Target{Registrant: s.Registrant, MutualTLS: s.MutualTLS, MaxBody: DefaultMaxBody, Timeout: g.cfg.Timeout}
	ctx, cancel := context.WithTimeoutCause(ctx, target.Timeout, refuse(RuleTime, context.DeadlineExceeded, "the exchange took over %s", target.Timeout))
	defer cancel()
	within := &exchange{next: g.Client(target).Transport, ctx: ctx}
	client := mcp.NewClient(&mcp.Implementation{Name: "roster-prober", Version: "1"}, nil)
	open, err := client.Connect(ctx, &mcp.StreamableClientTransport{
		Endpoint: s.URL, MaxRetries: -1, DisableStandaloneSSE: true, MaxEventSize: int(target.MaxBody),
		HTTPClient: &http.Client{Transport: within, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
	}, nil)
	if err != nil {
		return nil, within.silence(err)
	}
	defer open.Close()
	hello := open.InitializeResult()
	if hello == nil || hello.ServerInfo == nil {
		return nil, fmt.Errorf("%w: the server does not say what it is", ErrNothingSaid)
	}
	said := &served{name: hello.ServerInfo.Name, title: hello.ServerInfo.Title, version: hello.ServerInfo.Version, all: true}
	if hello.Capabilities == nil || hello.Capabilities.Tools == nil {
		return &Said{At: s.URL, kind: directory.KindMCP, server: said}, nil
	}
	for tool, err := range open.Tools(ctx, nil) {
		if err != nil {
			return nil, within.silence(err)
		}
		if said.tools = append(said.tools, tool.Name); len(said.tools) == maxTools {
			said.all = false
			break
		}
	}
	return &Said{At: s.URL, kind: directory.KindMCP, server: said}, nil
}

// silence returns why an exchange told nothing: the guard's no or the network's, else
// that what answers is no MCP server.
func (x *exchange) silence(err error) error {
	if last := x.last.Load(); last != nil {
		return *last
	}
	var over *Refusal
	if errors.As(context.Cause(x.ctx), &over) {
		return over
	}
	return fmt.Errorf("%w: %w", ErrNothingSaid, err)
}
