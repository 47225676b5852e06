package api

import (
	"context"
	_ "embed"
	"io"
	"sync"

	"github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/api/mcp"
	"github.com/roster-mesh/roster/api/openapi"
)

//go:embed openapi.yaml
var openapiYAML []byte

// Description returns the description of the API, openapi.yaml.
var Description = sync.OnceValue(func() *openapi.Document { return openapi.Parse(openapiYAML) })

// ServeTools answers MCP on in and out with the tools that a node has at /mcp, on behalf of
// c's identity; see mcp.Serve.
func ServeTools(
	ctx context.Context, c *client.Client, verify mcp.Verifier, in io.ReadCloser, out io.WriteCloser,
) error {
	return mcp.Serve(ctx, Description(), c, verify, in, out)
}
