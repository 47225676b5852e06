package agents

import (
	"context"
	"encoding/json"
	"io"
	"os"

	"github.com/spf13/cobra"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/api"
	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/cmd/roster/connect"
	"github.com/roster-mesh/roster/trust"
)

func mcpCommand(session *connect.Session) *cobra.Command {
	return &cobra.Command{
		Use:   "mcp",
		Short: "Run an MCP server on stdin and stdout",
		Long: `Run an MCP server on standard input and output, with tools that find, register, refresh,
deregister, invoke and verify agents. Each call becomes a request to the directory (--address)
with the identity of --cert and --key; the directory's policy decides. Proofs are verified as
by roster verify. An MCP client starts this command; it ends when its input ends.

A directory's nodes serve the same tools over HTTP at /mcp.`,
		Example: `  {"mcpServers": {"roster": {"command": "roster", "args":` +
			` ["mcp", "--address", "https://127.0.0.1:8400"]}}}`,
		Args: cli.Args(),
		RunE: session.WithClient(func(ctx context.Context, client *apiclient.Client, _ []string) error {
			return api.ServeTools(ctx, client, verifier(session, client), io.NopCloser(session.Stdin),
				nopCloser{session.Stdout})
		}),
	}
}

// verifier returns a verifier of proofs by the anchors of roster verify: the bundle of the
// connection for the domains in it, else the data of the directory.
func verifier(session *connect.Session, client *apiclient.Client) func(context.Context, []byte) ([]byte, error) {
	return func(_ context.Context, proof []byte) ([]byte, error) {
		options := trust.VerifyOptions{Directory: client.Address(), OfConnection: true}

		if file, _, _ := session.Bundle(); file != "" {
			text, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}

			if options.Bundle, err = trust.ParseBundle(spiffeid.TrustDomain{}, text); err != nil {
				return nil, err
			}
		}

		report, _ := trust.Verify(proof, options) // the report has the verdict

		return json.Marshal(report)
	}
}

// nopCloser keeps an MCP session from closing standard output.
type nopCloser struct{ io.Writer }

// Close implements io.Closer.
func (nopCloser) Close() error { return nil }
