package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/roster-mesh/roster/api"
	apiclient "github.com/roster-mesh/roster/api/client"
)

func (a *app) mcpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "mcp",
		Short: "Be an MCP server on standard input and output, for a model client on this machine",
		Long: `Be an MCP server on standard input and output: tools that look agents up and register
them. What they ask goes to the directory that --address names, as the identity of
--cert and --key. A model client starts this command; it ends with its input.

A directory's nodes have the same tools at /mcp.`,
		Example: `  {"mcpServers": {"roster": {"command": "roster", "args": ["mcp", "--address", "https://127.0.0.1:8400"]}}}`,
		Args:    needs(),
		RunE: a.asking(func(ctx context.Context, client *apiclient.Client, _ []string) error {
			return api.ServeTools(ctx, client, io.NopCloser(a.stdin), unclosed{a.stdout})
		}),
	}
}

// unclosed is standard output, which is not a session's to close.
type unclosed struct{ io.Writer }

func (unclosed) Close() error { return nil }
