package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// ErrNothingSaid means that a server answered without a usable description of its
// agent: it has no such document, or the document is malformed.
var ErrNothingSaid = errors.New("nothing is said there")

// An MCPServer is the description that an MCP server gives when it is initialized.
type MCPServer struct {
	Name, Title, Version string
	Tools                []string
	AllTools             bool // false if the server has more tools than Tools
}

// DescribeMCP initializes the MCP server at endpoint, lists its tools and ends the
// session (jimenez A.2). It calls no tool. Of target, MaxBody and Timeout are the
// guard's. The error is the guard's, of the network, or [ErrNothingSaid].
func (g *Guard) DescribeMCP(ctx context.Context, endpoint string, target Target) (*MCPServer, error) {
	target.MaxBody, target.Timeout = DefaultMaxBody, g.cfg.Timeout
	ctx, cancel := context.WithTimeoutCause(ctx, target.Timeout,
		refuse(RuleTime, context.DeadlineExceeded, "the exchange took over %s", target.Timeout))
	defer cancel()
	within := &exchange{next: g.Client(target).Transport, ctx: ctx}
	client := mcp.NewClient(&mcp.Implementation{Name: "roster-prober", Version: "1"}, nil)

	open, err := client.Connect(ctx, &mcp.StreamableClientTransport{
		Endpoint: endpoint, MaxRetries: -1, DisableStandaloneSSE: true, MaxEventSize: int(target.MaxBody),
		HTTPClient: &http.Client{Transport: within, CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		}},
	}, nil)
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

	for tool, err := range open.Tools(ctx, nil) {
		if err != nil {
			return nil, within.silence(err)
		}

		if server.Tools = append(server.Tools, tool.Name); len(server.Tools) == maxTools {
			server.AllTools = false
			break
		}
	}

	return server, nil
}

// silence returns the reason why an exchange returned no description: the guard's
// refusal or the network's error, else that the server is no MCP server.
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
