package gateway

import (
	"context"
	"net/http"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Bounds of the lists of a server's tools, and of the requests for the rest of an answer.
const (
	maxTools = 1024 // that are looked at
	maxPages = 32   // in which they are listed
	// maxResumptions bounds the requests for the rest of an answer's stream that bring nothing
	// new. The time of the exchange bounds all of them.
	maxResumptions = 50
)

// newMCPClient returns a client that declares no capability: it has none.
func newMCPClient(name string) *mcp.Client {
	return mcp.NewClient(&mcp.Implementation{Name: name, Version: "1"},
		&mcp.ClientOptions{Capabilities: &mcp.ClientCapabilities{}})
}

// mcpTransport returns the transport to an MCP server by way of next. It follows no redirect, and
// asks for the rest of an answer if the server ends its stream (MCP 2025-11-25, Resumability and
// Redelivery).
func mcpTransport(endpoint string, maxEvent int64, next http.RoundTripper) *mcp.StreamableClientTransport {
	return &mcp.StreamableClientTransport{
		Endpoint: endpoint, MaxRetries: maxResumptions, DisableStandaloneSSE: true, MaxEventSize: int(maxEvent),
		HTTPClient: &http.Client{Transport: next, CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		}},
	}
}

// Why a list of tools is not the whole of it.
const (
	moreTools      = "the server lists more tools than are looked at"
	repeatedCursor = "the server repeats a cursor of its list of tools, so the rest of the list is unknown"
)

// listTools asks a server for its tools, and returns each name once. missing says why there may be
// more tools; it is "" if the list is whole.
func listTools(ctx context.Context, server interface {
	ListTools(context.Context, *mcp.ListToolsParams) (*mcp.ListToolsResult, error)
}) (tools []*mcp.Tool, missing string, err error) {
	names, cursors, cursor := map[string]bool{}, map[string]bool{}, ""

	for range maxPages {
		page, err := server.ListTools(ctx, &mcp.ListToolsParams{Cursor: cursor})
		if err != nil {
			return nil, "", err
		}

		for _, t := range page.Tools {
			switch {
			case names[t.Name]:
			case len(tools) == maxTools:
				return tools, moreTools, nil
			default:
				names[t.Name] = true
				tools = append(tools, t)
			}
		}

		switch cursor = page.NextCursor; {
		case cursor == "":
			return tools, "", nil
		case cursors[cursor]:
			return tools, repeatedCursor, nil
		}

		cursors[cursor] = true
	}

	return tools, moreTools, nil
}
