package agents

import (
	"context"
	"errors"
	"strings"

	apiagents "github.com/roster-mesh/roster/api/agents"

	"github.com/spf13/cobra"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/api/client/contract"
	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/cmd/roster/connect"
	"github.com/roster-mesh/roster/directory"
)

func invokeCommand(session connect.Session) *cobra.Command {
	var in invocation
	cmd := &cobra.Command{
		Use:   "invoke NAME|RID INPUT",
		Short: "Invoke an agent through the gateway",
		Long: `Invoke an agent through the directory's gateway and print its output. INPUT is JSON text,
@FILE, or - for standard input. A JSON array is a batch.

The command validates the input against the schema of the operation in the registration
before it sends anything, and the output before it prints it. The gateway validates both
again; with --no-validate only the gateway does.

The gateway calls the agent with its own identity, so the agent never gets your
credentials. Trust the output as much as you trust the agent.`,
		Example: "  roster invoke translator '{\"text\": \"hello\"}'\n" +
			"  roster invoke translator --operation detect @input.json",
		Args: cli.Args("NAME|RID", "INPUT"),
		RunE: func(c *cobra.Command, args []string) error {
			in.id = args[0]

			in.input = []byte(args[1])
			if file, isFile := strings.CutPrefix(args[1], "@"); isFile || args[1] == "-" {
				var err error
				if in.input, err = session.ReadFile(file, apiagents.DefaultMaxInvocation+1); err != nil {
					return err
				}
			}

			return in.run(c.Context(), session)
		},
	}
	cmd.Flags().StringVar(&in.operation, "operation", "", "`OPERATION` to invoke (required if the agent has several)")
	cmd.Flags().BoolVar(&in.unvalidated, "no-validate", false,
		"don't check input and output against the agent's schema")

	return cmd
}

// An invocation is one call of an agent.
type invocation struct {
	id          string // name or rid
	operation   string // empty for the agent's only one
	input       []byte
	unvalidated bool // leave validation to the gateway
}

func (in *invocation) run(ctx context.Context, session connect.Session) error {
	client, err := session.Client()
	if err != nil {
		return err
	}

	reply, err := in.send(ctx, client)

	var (
		invalidOutput *contract.OutputError
		invalidInput  *directory.Error
	)
	switch {
	case errors.As(err, &invalidOutput):
		return cli.Failed(cli.ExitFailed, "%w", invalidOutput).
			WithHint("The agent has acted. Add --no-validate to print its output.")
	case errors.As(err, &invalidInput):
		return cli.FailureOf(err).WithHint("Nothing was sent. Add --no-validate to send it to the gateway anyway.")
	case err != nil:
		return cli.Suggest(err, cli.ExitNotFound, session.CommandLine("get", in.id))
	}

	return session.PrintDocument(reply.Body)
}

func (in *invocation) send(ctx context.Context, client *apiclient.Client) (*apiclient.Reply, error) {
	if in.unvalidated {
		return client.Invoke(ctx, in.id, in.operation, in.input, apiclient.InvokeOptions{})
	}

	return contract.Invoke(ctx, client, in.id, in.operation, in.input, nil, apiclient.InvokeOptions{})
}
