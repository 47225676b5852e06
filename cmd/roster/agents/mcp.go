package agents

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/roster-mesh/roster/api"
	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/cmd/roster/connect"
)

func mcpCommand(session connect.Session) *cobra.Command {
	return &cobra.Command{
		Use:   "mcp",
		Short: "Run an MCP server on stdin and stdout",
		Long: `Run an MCP server on standard input and output, with tools that find and register
agents. Each call becomes a request to the directory (--address) with the identity of
--cert and --key. An MCP client starts this command; it ends when its input ends.

A directory's nodes serve the same tools over HTTP at /mcp.`,
		Example: `  {"mcpServers": {"roster": {"command": "roster", "args":` +
			` ["mcp", "--address", "https://127.0.0.1:8400"]}}}`,
		Args: cli.Args(),
		RunE: session.WithClient(func(ctx context.Context, client *apiclient.Client, _ []string) error {
			return api.ServeTools(ctx, client, io.NopCloser(session.Stdin), nopCloser{session.Stdout})
		}),
	}
}

// nopCloser keeps an MCP session from closing standard output.
type nopCloser struct{ io.Writer }

// Close implements io.Closer.
func (nopCloser) Close() error { return nil }
